// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// TestInterfaces adds and removes the selected interfaces of a program.
func TestInterfaces(t *testing.T) {
	requireType(t, "TCX")
	const first, second = "e2efirst", "e2esecond"
	o := tcx("e2e-interfaces", first)
	o.Spec.InterfaceSelector.Interfaces = &[]string{first, second}
	var links map[string][]uint32
	feature(t,
		step{"neither is there", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitFailure(ctx, s, o, first, second)
		}},
		step{"one appears", func(ctx context.Context, s *testing.T) {
			addInterface(ctx, t, first)
			links = awaitLinks(ctx, s, o, first+" ingress")
			awaitFailure(ctx, s, o, second)
		}},
		step{"the other", func(ctx context.Context, s *testing.T) {
			addInterface(ctx, t, second)
			awaitSuccess(ctx, s, o)
			now := awaitLinks(ctx, s, o, first+" ingress", second+" ingress")
			checkKept(s, links, now)
			links = now
		}},
		step{"one vanishes", func(ctx context.Context, s *testing.T) {
			removeInterface(ctx, s, first)
			awaitFailure(ctx, s, o, first)
			delete(links, first+" ingress")
			checkKept(s, links, awaitLinks(ctx, s, o, second+" ingress"))
		}},
		step{"and is made anew", func(ctx context.Context, s *testing.T) {
			addInterface(ctx, t, first)
			awaitSuccess(ctx, s, o)
			checkKept(s, links, awaitLinks(ctx, s, o, first+" ingress", second+" ingress"))
		}},
		step{"it isn't selected anymore", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, o, func(o *v1alpha1.TcxProgram) { o.Spec.InterfaceSelector.Interfaces = &[]string{second} })
			checkKept(s, links, awaitLinks(ctx, s, o, second+" ingress"))
			awaitSuccess(ctx, s, o)
		}},
	)
}

const discoverySpace = "e2e-discovery"

func discovered(allowed ...string) v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true), AllowedInterfaces: allowed}}
}

// TestDiscoveredInterfaces adds and removes interfaces that the object doesn't name, on the
// host and in a pod's network, which the agent can't enter.
func TestDiscoveredInterfaces(t *testing.T) {
	requireType(t, "TCX")
	const first, second = "e2edisc1", "e2edisc2"
	onHost := tcx("e2e-discovered", "")
	onHost.Spec.InterfaceSelector = discovered("/^e2edisc[0-9]$/")
	inPods := tcxNs(discoverySpace, "discovered")
	inPods.Spec.InterfaceSelector = discovered() // all but lo
	pod := selectedPod(discoverySpace, "web", "target")
	inPod := func(name string) string { return name + " ingress in pod " + discoverySpace + "/web" }
	var links, podLinks map[string][]uint32
	feature(t,
		step{"none is there", func(ctx context.Context, s *testing.T) {
			create(ctx, t, onHost)
			awaitSuccess(ctx, s, onHost)
			awaitLinks(ctx, s, onHost)
		}},
		step{"they appear", func(ctx context.Context, s *testing.T) {
			addInterface(ctx, t, first)
			links = awaitLinks(ctx, s, onHost, first+" ingress")
			addInterface(ctx, t, second)
			now := awaitLinks(ctx, s, onHost, first+" ingress", second+" ingress")
			checkKept(s, links, now)
			links = now
		}},
		step{"one vanishes", func(ctx context.Context, s *testing.T) {
			removeInterface(ctx, s, first)
			delete(links, first+" ingress")
			checkKept(s, links, awaitLinks(ctx, s, onHost, second+" ingress"))
			awaitSuccess(ctx, s, onHost)
		}},
		step{"those of a pod", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, discoverySpace)
			create(ctx, t, inPods)
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
			podLinks = awaitLinks(ctx, s, inPods, inPod(podInterface))
			awaitSuccess(ctx, s, inPods)
		}},
		step{"another appears in the pod", func(ctx context.Context, s *testing.T) {
			moveInterface(ctx, s, node.Peer(second), "go-target")
			now := awaitLinks(ctx, s, inPods, inPod(podInterface), inPod(node.Peer(second)))
			checkKept(s, podLinks, now)
			awaitSuccess(ctx, s, inPods)
		}},
		step{"and vanishes with its other end on the host", func(ctx context.Context, s *testing.T) {
			removeInterface(ctx, s, second)
			checkKept(s, podLinks, awaitLinks(ctx, s, inPods, inPod(podInterface)))
			awaitSuccess(ctx, s, inPods)
			awaitLinks(ctx, s, onHost)
			awaitSuccess(ctx, s, onHost)
		}},
		step{"it is loaded and attached nowhere", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, inPods, func(o *v1alpha1.TcxNsProgram) { o.Spec.Attach = new(false) })
			awaitLinks(ctx, s, inPods)
			awaitSuccess(ctx, s, inPods)
		}},
	)
}

