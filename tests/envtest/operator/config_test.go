// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/configuration"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

// keyCase is an edit of one key of the ConfigMap, with the paths that a valid value changes
// in the pods.
type keyCase struct {
	key, good string
	changes   []string
}

var keyCases = []keyCase{
	{
		deploy.KeyDaemonImage, "quay.io/bpfman/bpfman:v2",
		[]string{"containers[bpfman].image"},
	},
	{
		deploy.KeyDaemonLogLevel, "bpfman=debug",
		[]string{"containers[bpfman].env[RUST_LOG].value"},
	},
	{
		deploy.KeyDaemonTOML, "[signing]\nallow_unsigned = false\n",
		[]string{"+containers[bpfman-agent].args[--require-policy]", "metadata.annotations.bpfman.io/bpfman.toml"},
	},
	{
		deploy.KeyAgentImage, "quay.io/bpfman/bpfman-agent:v2",
		[]string{"containers[bpfman-agent].image", "initContainers[mount-bpffs].image"},
	},
	{
		deploy.KeyAgentLogLevel, "trace",
		[]string{
			"containers[bpfman-agent].env[GO_LOG].value",
			"initContainers[mount-bpffs].env[GO_LOG].value",
		},
	},
	{
		deploy.KeyAgentHealthAddr, "127.0.0.1:9175",
		[]string{
			"+containers[bpfman-agent].livenessProbe.httpGet.host",
			"+containers[bpfman-agent].readinessProbe.httpGet.host",
			"containers[bpfman-agent].args[--health-probe-bind-address]",
			"containers[bpfman-agent].livenessProbe.httpGet.port",
			"containers[bpfman-agent].readinessProbe.httpGet.port",
		},
	},
	{
		deploy.KeyAgentMetricsAddr, ":9174",
		[]string{
			"containers[bpfman-agent].args[--metrics-bind-address]",
			"containers[bpfman-agent].ports[metrics].containerPort",
			"containers[bpfman-agent].ports[metrics].hostPort",
		},
	},
	{
		deploy.KeyBytecodeStoreSize, "1Gi",
		[]string{"containers[bpfman-agent].args[--bytecode-dir-size]"},
	},
	{
		deploy.KeyConfirmTimeout, "0",
		[]string{"containers[bpfman-agent].args[--confirm-timeout]"},
	},
	{
		deploy.KeyUprobeNamespaces, "acme, beta",
		[]string{"+containers[bpfman-agent].args[--uprobe-namespaces]"},
	},
	{
		deploy.KeyPriorityReserved, "50",
		[]string{"containers[bpfman-agent].args[--reserved-priorities]"},
	},
	{
		deploy.KeyPriorityEnforced, "true",
		[]string{"+containers[bpfman-agent].args[--enforce-priorities]"},
	},
	{
		deploy.KeyCSIImage, "quay.io/bpfman/bpfman-csi:v2",
		[]string{"containers[bpfman-csi].image"},
	},
	{
		deploy.KeyCSILogLevel, "debug",
		[]string{"containers[bpfman-csi].env[GO_LOG].value"},
	},
	{
		deploy.KeyCSIRegistrarImage, "quay.io/other/registrar:v1",
		[]string{"containers[node-driver-registrar].image"},
	},
	{
		deploy.KeyCSIClusterAccess, deploy.ClusterAccessRBAC,
		[]string{"containers[bpfman-csi].args[--cluster-access]"},
	},
	{
		deploy.KeyCSIMetricsAddr, ":9173",
		[]string{
			"-containers[bpfman-csi].readinessProbe.httpGet.host",
			"containers[bpfman-csi].args[--metrics-address]",
			"containers[bpfman-csi].ports[csi-metrics].containerPort",
			"containers[bpfman-csi].ports[csi-metrics].hostPort",
			"containers[bpfman-csi].readinessProbe.httpGet.port",
		},
	},
	{
		deploy.KeyCSISELinuxContext, "system_u:object_r:container_file_t:s0",
		[]string{"+containers[bpfman-csi].args[--selinux-context]"},
	},
	{
		deploy.KeyKubeletRoot, "/data/kubelet",
		[]string{
			"+containers[bpfman-csi].volumeMounts[/data/kubelet/pods]",
			"-containers[bpfman-csi].volumeMounts[/var/lib/kubelet/pods]",
			"containers[bpfman-csi].args[--kubelet-root]",
			"containers[bpfman-csi].args[--registration-path]",
			"containers[node-driver-registrar].args[--kubelet-registration-path]",
			"volumes[csi-plugin].hostPath.path",
			"volumes[csi-registration].hostPath.path",
			"volumes[kubelet-pods].hostPath.path",
		},
	},
	{
		deploy.KeyImagePullPolicy, "Always",
		[]string{
			"containers[bpfman-agent].imagePullPolicy",
			"containers[bpfman-csi].imagePullPolicy",
			"containers[bpfman-inspector].imagePullPolicy",
			"containers[bpfman].imagePullPolicy",
			"containers[node-driver-registrar].imagePullPolicy",
			"initContainers[mount-bpffs].imagePullPolicy",
		},
	},
	{
		deploy.KeyRegistryCA, configuration.Authority,
		[]string{
			"+containers[bpfman-agent].env[SSL_CERT_DIR]",
			"+containers[bpfman-agent].env[SSL_CERT_FILE]",
			"+containers[bpfman-agent].volumeMounts[/etc/bpfman-registry]",
			"+metadata.annotations.bpfman.io/registry-ca.crt",
			"+volumes[registry-ca]",
		},
	},
	{
		deploy.KeyImagePullSecrets, "one, two",
		[]string{"+imagePullSecrets"},
	},
	{
		deploy.KeyCSIEnabled, "false",
		[]string{
			"-containers[bpfman-csi]",
			"-containers[node-driver-registrar]",
			"-volumes[csi-identity]",
			"-volumes[csi-plugin]",
			"-volumes[csi-registration]",
			"-volumes[kubelet-pods]",
		},
	},
	{
		deploy.KeyInspectorEnabled, "false",
		[]string{"-containers[bpfman-inspector]"},
	},
	{
		deploy.KeyInspectorImage, "quay.io/bpfman/bpfman-inspector:v2",
		[]string{"containers[bpfman-inspector].image"},
	},
	{
		deploy.KeyInspectorLogLevel, "debug",
		[]string{"containers[bpfman-inspector].env[GO_LOG].value"},
	},
	{
		deploy.KeyInspectorMetricsAddr, ":9172",
		[]string{
			"-containers[bpfman-inspector].livenessProbe.httpGet.host",
			"-containers[bpfman-inspector].readinessProbe.httpGet.host",
			"containers[bpfman-inspector].args[--metrics-bind-address]",
			"containers[bpfman-inspector].livenessProbe.httpGet.port",
			"containers[bpfman-inspector].ports[inspect-metrics].containerPort",
			"containers[bpfman-inspector].ports[inspect-metrics].hostPort",
			"containers[bpfman-inspector].readinessProbe.httpGet.port",
		},
	},
	{
		deploy.KeyInspectorStatistics, "true",
		[]string{"containers[bpfman-inspector].args[--statistics]"},
	},
	{
		deploy.KeyNodeSelector, "ebpf=true",
		[]string{"+nodeSelector.ebpf"},
	},
	{
		deploy.KeyTolerations, "- {operator: Exists, effect: NoExecute}",
		[]string{"+tolerations[map[effect:NoExecute operator:Exists]]"},
	},
	{
		deploy.KeyResources, "bpfman: {limits: {memory: 1Gi}}",
		[]string{"+containers[bpfman].resources.limits", "-containers[bpfman].resources.requests"},
	},
}

