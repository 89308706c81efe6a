// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Upstream's fault 5: reports about members of a namespaced application were created in the
// namespace of the event's object, such as a pod, or a node, which has none.
func TestUpstreamFault05MembersAreInTheirApplicationsNamespace(t *testing.T) {
	n := start(t)
	for _, namespace := range []string{"fault05-own", "fault05-other"} {
		n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	app := &v1alpha1.BpfNsApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "fault05-own"}}
	n.fill(&app.Spec.BpfAppCommon)
	info := &v1alpha1.TcxNsProgramInfo{Direction: "ingress", Containers: &v1alpha1.ContainerNsSelector{}}
	info.BpfFunctionName, info.InterfaceSelector.Interfaces = "t", &[]string{"eth0"}
	app.Spec.Programs = []v1alpha1.BpfNsApplicationProgram{{Type: v1alpha1.ProgTypeTCX, TCX: info}}
	n.create(app)
	n.pod("fault05-other", "pod", nil, "a") // process 1
	n.pod("fault05-own", "pod", nil, "a")   // process 2
	n.address("10.0.0.8")
	n.attached(app, v1alpha1.BpfProgCondLoaded, "eth0@2")
	if objects := n.programs(); len(objects) != 1 || objects[0].GetNamespace() != "fault05-own" {
		t.Errorf("%v", objects)
	}
}

// Upstream's fault 15: after an application lost a member, each agent unloaded programs with the
// ids in reports of other nodes.
func TestUpstreamFault15EachNodeUnloadsItsOwn(t *testing.T) {
	n := start(t)
	other := startNamed(t, n.name+"-other", map[string]string{"test": n.name})
	first := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	n.change(first, func() { first.Labels["first"] = "yes" })
	// The first program of one node shifts its ids, so that the other node also has programs with
	// these ids.
	n.create(n.tracepoint("everywhere", "e", "e/e"))
	only := n.tracepoint("only-here", "o", "o/o")
	only.Spec.NodeSelector.MatchLabels["first"] = "yes"
	n.create(only)
	n.holds("TracepointProgram/everywhere e e/e", "TracepointProgram/only-here o o/o")
	other.holds("TracepointProgram/everywhere e e/e")
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
	n.fill(&app.Spec.BpfAppCommon)
	for _, f := range []string{"f", "g"} {
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type:       v1alpha1.ProgTypeTracepoint,
			Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: f}, Names: []string{f + "/x"}},
		})
	}
	n.create(app)
	both := func(want ...string) {
		want = append(want, "TracepointProgram/everywhere e e/e")
		other.holds(want...)
		n.holds(append(want, "TracepointProgram/only-here o o/o")...)
	}
	both("BpfApplication/app f f/x", "BpfApplication/app g g/x")
	n.change(app, func() { app.Spec.Programs = app.Spec.Programs[:1] })
	both("BpfApplication/app f f/x")
	n.delete(app)
	both()
}

// Upstream's fault 19: one pod that the runtime doesn't know, because it is pending or has ended,
// blocked all containers of a selector.
func TestUpstreamFault19PodsThatDoNotRunHoldNobodyUp(t *testing.T) {
	n := start(t)
	n.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fault19"}})
	n.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fault19", Name: "a-pending"},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "a", Image: "x"}}},
	})
	done := n.pod("fault19", "b-done", nil, "a") // process 1
	n.run(done, "a", "")
	o := n.uprobe("fault19", &v1alpha1.ContainerSelector{Namespace: "fault19"})
	n.create(o)
	n.attached(o, v1alpha1.BpfProgCondNoContainersOnNode)
	n.pod("fault19", "c-runs", nil, "a") // process 2
	n.attached(o, v1alpha1.BpfProgCondLoaded, "@2")
}

// An application with 300 members needs one Load. Each member has its report. Other objects are
// processed in the meantime.
func TestApplicationOf300Members(t *testing.T) {
	t.Parallel()
	n := start(t)
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	n.fill(&app.Spec.BpfAppCommon)
	for i := range 300 {
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{
			Type:       v1alpha1.ProgTypeTracepoint,
			Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: fmt.Sprint("f", i)}, Names: []string{"a/x"}},
		})
	}
	n.create(app)
	beside := n.tracepoint("beside", "g", "b/y")
	n.create(beside)
	n.says("beside", v1alpha1.BpfProgCondLoaded, "")
	n.eventually("all members", func() error {
		if objects, held := n.programs(), n.daemon.Programs(); len(held) != 301 || len(objects) != 301 {
			return fmt.Errorf("%d programs, %d objects", len(held), len(objects))
		}
		return n.reported(n.daemon.Programs())
	})
	loads := slices.DeleteFunc(n.daemon.Calls(), func(call string) bool { return call != "Load" })
	if len(loads) != 2 {
		t.Errorf("%d Loads", len(loads))
	}
	n.delete(app)
	n.holds("TracepointProgram/beside g b/y")
}