// TestNothingToAttachTo creates a program in a namespace without pods, and then a pod. An
// object that waits for pods or interfaces is neither attached nor failed.
func TestNothingToAttachTo(t *testing.T) {
	requireType(t, "TCX")
	const space = "e2e-idle"
	inPods := tcxNs(space, "idle")
	onHost := tcx("e2e-idle", "")
	onHost.Spec.InterfaceSelector = discovered("e2eidle")
	idle := func(ctx context.Context, t *testing.T, o v1alpha1.UserObject, is v1alpha1.BpfProgramConditionType, reason string) {
		t.Helper()
		await(ctx, t, kindOf(o)+" "+o.GetName()+" has nothing to attach to", func(ctx context.Context) (bool, string) {
			c, err := conditionOf(ctx, o)
			if err != nil || o.GetStatus().Nodes == nil {
				return false, fmt.Sprint(err)
			}
			counts := *o.GetStatus().Nodes
			return c.Type == string(v1alpha1.ProgramReconcileSuccess) && strings.HasPrefix(c.Message, "Attached on 0 of ") &&
				strings.Contains(c.Message, "nothing to attach to on ") && strings.Contains(c.Message, "("+reason+")") &&
				counts == v1alpha1.NodeCounts{Selected: counts.Selected, Idle: counts.Selected}, fmt.Sprintf("%s: %s, %+v", c.Type, c.Message, counts)
		})
		programs, err := programsOf(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range programs {
			if c := p.GetStatus().Conditions[0]; c.Type != string(is) || p.GetStatus().ProgramID == 0 {
				t.Errorf("%s, program %d, says %s: %s", p.GetName(), p.GetStatus().ProgramID, c.Type, c.Message)
			}
		}
	}
	feature(t,
		step{"no interface", func(ctx context.Context, s *testing.T) {
			create(ctx, t, onHost)
			idle(ctx, s, onHost, v1alpha1.BpfProgCondNoInterfacesOnNode, "no interface matches")
		}},
		step{"no pod", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, inPods)
			idle(ctx, s, inPods, v1alpha1.BpfProgCondNoContainersOnNode, "no container matches")
		}},
		step{"a pod comes", func(ctx context.Context, s *testing.T) {
			pod := selectedPod(space, "web", "target")
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
			awaitLinks(ctx, s, inPods, podInterface+" ingress in pod "+space+"/web")
			await(ctx, s, "it is attached on one node", func(ctx context.Context) (bool, string) {
				c, err := conditionOf(ctx, inPods)
				counts := inPods.GetStatus().Nodes
				return err == nil && counts != nil && counts.Attached == 1 && counts.Idle == counts.Selected-1 &&
					strings.HasPrefix(c.Message, "Attached on 1 of "), fmt.Sprintf("%s: %s, %+v, %v", c.Type, c.Message, counts, err)
			})
		}},
	)
}

const selectedSpace = "e2e-selected"