// TestEachKey edits each key of the ConfigMap. A valid value changes only the corresponding
// parts of the node pods, in one write. Without the value, everything is as before. An
// invalid value changes nothing, and an Event contains the reason.
func TestEachKey(t *testing.T) {
	c := cluster(t)
	original := getDaemonSet(t, c)
	tried := map[string]bool{}
	for _, k := range keyCases {
		tried[k.key] = true
		t.Run(k.key, func(t *testing.T) {
			before := getDaemonSet(t, c)
			becomes := func(t *testing.T, writes int64, changes ...string) {
				t.Helper()
				after := &appsv1.DaemonSet{}
				envtest.Eventually(t, "the DaemonSet is written", func(ctx context.Context) error {
					if err := c.Get(ctx, daemonSetKey, after); err != nil || after.Generation < before.Generation+writes {
						return errors.Join(fmt.Errorf("generation %d after %d", after.Generation, before.Generation), err)
					}
					return nil
				})
				if got := differences(t, original.Spec, after.Spec); after.Generation != before.Generation+writes || !slices.Equal(got, changes) {
					t.Errorf("%d writes, want %d; it differs in %q, want %q", after.Generation-before.Generation, writes, got, changes)
				}
			}
			t.Run("good", func(t *testing.T) {
				set(t, c, map[string]string{k.key: k.good})
				becomes(t, 1, k.changes...)
			})
			becomes(t, 2)
			t.Run("bad", func(t *testing.T) {
				bad := configuration.Refused[k.key]
				configMap := set(t, c, map[string]string{k.key: bad.Value})
				envtest.Eventually(t, "an Event says why", hasEvent(c, configMap, deploy.ReasonInvalidConfig, func(note string) bool {
					return strings.Contains(note, k.key+": ") && bad.Reason != "" && strings.Contains(note, bad.Reason)
				}))
				becomes(t, 2)
			})
		})
	}
	for _, key := range deploy.Keys() {
		if !tried[key] {
			t.Errorf("%s isn't tried", key)
		}
	}
}

