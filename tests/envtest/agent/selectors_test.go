// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// place names the place of a link, from the request to the daemon: "eth0" on the host, "eth0@7"
// in the network namespace of process 7, "@7" for a uprobe in the container of process 7, and
// "host" for a uprobe outside of containers.
func place(link *gobpfman.AttachInfo) string {
	if u := link.GetUprobeAttachInfo(); u != nil {
		if u.ContainerPid == nil {
			return "host"
		}
		return fmt.Sprint("@", u.GetContainerPid())
	}
	info := link.GetTcxAttachInfo()
	if info.Netns == nil {
		return info.GetIface()
	}
	pid := strings.TrimSuffix(strings.TrimPrefix(info.GetNetns(), "/host/proc/"), "/ns/net")
	return info.GetIface() + "@" + pid
}

// attached waits until an owner's only program is attached to exactly these places, and the
// report says so. It returns the program's id.
func (n *node) attached(owner v1alpha1.UserObject, condition v1alpha1.BpfProgramConditionType, want ...string) (id uint32) {
	n.t.Helper()
	slices.Sort(want)
	n.eventually(owner.GetName()+" to be attached", func() error {
		var got []string
		id = 0
		for _, p := range n.daemon.Programs() {
			if p.Metadata[v1alpha1.MetadataUUID] != string(owner.GetUID()) {
				continue
			}
			if id != 0 {
				return errors.New("two programs")
			}
			id = p.ID
			for _, l := range p.Links {
				got = append(got, place(l))
			}
		}
		slices.Sort(got)
		if id == 0 || !slices.Equal(got, want) {
			return fmt.Errorf("program %d is attached to %q, not %q", id, got, want)
		}
		for _, o := range n.programs() {
			if ref := metav1.GetControllerOf(o); ref == nil || ref.UID != owner.GetUID() {
				continue
			}
			s := o.GetStatus()
			links := slices.DeleteFunc(slices.Clone(s.Links), func(l v1alpha1.BpfProgramLink) bool { return l.State != v1alpha1.LinkAttached })
			if s.ProgramID != id || len(links) != len(want) || len(s.Conditions) == 0 || s.Conditions[0].Type != string(condition) {
				return fmt.Errorf("its object says %+v", s)
			}
			return nil
		}
		return errors.New("it has no object")
	})
	return id
}

func (n *node) tcx(name string, containers *v1alpha1.ContainerSelector, interfaces ...string) *v1alpha1.TcxProgram {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Containers = "t", "ingress", containers
	o.Spec.InterfaceSelector.Interfaces = &interfaces
	n.fill(&o.Spec.BpfAppCommon)
	return o
}

func (n *node) uprobe(name string, containers *v1alpha1.ContainerSelector) *v1alpha1.UprobeProgram {
	o := &v1alpha1.UprobeProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.FunctionName, o.Spec.Target, o.Spec.Containers = "u", "malloc", "libc", containers
	n.fill(&o.Spec.BpfAppCommon)
	return o
}

// links changes the host's interfaces.
func (n *node) links(interfaces map[string]program.Interface) {
	n.t.Helper()
	n.mu.Lock()
	n.interfaces = maps.Clone(interfaces)
	n.mu.Unlock()
}

// Several interfaces. One appears later, and is recreated. The others aren't affected. An empty
// list attaches nowhere.
func TestInterfaces(t *testing.T) {
	n := start(t)
	eth := map[string]program.Interface{"eth0": {Index: 2}, "eth1": {Index: 3}}
	n.links(eth)
	n.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if attach, is := request.(*gobpfman.AttachRequest); is && !done {
			if _, there := n.interfaces[attach.GetAttach().GetTcxAttachInfo().GetIface()]; !there {
				return status.Error(codes.Aborted, "Invalid Interface")
			}
		}
		return nil
	})
	o := n.tcx("interfaces", nil, "eth0", "eth2", "eth1", "eth0")
	n.create(o)
	id := n.attached(o, v1alpha1.BpfProgCondNotLoaded, "eth0", "eth1")
	n.says("interfaces", v1alpha1.BpfProgCondNotLoaded, "attach to eth2 ingress: the node has no interface eth2")

	eth["eth2"] = program.Interface{Index: 9}
	n.links(eth)
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0", "eth1", "eth2")
	n.daemon.Calls()

	// It is deleted and recreated. The link disappears with it, and is created again.
	eth["eth2"] = program.Interface{Index: 10}
	n.links(eth)
	n.address("10.0.0.9") // like a change of interfaces, a change of the node triggers a check
	var calls []string
	n.eventually("eth2 alone to be attached anew", func() error {
		calls = append(calls, n.daemon.Calls()...)
		if slices.Sort(calls); !slices.Equal(calls, []string{"Attach", "Detach"}) {
			return fmt.Errorf("%q", calls)
		}
		return nil
	})
	if again := n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0", "eth1", "eth2"); again != id {
		t.Errorf("program %d became %d", id, again)
	}

	n.change(o, func() { o.Spec.InterfaceSelector.Interfaces = &[]string{} })
	if again := n.attached(o, v1alpha1.BpfProgCondNoInterfacesOnNode); again != id {
		t.Errorf("program %d became %d", id, again)
	}
}