// selectedPod returns a pod that calls the probed function in each container, and has the
// selected label.
func selectedPod(namespace, name string, containers ...string) *corev1.Pod {
	pod := uprobeTarget()
	pod.Name, pod.Namespace = name, namespace
	container := pod.Spec.Containers[0]
	pod.Spec.Containers = nil
	for _, name := range containers {
		container.Name = name
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

func inContainer(path string) string {
	return userFunction + " in " + userTarget + " of container " + selectedSpace + "/" + path
}

// TestContainers starts, restarts, ends, and deletes pods and containers. A uprobe is
// attached in each selected container, and TCX once in each pod's network.
func TestContainers(t *testing.T) {
	requireType(t, "TCX")
	requireType(t, node.NamespacedUprobe)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: selectedSpace}
	}
	all, second := uprobeNsInfo("uprobe_counter"), uprobeNsInfo("uprobe_counter")
	second.Containers.ContainerNames = &[]string{"second"}
	var (
		inNetworks   = tcxNs(selectedSpace, "networks")
		inContainers = &v1alpha1.UprobeNsProgram{ObjectMeta: meta("containers"), Spec: v1alpha1.UprobeNsProgramSpec{UprobeNsProgramInfo: all, BpfAppCommon: of("go-uprobe-counter")}}
		byName       = &v1alpha1.UprobeNsProgram{ObjectMeta: meta("by-name"), Spec: v1alpha1.UprobeNsProgramSpec{UprobeNsProgramInfo: second, BpfAppCommon: of("go-uprobe-counter")}}
	)
	inNetworks.Spec.InterfaceSelector = on("lo")
	two := selectedPod(selectedSpace, "two", "first", "second")
	onHost := selectedPod(selectedSpace, "on-host", "target")
	onHost.Spec.HostNetwork = true
	later := selectedPod(selectedSpace, "later", "target")
	later.Labels = nil
	elsewhere := selectedPod("e2e-unselected", "elsewhere", "second")
	once := selectedPod(selectedSpace, "once", "target")
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	once.Spec.Containers[0].Args = append(once.Spec.Containers[0].Args, "--calls=10")

	networks := []string{"lo ingress in pod " + selectedSpace + "/two"}
	containers := []string{inContainer("on-host/target"), inContainer("two/first"), inContainer("two/second")}
	var networkLinks, containerLinks map[string][]uint32
	feature(t,
		step{"before there are pods", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, selectedSpace)
			namespace(ctx, t, elsewhere.Namespace)
			for _, o := range []v1alpha1.UserObject{inNetworks, inContainers, byName} {
				create(ctx, t, o)
				awaitSuccess(ctx, s, o)
				awaitLinks(ctx, s, o)
			}
		}},
		step{"those of the label and the namespace that run", func(ctx context.Context, s *testing.T) {
			for _, pod := range []*corev1.Pod{two, onHost, later, elsewhere, once} {
				create(ctx, t, pod)
			}
			for _, pod := range []*corev1.Pod{two, onHost, later, elsewhere} {
				awaitReady(ctx, s, pod)
			}
			await(ctx, s, "pod once completes", func(ctx context.Context) (bool, string) {
				err := under.Get(ctx, client.ObjectKeyFromObject(once), once)
				return once.Status.Phase == corev1.PodSucceeded, fmt.Sprint(once.Status.Phase, err)
			})
			networkLinks = awaitLinks(ctx, s, inNetworks, networks...)
			containerLinks = awaitLinks(ctx, s, inContainers, containers...)
			awaitLinks(ctx, s, byName, inContainer("two/second"))
			// A namespace has no rights on the interfaces of the node, which a pod with its network shares.
			awaitFailure(ctx, s, inNetworks, selectedSpace+"/on-host", "hostNetwork")
		}},
		step{"containers start again", func(ctx context.Context, s *testing.T) {
			killAll(ctx, s, "go-target")
			var now map[string][]uint32
			await(ctx, s, "every container has another link", func(ctx context.Context) (bool, string) {
				var err error
				now, err = linksOf(ctx, inContainers)
				ok := err == nil && slices.Equal(slices.Sorted(maps.Keys(now)), containers)
				for point, link := range containerLinks {
					ok = ok && !slices.Equal(now[point], link)
				}
				return ok, fmt.Sprintf("%v, before %v, %v", now, containerLinks, err)
			})
			// A pod's network outlives its containers.
			checkKept(s, networkLinks, awaitLinks(ctx, s, inNetworks, networks...))
			awaitLinks(ctx, s, byName, inContainer("two/second"))
		}},
		step{"a pod gets the label", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, later, func(pod *corev1.Pod) { pod.Labels["app"] = "target" })
			awaitLinks(ctx, s, inContainers, append([]string{inContainer("later/target")}, containers...)...)
			awaitLinks(ctx, s, inNetworks, "lo ingress in pod "+selectedSpace+"/later", networks[0])
		}},
		step{"and loses it", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, later, func(pod *corev1.Pod) { delete(pod.Labels, "app") })
			awaitLinks(ctx, s, inContainers, containers...)
			awaitLinks(ctx, s, inNetworks, networks...)
		}},
		step{"pods go", func(ctx context.Context, s *testing.T) {
			for _, pod := range []*corev1.Pod{two, onHost} {
				must.Succeed(s, remove(ctx, pod))
			}
			for _, o := range []v1alpha1.UserObject{inNetworks, inContainers, byName} {
				awaitLinks(ctx, s, o)
				awaitSuccess(ctx, s, o)
			}
		}},
	)
}

// TestStaticPod attaches in a pod that the kubelet runs from a file. The pod's mirror in
// the API server has a UID that its containers don't have.
func TestStaticPod(t *testing.T) {
	requireType(t, "TCX")
	requireType(t, node.NamespacedUprobe)
	const space = "e2e-static"
	on := under.nodes()[0]
	dir := staticPodPath(t, on)
	meta := metav1.ObjectMeta{Name: "static", Namespace: space}
	network := tcxNsInfo()
	network.InterfaceSelector.Interfaces = &[]string{"lo"}
	inNetworks := &v1alpha1.TcxNsProgram{ObjectMeta: meta, Spec: v1alpha1.TcxNsProgramSpec{TcxNsProgramInfo: network, BpfAppCommon: of("go-tcx-counter")}}
	inContainers := &v1alpha1.UprobeNsProgram{ObjectMeta: meta, Spec: v1alpha1.UprobeNsProgramSpec{UprobeNsProgramInfo: uprobeNsInfo("uprobe_counter"), BpfAppCommon: of("go-uprobe-counter")}}
	static := selectedPod(space, "static", "target")
	static.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	name := static.Name + "-" + on // the kubelet appends the node's name
	feature(t,
		step{"it starts", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, inNetworks)
			create(ctx, t, inContainers)
			writeOnNode(ctx, t, on, space, filepath.Join(dir, "bpfman-e2e.json"), static)
			awaitLinks(ctx, s, inNetworks, "lo ingress in pod "+space+"/"+name)
			awaitLinks(ctx, s, inContainers, userFunction+" in "+userTarget+" of container "+space+"/"+name+"/target")
			awaitSuccess(ctx, s, inNetworks)
			awaitSuccess(ctx, s, inContainers)
		}},
		step{"it ends", func(ctx context.Context, s *testing.T) {
			removeOnNode(ctx, s, on, filepath.Join(dir, "bpfman-e2e.json"))
			awaitLinks(ctx, s, inNetworks)
			awaitLinks(ctx, s, inContainers)
		}},
	)
}

