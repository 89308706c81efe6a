// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/configuration"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// effect is the effect of an edit of a key, on each node.
type effect struct {
	value string
	check func(ctx context.Context, t *testing.T, pod *corev1.Pod)
}

// elsewhere names the tests of keys that aren't tested here.
var elsewhere = map[string]string{
	deploy.KeyDaemonImage:       "TestUpgrade",
	deploy.KeyAgentImage:        "TestUpgrade",
	deploy.KeyCSIImage:          "TestUpgrade",
	deploy.KeyCSIRegistrarImage: "TestRegistration",
	deploy.KeyCSIClusterAccess:  "TestClusterAccessByRBAC",
	deploy.KeyCSIEnabled:        "TestWithoutCSI",
	deploy.KeyInspectorImage:    "TestUpgrade",
	deploy.KeyInspectorEnabled:  "TestWithoutInspector",
	deploy.KeyRegistryCA:        "TestWithoutInternet",
	deploy.KeyKubeletRoot:       "TestEachKey of tests/envtest/operator: a kubelet has one root",
}

// daemonTOML is appended to the daemon's file.
const daemonTOML = "\n[interfaces.e2e0]\nxdp_mode = \"skb\"\n"

// effects returns edits of all other keys.
func effects(toml string) map[string]effect {
	spec := func(has func(spec corev1.PodSpec) bool) func(context.Context, *testing.T, *corev1.Pod) {
		return func(_ context.Context, t *testing.T, pod *corev1.Pod) {
			t.Helper()
			if !has(pod.Spec) {
				t.Errorf("pod %s has not what it should: %+v", pod.Name, pod.Spec)
			}
		}
	}
	all := map[string]effect{
		deploy.KeyDaemonTOML: {toml + daemonTOML, func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
			t.Helper()
			text, err := ask[string](ctx, pod.Spec.NodeName, "read", node.Daemon, "/etc/bpfman/bpfman.toml")
			if err != nil || !strings.Contains(text, "[interfaces.e2e0]") || !strings.Contains(text, "verify_enabled = false") {
				t.Errorf("the daemon's file is %q, %v", text, err)
			}
		}},
		deploy.KeyAgentHealthAddr:      {"127.0.0.1:18175", serves("http://127.0.0.1:18175/readyz", http.StatusOK)},
		deploy.KeyAgentMetricsAddr:     {"127.0.0.1:18174", serves("https://127.0.0.1:18174/metrics", http.StatusUnauthorized)},
		deploy.KeyCSIMetricsAddr:       {"127.0.0.1:18173", serves("https://127.0.0.1:18173/metrics", http.StatusUnauthorized)},
		deploy.KeyInspectorMetricsAddr: {"127.0.0.1:18172", serves("https://127.0.0.1:18172/metrics", http.StatusUnauthorized)},
		deploy.KeyImagePullPolicy: {"Never", spec(func(spec corev1.PodSpec) bool {
			return !slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool { return c.ImagePullPolicy != corev1.PullNever })
		})},
		deploy.KeyImagePullSecrets: {"e2e-one,e2e-two", spec(func(spec corev1.PodSpec) bool {
			return slices.Equal(spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "e2e-one"}, {Name: "e2e-two"}})
		})},
		deploy.KeyNodeSelector: {componentsLabel + "=here", spec(func(spec corev1.PodSpec) bool { return spec.NodeSelector[componentsLabel] == "here" })},
		deploy.KeyTolerations: {"- {key: e2e, operator: Exists}", spec(func(spec corev1.PodSpec) bool {
			return slices.Contains(spec.Tolerations, corev1.Toleration{Key: "e2e", Operator: corev1.TolerationOpExists})
		})},
		deploy.KeyResources: {"bpfman-agent: {limits: {memory: 512Mi}}", spec(func(spec corev1.PodSpec) bool {
			return slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
				return c.Name == "bpfman-agent" && c.Resources.Limits.Memory().String() == "512Mi"
			})
		})},
	}
	for key, values := range configuration.Keys {
		if values.Process != "" {
			all[key] = effect{values.Good, started(values.Process, values.Word)}
		}
	}
	return all
}

// componentsLabel is a label of all nodes with node components.
const componentsLabel = "e2e.bpfman.io/components"

// started checks that the only process of an executable was started with an argument or a variable.
func started(executable, word string) func(context.Context, *testing.T, *corev1.Pod) {
	return func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
		t.Helper()
		processes, err := ask[[]node.Process](ctx, pod.Spec.NodeName, "started", executable)
		if err != nil || len(processes) != 1 || !slices.Contains(slices.Concat(processes[0].Args, processes[0].Env), word) {
			t.Errorf("%s on %s was started without %s: %+v, %v", executable, pod.Spec.NodeName, word, processes, err)
		}
	}
}