// discovered selects all interfaces except those that the schema excludes by default.
var discovered = v1alpha1.InterfaceSelector{InterfacesDiscoveryConfig: &v1alpha1.InterfaceDiscovery{InterfaceAutoDiscovery: new(true)}}

// The program is attached to interfaces when they appear, and detached when they disappear, with
// one call each. An interface that disappears before it is attached isn't a failure.
func TestDiscoveredInterfaces(t *testing.T) {
	n := start(t)
	there := map[string]program.Interface{"lo": {Index: 1}, "eth0": {Index: 2}, "docker0": {Index: 3}}
	look := func(address string) {
		t.Helper()
		n.links(there)
		n.address(address) // like a change of interfaces, a change of the node triggers a check
	}
	n.links(there)
	n.daemon.SetFault(func(_ string, request proto.Message, done bool) error {
		attach, is := request.(*gobpfman.AttachRequest)
		if !is || done || attach.GetAttach().GetTcxAttachInfo().GetIface() != "brief" {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.interfaces = maps.Clone(n.interfaces)
		delete(n.interfaces, "brief")
		return status.Error(codes.Aborted, "Invalid Interface")
	})
	o := n.tcx("discovered", nil)
	o.Spec.InterfaceSelector = discovered
	n.create(o)
	if excluded := o.Spec.InterfaceSelector.InterfacesDiscoveryConfig.ExcludeInterfaces; !slices.Equal(excluded, []string{"lo"}) {
		t.Errorf("excluded by default: %q", excluded)
	}
	id := n.attached(o, v1alpha1.BpfProgCondLoaded, "docker0", "eth0")
	n.daemon.Calls()

	there["veth1"] = program.Interface{Index: 4}
	look("10.0.0.1")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "docker0", "eth0", "veth1")
	delete(there, "veth1")
	look("10.0.0.2")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "docker0", "eth0")
	if calls := n.daemon.Calls(); !slices.Equal(calls, []string{"Attach", "Detach"}) {
		t.Errorf("calls for an interface that came and went: %q", calls)
	}

	n.writesOf()
	there["brief"] = program.Interface{Index: 5}
	look("10.0.0.3")
	n.eventually("the interface that is gone to be tried", func() error {
		if calls := n.daemon.Calls(); !slices.Contains(calls, "Attach") {
			return fmt.Errorf("%q", calls)
		}
		return nil
	})
	delete(there, "brief")
	there["veth2"] = program.Interface{Index: 6}
	look("10.0.0.4")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "docker0", "eth0", "veth2")
	reports := slices.DeleteFunc(n.writesOf(), func(w string) bool { return !strings.Contains(w, "/bpfprograms/") })
	if len(reports) != 1 {
		t.Errorf("reported for one interface that stays: %q", reports)
	}

	// Loaded without being attached, and attached again.
	n.change(o, func() { o.Spec.Attach = new(false) })
	n.attached(o, v1alpha1.BpfProgCondLoaded)
	n.change(o, func() { o.Spec.Attach = nil })
	n.attached(o, v1alpha1.BpfProgCondLoaded, "docker0", "eth0", "veth2")
	n.change(o, func() {
		o.Spec.InterfaceSelector.InterfacesDiscoveryConfig.AllowedInterfaces = []string{"/^veth/", "eth0"}
	})
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0", "veth2")
	n.change(o, func() { o.Spec.InterfaceSelector.InterfacesDiscoveryConfig.AllowedInterfaces = []string{"/[/"} })
	n.says("discovered", v1alpha1.BpfProgCondNotLoaded, "pattern of allowed interfaces /[/")
	if again := n.attached(o, v1alpha1.BpfProgCondNotLoaded, "eth0", "veth2"); again != id {
		t.Errorf("program %d became %d", id, again)
	}
}