// staticPodPath returns the directory of the files with the node's static pods. It skips the
// test if the kubelet has none.
func staticPodPath(t *testing.T, nodeName string) string {
	t.Helper()
	text, err := under.clientset.CoreV1().RESTClient().Get().Resource("nodes").Name(nodeName).SubResource("proxy").Suffix("configz").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("get the configuration of the kubelet on %s: %v", nodeName, err)
	}
	var config struct {
		Kubelet struct{ StaticPodPath string } `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatalf("decode the configuration of the kubelet on %s: %v", nodeName, err)
	}
	if config.Kubelet.StaticPodPath == "" {
		t.Skip("the kubelet has no directory for static pods")
	}
	return config.Kubelet.StaticPodPath
}

// writeOnNode writes the object to a file of the node, and removes the file when the test ends.
func writeOnNode(ctx context.Context, t *testing.T, nodeName, space, file string, object any) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	writer := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "writer", Namespace: space},
		Spec: corev1.PodSpec{
			NodeName:      nodeName,
			RestartPolicy: corev1.RestartPolicyNever,
			Volumes:       []corev1.Volume{{Name: "directory", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(file)}}}},
			Containers: []corev1.Container{{
				Name: "writer", Image: busybox, Env: []corev1.EnvVar{{Name: "TEXT", Value: string(text)}},
				Command:      []string{"sh", "-c", `echo "$TEXT" > /directory/.new && mv /directory/.new "/directory/` + filepath.Base(file) + `"`},
				VolumeMounts: []corev1.VolumeMount{{Name: "directory", MountPath: "/directory"}},
			}},
		},
	}
	t.Cleanup(func() { removeOnNode(context.WithoutCancel(ctx), t, nodeName, file) })
	create(ctx, t, writer)
	await(ctx, t, "the file is written", func(ctx context.Context) (bool, string) {
		err := under.Get(ctx, client.ObjectKeyFromObject(writer), writer)
		return writer.Status.Phase == corev1.PodSucceeded, fmt.Sprint(writer.Status, err)
	})
}

// removeOnNode removes a file of the node, if it exists.
func removeOnNode(ctx context.Context, t *testing.T, nodeName, file string) {
	t.Helper()
	if _, err := ask[any](ctx, nodeName, "remove", "kubelet", file); err != nil && !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// awaitLinks waits until the object is attached at exactly these points, on any nodes, and
// returns the links' ids.
func awaitLinks(ctx context.Context, t *testing.T, o v1alpha1.UserObject, points ...string) map[string][]uint32 {
	t.Helper()
	slices.Sort(points)
	var links map[string][]uint32
	await(ctx, t, fmt.Sprintf("%s is attached at %q", o.GetName(), points), func(ctx context.Context) (bool, string) {
		var err error
		links, err = linksOf(ctx, o)
		return err == nil && slices.Equal(slices.Sorted(maps.Keys(links)), points), fmt.Sprint(links, err)
	})
	return links
}

// linksOf returns the ids of an object's links by attach point, over all nodes.
func linksOf(ctx context.Context, o v1alpha1.UserObject) (map[string][]uint32, error) {
	programs, err := programsOf(ctx, o)
	links := map[string][]uint32{}
	for _, p := range programs {
		for _, l := range p.GetStatus().Links {
			if attached(l) {
				links[l.AttachPoint] = append(links[l.AttachPoint], l.LinkID)
			}
		}
	}
	for _, ids := range links {
		slices.Sort(ids)
	}
	return links, err
}

// checkKept fails the test unless everything that was attached still is, with the same
// links.
func checkKept(t *testing.T, before, now map[string][]uint32) {
	t.Helper()
	for point, ids := range before {
		if !slices.Equal(now[point], ids) {
			t.Errorf("%s is attached anew: link %d was %d", point, now[point], ids)
		}
	}
}