// serves checks the response of a server on the node.
func serves(url string, status int) func(context.Context, *testing.T, *corev1.Pod) {
	return func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
		t.Helper()
		page, err := ask[node.Page](ctx, pod.Spec.NodeName, "fetch", url)
		if err != nil || page.Status != status {
			t.Errorf("%s on %s answers %d %s, %v", url, pod.Spec.NodeName, page.Status, page.Body, err)
		}
	}
}

// TestConfiguration edits every key of the ConfigMap. Valid values take effect with a
// single rollout of only the node components. Invalid values change nothing, and an Event
// contains the reason.
func TestConfiguration(t *testing.T) {
	var before deployed
	feature(t,
		step{"good values take effect", func(ctx context.Context, s *testing.T) {
			for _, name := range under.nodes() {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				modify(ctx, s, n, func(n *corev1.Node) { n.Labels[componentsLabel] = "here" })
				t.Cleanup(func() {
					modify(context.WithoutCancel(ctx), t, n, func(n *corev1.Node) { delete(n.Labels, componentsLabel) })
				})
			}
			restoreConfig(ctx, t)
			all := effects(get(ctx, s, configMap()).Data[deploy.KeyDaemonTOML])
			data := map[string]string{}
			for _, key := range deploy.Keys() {
				if e, here := all[key.Name]; here {
					data[key.Name] = e.value
				} else if elsewhere[key.Name] == "" {
					s.Errorf("no test edits %s", key.Name)
				}
			}
			before = whatIsDeployed(ctx, s)
			edit(ctx, s, data)
			before.checkOnly(ctx, s, "node components")
			pods, err := componentPods(ctx)
			if err != nil {
				s.Fatal(err)
			}
			for i := range pods {
				for key := range data {
					all[key].check(ctx, s, &pods[i])
				}
			}
		}},
		step{"bad values change nothing, and are told of", func(ctx context.Context, s *testing.T) {
			before = whatIsDeployed(ctx, s)
			for key, values := range configuration.Keys {
				config := configMap()
				good := get(ctx, s, config).Data[key]
				modify(ctx, s, config, func(c *corev1.ConfigMap) { c.Data[key] = values.Refused })
				awaitEvent(ctx, s, config, corev1.EventTypeWarning, deploy.ReasonInvalidConfig, key+": ", values.Reason)
				modify(ctx, s, config, func(c *corev1.ConfigMap) { c.Data[key] = good })
			}
			modify(ctx, s, configMap(), func(c *corev1.ConfigMap) { c.Data["bpfman.agnet.image"] = "misspelt" })
			awaitEvent(ctx, s, get(ctx, s, configMap()), corev1.EventTypeWarning, deploy.ReasonUnknownKey, "bpfman.agnet.image")
			if now := whatIsDeployed(ctx, s); fmt.Sprint(now) != fmt.Sprint(before) {
				s.Errorf("what is deployed was %+v, and is %+v", before, now)
			}
			awaitRunning(ctx, s)
		}},
	)
}

// TestPortInUse checks that volumes are mounted while other software uses the port of the CSI plugin's metrics. The
// plugin isn't ready until the port is free.
func TestPortInUse(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, address = "e2e-port-in-use", "127.0.0.1:13173"
	program := tracepoint("e2e-port-in-use")
	pod := reader(space, "reader", program.Name, "tracepoint_stats_map")
	var free func() map[string]map[string]int
	feature(t,
		step{"another server", func(ctx context.Context, s *testing.T) {
			restoreConfig(ctx, t)
			free = runProxies(ctx, t, address, "")
			modify(ctx, s, configMap(), func(c *corev1.ConfigMap) { c.Data[deploy.KeyCSIMetricsAddr] = address })
			await(ctx, s, "a plugin that says so, and isn't ready", func(ctx context.Context) (bool, string) {
				pods, err := componentPods(ctx)
				saw := fmt.Sprint(err)
				for i := range pods {
					log, err := under.clientset.CoreV1().Pods(bpfmanSpace).GetLogs(pods[i].Name, &corev1.PodLogOptions{Container: "bpfman-csi"}).DoRaw(ctx)
					said := err == nil && bytes.Contains(log, []byte("listen tcp "+address+": bind: address already in use"))
					if said && slices.ContainsFunc(pods[i].Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
						return c.Name == "bpfman-csi" && c.State.Running != nil && !c.Ready && c.RestartCount == 0
					}) {
						return true, ""
					}
					saw += fmt.Sprintf("; %s: %v", podState(&pods[i]), err)
				}
				return false, saw
			})
		}},
		step{"volumes", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
		}},
		step{"the port is free", func(ctx context.Context, s *testing.T) {
			free()
			awaitNodeComponents(ctx, s, func(*appsv1.DaemonSet) bool { return true })
		}},
	)
}