// Interfaces in pods, which appear and disappear without a change in the API.
func TestDiscoveredInterfacesOfPods(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "discovery"}})
	inside := func(names ...string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.podInterfaces = map[string][]string{"web": names}
	}
	inside("lo", "eth0")
	o := n.tcx("in-pods", &v1alpha1.ContainerSelector{Namespace: "discovery"})
	o.Spec.InterfaceSelector = discovered
	n.create(o)
	n.attached(o, v1alpha1.BpfProgCondNoContainersOnNode)
	n.pod("discovery", "web", nil, "a") // process 1
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0@1")
	inside("lo", "eth0", "net1")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0@1", "net1@1")
	inside("lo", "net1")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "net1@1")
	inside("lo")
	n.attached(o, v1alpha1.BpfProgCondNoInterfacesOnNode)
}

// The primary interface is the one with the first of the node's addresses that an interface has,
// for IPv4 and IPv6. If the address moves, so does the primary interface.
func TestPrimaryInterface(t *testing.T) {
	n := start(t)
	n.links(map[string]program.Interface{"eth0": {Index: 2, Addresses: addresses("10.0.0.7")}, "eth1": {Index: 3, Addresses: addresses("fd00::7")}})
	o := n.tcx("primary", nil)
	o.Spec.InterfaceSelector = v1alpha1.InterfaceSelector{PrimaryNodeInterface: new(true)}
	n.create(o)
	n.says("primary", v1alpha1.BpfProgCondNotLoaded, "no interface of node "+n.name+" has one of its internal addresses []")
	n.address("fd00::7")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth1")
	n.address("10.0.0.7", "fd00::7")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0")
	n.address("10.9.9.9", "fd00::7")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth1")
}

// The life of pods. Each network is attached once, and each container of a uprobe once. What
// isn't running, isn't selected, or was deleted has no link. After a restart, a container is
// attached again.
func TestPods(t *testing.T) {
	n := start(t)
	n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pods-one"}})
	n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pods-two"}})
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	network := n.tcx("network", &v1alpha1.ContainerSelector{Pods: web}, "eth0")
	inOne := n.uprobe("in-one", &v1alpha1.ContainerSelector{Pods: web, Namespace: "pods-one"})
	byName := n.uprobe("by-name", &v1alpha1.ContainerSelector{Pods: metav1.LabelSelector{}, ContainerNames: &[]string{"b"}})
	host := n.uprobe("host", nil)
	for _, o := range []v1alpha1.UserObject{network, inOne, byName, host} {
		n.create(o)
	}
	n.attached(network, v1alpha1.BpfProgCondNoContainersOnNode)
	n.attached(inOne, v1alpha1.BpfProgCondNoContainersOnNode)
	n.attached(host, v1alpha1.BpfProgCondLoaded, "host")

	labels := map[string]string{"app": "web"}
	first := n.pod("pods-one", "first", labels, "a", "b") // processes 1 and 2
	id := n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@1")
	n.attached(inOne, v1alpha1.BpfProgCondLoaded, "@1", "@2")
	n.attached(byName, v1alpha1.BpfProgCondLoaded, "@2")

	n.pod("pods-two", "first", labels, "a") // process 3, with the same name
	n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@1", "eth0@3")
	n.attached(inOne, v1alpha1.BpfProgCondLoaded, "@1", "@2")

	// A restarted container has a new process. The pod's network stays the same.
	n.run(first, "b", "b-again") // process 4
	n.attached(inOne, v1alpha1.BpfProgCondLoaded, "@1", "@4")
	n.attached(byName, v1alpha1.BpfProgCondLoaded, "@4")
	n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@1", "eth0@3")

	// Pods in the host's network share it, so it is attached once.
	for _, name := range []string{"host-one", "host-two"} { // processes 5 and 6
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pods-two", Name: name, Labels: labels}}
		pod.Spec.HostNetwork = true
		n.podOf(pod, "a")
	}
	n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@1", "eth0@3", "eth0")

	// A pod with another label isn't selected.
	other := n.pod("pods-one", "other", map[string]string{"app": "db"}, "a", "b") // processes 7 and 8
	n.attached(byName, v1alpha1.BpfProgCondLoaded, "@4", "@8")
	n.change(other, func() { other.Labels = labels })
	n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@1", "eth0@3", "eth0", "eth0@7")
	n.change(other, func() { other.Labels = map[string]string{"app": "db"} })
	n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@1", "eth0@3", "eth0")

	// A pod that has ended, or was never running, blocks nothing.
	n.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "pods-one", Name: "pending", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "a", Image: "x"}}},
	})
	n.run(first, "a", "")
	n.attached(inOne, v1alpha1.BpfProgCondLoaded, "@4")
	n.run(first, "b", "")
	n.attached(inOne, v1alpha1.BpfProgCondNoContainersOnNode)
	n.delete(other)
	n.attached(byName, v1alpha1.BpfProgCondNoContainersOnNode)
	if again := n.attached(network, v1alpha1.BpfProgCondLoaded, "eth0@3", "eth0"); again != id {
		t.Errorf("program %d became %d", id, again)
	}
}