// differences returns the paths at which two DaemonSets differ, in order. Elements of lists
// are identified by their names, or by their content.
func differences(t *testing.T, a, b appsv1.DaemonSetSpec) []string {
	t.Helper()
	var paths []string
	var compare func(path string, a, b any)
	members := func(path string, a, b map[string]any, format string) {
		for name := range maps.Clone(b) {
			if _, both := a[name]; !both {
				paths = append(paths, "+"+fmt.Sprintf(format, path, name))
			}
		}
		for name, value := range a {
			if other, both := b[name]; both {
				compare(fmt.Sprintf(format, path, name), value, other)
			} else {
				paths = append(paths, "-"+fmt.Sprintf(format, path, name))
			}
		}
	}
	compare = func(path string, a, b any) {
		switch a := a.(type) {
		case map[string]any:
			if b, same := b.(map[string]any); same {
				members(path, a, b, "%s.%s")
				return
			}
		case []any:
			if b, same := b.([]any); same {
				members(path, byName(a), byName(b), "%s[%s]")
				return
			}
		}
		if !reflect.DeepEqual(a, b) {
			paths = append(paths, path)
		}
	}
	var plain [2]map[string]any
	for i, spec := range []appsv1.DaemonSetSpec{a, b} {
		var err error
		if plain[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&spec); err != nil {
			t.Fatal(err)
		}
	}
	compare("", plain[0], plain[1])
	for i, path := range paths {
		for _, prefix := range []string{".template.spec.", ".template."} {
			path = strings.Replace(path, prefix, "", 1)
		}
		paths[i] = path
	}
	slices.Sort(paths)
	return paths
}

// byName returns a map with names for the elements of a list: their own name, the name of a
// flag, or their content.
func byName(list []any) map[string]any {
	named := map[string]any{}
	for _, element := range list {
		switch element := element.(type) {
		case map[string]any:
			name, ok := element["name"].(string)
			if path, isMount := element["mountPath"].(string); isMount {
				name, ok = path, true
			}
			if !ok {
				name = fmt.Sprint(element)
			}
			named[name] = element
		default:
			name, _, _ := strings.Cut(fmt.Sprint(element), "=")
			named[name] = element
		}
	}
	return named
}