// TestWithoutCSI disables and enables volumes. A pod with a volume keeps it, and another
// pod waits.
func TestWithoutCSI(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, mapName = "e2e-without-csi", "tracepoint_stats_map"
	program := tracepoint("e2e-without-csi")
	keeps, waits := reader(space, "keeps", program.Name, mapName), reader(space, "waits", program.Name, mapName)
	containersAre := func(t *testing.T, pods []corev1.Pod, want ...string) {
		t.Helper()
		for _, pod := range pods {
			var names []string
			for _, c := range pod.Spec.Containers {
				if c.Name != "node-driver-registrar" {
					names = append(names, c.Name)
				}
			}
			if !slices.Equal(names, want) {
				t.Errorf("pod %s has containers %q, want %q", pod.Name, names, want)
			}
		}
	}
	set := func(ctx context.Context, t *testing.T, value string, containers ...string) {
		t.Helper()
		before := whatIsDeployed(ctx, t)
		edit(ctx, t, map[string]string{deploy.KeyCSIEnabled: value})
		before.checkOnly(ctx, t, "node components")
		pods, err := componentPods(ctx)
		if err != nil {
			t.Fatal(err)
		}
		containersAre(t, pods, containers...)
	}
	feature(t,
		step{"off", func(ctx context.Context, s *testing.T) {
			restoreConfig(ctx, t)
			namespace(ctx, t, space)
			create(ctx, t, program)
			create(ctx, t, keeps)
			awaitReady(ctx, s, keeps)
			set(ctx, s, "false", "bpfman", "bpfman-agent", "bpfman-inspector")
			awaitGone(ctx, s, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CSIDriverName}})
			create(ctx, t, waits)
			awaitEvent(ctx, s, waits, corev1.EventTypeWarning, "FailedMount", "driver name "+v1alpha1.CSIDriverName+" not found")
			awaitGrowth(ctx, s, keeps, mapName, callKill)
		}},
		step{"on", func(ctx context.Context, s *testing.T) {
			set(ctx, s, "true", "bpfman", "bpfman-agent", "bpfman-csi", "bpfman-inspector")
			awaitReady(ctx, s, waits)
			for _, pod := range []*corev1.Pod{keeps, waits} {
				awaitGrowth(ctx, s, pod, mapName, callKill)
			}
			checkUndisturbed(ctx, s, keeps)
			checkRegistered(ctx, s)
		}},
	)
}

// TestWithoutInspector disables and enables the inspector. BpfNodes are deleted and
// created with it.
func TestWithoutInspector(t *testing.T) {
	set := func(ctx context.Context, t *testing.T, value string) {
		t.Helper()
		before := whatIsDeployed(ctx, t)
		edit(ctx, t, map[string]string{deploy.KeyInspectorEnabled: value})
		before.checkOnly(ctx, t, "node components")
	}
	inspected := func(ctx context.Context, t *testing.T, want bool) {
		t.Helper()
		for _, name := range under.nodes() {
			object := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
			awaitFor(ctx, t, recovery, fmt.Sprintf("node %s has a BpfNode: %v", name, want), func(ctx context.Context) (bool, string) {
				err := under.Get(ctx, client.ObjectKeyFromObject(object), object)
				return (err == nil && want) || (apierrors.IsNotFound(err) && !want), fmt.Sprint(err)
			})
			pids, err := ask[[]int](ctx, name, "processes", node.Inspector)
			if err != nil || (len(pids) == 1) != want {
				t.Errorf("inspectors on %s: %v, %v", name, pids, err)
			}
		}
	}
	feature(t,
		step{"on", func(ctx context.Context, s *testing.T) {
			restoreConfig(ctx, t)
			inspected(ctx, s, true)
		}},
		step{"off", func(ctx context.Context, s *testing.T) {
			set(ctx, s, "false")
			inspected(ctx, s, false)
		}},
		step{"on again", func(ctx context.Context, s *testing.T) {
			set(ctx, s, "true")
			inspected(ctx, s, true)
		}},
	)
}