// Upstream's fault 17: a namespaced program was also attached to pods with the same name in
// other namespaces.
func TestUpstreamFault17PodsOfOtherNamespacesAreLeftAlone(t *testing.T) {
	n := start(t)
	for _, namespace := range []string{"fault17-own", "fault17-other"} {
		n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	n.pod("fault17-other", "web-0", map[string]string{"app": "web"}, "a") // process 1
	n.pod("fault17-own", "web-0", map[string]string{"app": "web"}, "a")   // process 2
	o := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "fault17-own"}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Containers = "t", "ingress", &v1alpha1.ContainerNsSelector{}
	o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
	n.fill(&o.Spec.BpfAppCommon)
	n.create(o)
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0@2")
}

// A pod that is deleted by force keeps the programs of cluster-scoped objects until its containers end, about which there
// is no event.
func TestPodThatOutlivesItsObject(t *testing.T) {
	n := start(t)
	n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "forced"}})
	own := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "forced"}}
	own.Spec.BpfFunctionName, own.Spec.Direction, own.Spec.Containers = "t", "ingress", &v1alpha1.ContainerNsSelector{}
	own.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
	n.fill(&own.Spec.BpfAppCommon)
	n.create(own)
	cluster := n.tcx("forced", &v1alpha1.ContainerSelector{Namespace: "forced"}, "eth0")
	n.create(cluster)
	pod := n.pod("forced", "web", nil, "a")
	n.attached(cluster, v1alpha1.BpfProgCondLoaded, "eth0@1")
	n.attached(own, v1alpha1.BpfProgCondLoaded, "eth0@1")

	n.mu.Lock()
	n.outlived = map[string]bool{string(pod.UID): true}
	n.mu.Unlock()
	n.delete(pod)
	n.attached(own, v1alpha1.BpfProgCondNoContainersOnNode)
	n.attached(cluster, v1alpha1.BpfProgCondLoaded, "eth0@1")

	n.mu.Lock()
	n.containers = nil
	n.mu.Unlock()
	n.attached(cluster, v1alpha1.BpfProgCondNoContainersOnNode)
}

// If the runtime doesn't respond, existing links stay.
func TestRuntimeThatDoesNotAnswer(t *testing.T) {
	n := start(t)
	n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "runtime"}})
	o := n.tcx("runtime", &v1alpha1.ContainerSelector{Namespace: "runtime"}, "eth0")
	n.create(o)
	pod := n.pod("runtime", "web", nil, "a")
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0@1")
	n.mu.Lock()
	n.containersErr = errors.New("list containers: no answer")
	n.mu.Unlock()
	n.change(pod, func() { pod.Labels = map[string]string{"changed": "yes"} })
	n.says("runtime", v1alpha1.BpfProgCondNotLoaded, "list containers: no answer")
	n.attached(o, v1alpha1.BpfProgCondNotLoaded, "eth0@1")
	n.mu.Lock()
	n.containersErr = nil
	n.mu.Unlock()
	n.attached(o, v1alpha1.BpfProgCondLoaded, "eth0@1")
}
