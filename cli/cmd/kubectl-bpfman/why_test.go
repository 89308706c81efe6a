// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

const ownerUID types.UID = "1f2e"

func counter() *v1alpha1.TcxProgram {
	eth := []string{"eth0", "eth7"}
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter", UID: ownerUID, Generation: 2}}
	o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Priority = "tcx_stats", "ingress", 1000
	o.Spec.InterfaceSelector.Interfaces = &eth
	o.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "registry.example.com/team/counter:v1"}
	o.Spec.NodeSelector.MatchLabels = map[string]string{"zone": "a"}
	o.Status.ObservedGeneration = 2
	o.Status.Conditions = []metav1.Condition{v1alpha1.ProgramReconcileError.Condition("Failed on 2 nodes, attached on 1 of 3 selected nodes: …")}
	o.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(-50 * time.Hour))
	return o
}

// report returns a report about the object on a node.
func report(o v1alpha1.UserObject, kind, node, function string, id uint32, condition metav1.Condition, links ...v1alpha1.BpfProgramLink) client.Object {
	controller := true
	meta := metav1.ObjectMeta{
		Name: o.GetName() + "-" + node + "-" + strings.ReplaceAll(function, "_", "-"), Namespace: o.GetNamespace(),
		Labels:          map[string]string{v1alpha1.LabelOwnedByProgram: o.GetName(), v1alpha1.LabelOwnerKind: kind},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "bpfman.io/v1alpha1", Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &controller}},
	}
	spec := v1alpha1.BpfProgramSpec{Type: "tcx", Maps: map[string]string{"tcx_stats_map": "/run/bpfman/fs/maps/" + node + "/tcx_stats_map"}}
	status := v1alpha1.BpfProgramStatus{
		Node: node, OwnerGeneration: o.GetGeneration(), ProgramID: id, Function: function, Links: links,
		Conditions: []metav1.Condition{condition}, MapIDs: []uint32{id + 1},
	}
	if o.GetNamespace() != "" {
		return &v1alpha1.BpfNsProgram{ObjectMeta: meta, Spec: spec, Status: status}
	}
	return &v1alpha1.BpfProgram{ObjectMeta: meta, Spec: spec, Status: status}
}

func node(name string, labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
}

func agent(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "bpfman-daemon-" + node, Labels: map[string]string{"name": "bpfman-daemon"}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func attachedTo(points ...string) []v1alpha1.BpfProgramLink {
	var links []v1alpha1.BpfProgramLink
	for _, p := range points {
		links = append(links, v1alpha1.BpfProgramLink{AttachPoint: p, State: v1alpha1.LinkAttached})
	}
	return links
}

// everything returns a cluster with every possible problem.
func everything() []client.Object {
	o := counter()
	zone := map[string]string{"zone": "a"}
	missing := v1alpha1.BpfProgramLink{AttachPoint: "eth7 ingress", State: v1alpha1.LinkNotAttached, Problem: string(problem.NoSuchInterface), Error: "attach to eth7 ingress: the node has no interface eth7; its primary interface is ens5"}
	broken := agent("reported-nothing")
	broken.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "bpfman-agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	outdated := report(o, "TcxProgram", "outdated", "tcx_stats", 7, v1alpha1.BpfProgCondLoaded.Condition(), attachedTo("eth0 ingress")...)
	outdated.(*v1alpha1.BpfProgram).Status.OwnerGeneration = 1 //nolint:errcheck // it was created above
	former := counter()
	former.UID = "of another"
	stranger := report(former, "TcxProgram", "stranger", "tcx_stats", 8, v1alpha1.BpfProgCondNotLoaded.Condition("of a former object"))
	verifier := "load: LoadError { io_error: Os { code: 13, message: \"Permission denied\" }, verifier_log: 0: R1=ctx()\n1: (79) r2 = *(u64 *)(r1 +8)\n\x1b[2Jinvalid bpf_context access\nstack depth 0\n })"
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "bpfman-config", Annotations: map[string]string{"bpfman.io/problems": "ComponentFails: container bpfman with image b fails: exit code 1: no luck (rejected)\nanother"}}}
	return []client.Object{
		o, config, stranger, outdated,
		report(o, "TcxProgram", "fine-1", "tcx_stats", 5, v1alpha1.BpfProgCondLoaded.Condition(), attachedTo("eth0 ingress", "eth7 ingress")...),
		report(o, "TcxProgram", "fine-2", "tcx_stats", 6, v1alpha1.BpfProgCondLoaded.Condition(), attachedTo("eth0 ingress", "eth7 ingress")...),
		report(o, "TcxProgram", "half", "tcx_stats", 9, v1alpha1.BpfProgCondNotLoaded.Condition(missing.Error), append(attachedTo("eth0 ingress"), missing)...),
		about(problem.VerifierRefused, report(o, "TcxProgram", "rejected", "tcx_stats", 0, v1alpha1.BpfProgCondNotLoaded.Condition(verifier))),
		report(o, "TcxProgram", "relabelled", "tcx_stats", 4, v1alpha1.BpfProgCondLoaded.Condition(), attachedTo("eth0 ingress")...),
		node("fine-1", zone), node("fine-2", zone), node("half", zone), node("rejected", zone), node("reported-nothing", zone), node("outdated", zone),
		node("no-agent", map[string]string{"zone": "a", corev1.LabelOSStable: "linux"}, corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}),
		node("relabelled", map[string]string{"zone": "b"}), node("other-1", map[string]string{"zone": "b"}), node("other-2", map[string]string{"zone": "b"}), node("bare", nil),
		agent("fine-1"), agent("fine-2"), agent("half"), agent("rejected"), agent("outdated"), agent("relabelled"), broken,
		&v1alpha1.BpfNode{ObjectMeta: named("", "fine-1"), Status: v1alpha1.BpfNodeStatus{Daemon: "bpfman v0.6 (Rust)", Conflicts: []v1alpha1.BpfNodeConflict{
			{Type: v1alpha1.BpfNodeEarlierInChain, Message: "program from_netdev (9) runs before TcxProgram counter", Owner: &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "counter"}},
			{Type: v1alpha1.BpfNodeForeignXDP, Message: "of another object", Owner: &v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "counter"}},
		}}},
		mounts("reader", map[string]string{v1alpha1.VolumeAttributeApplication: "counter"}),
		mounts("stranger", map[string]string{v1alpha1.VolumeAttributeProgram: "other"}),
		mounts("namesake", map[string]string{v1alpha1.VolumeAttributeProgram: "counter", v1alpha1.VolumeAttributeKind: "XdpProgram"}),
		&v1alpha1.BpfNode{ObjectMeta: named("", "fine-2"), Status: v1alpha1.BpfNodeStatus{
			StaleMapCount: 1,
			Daemon:        "bpfman (Go)",
			Programs:      []v1alpha1.BpfNodeProgram{{ID: 6, Type: "sched_cls", MapIDs: []uint32{7}}},
			Maps: []v1alpha1.BpfNodeMap{
				{ID: 7, Name: "in_use", Pins: []string{"/var/lib/kubelet/pods/uid-of-reader/volumes/kubernetes.io~csi/maps/mount/in_use"}},
				{ID: 8, Name: "left_behind", Pins: []string{"/var/lib/kubelet/pods/uid-of-reader/volumes/kubernetes.io~csi/maps/mount/left_behind"}},
				{ID: 9, Name: "of_another", Pins: []string{"/var/lib/kubelet/pods/uid-of-stranger/volumes/kubernetes.io~csi/maps/mount/of_another"}},
				{ID: 10, Name: "of_a_namesake", Pins: []string{"/var/lib/kubelet/pods/uid-of-namesake/volumes/kubernetes.io~csi/maps/mount/of_a_namesake"}},
			},
		}},
	}
}

// mounts returns a pod with a volume that has these attributes.
func mounts(name string, attributes map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name, UID: types.UID("uid-of-" + name)}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "maps", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: v1alpha1.CSIDriverName, VolumeAttributes: attributes}},
	}}}}
}

// overview returns objects in all states, and policies.
func overview() []client.Object {
	in := func(o v1alpha1.UserObject, namespace, name string, c metav1.Condition, nodes v1alpha1.NodeCounts) client.Object {
		o.SetNamespace(namespace)
		o.SetName(name)
		o.SetGeneration(1)
		status := o.GetStatus()
		status.ObservedGeneration, status.Nodes, status.Conditions = 1, &nodes, []metav1.Condition{c}
		return o
	}
	success := v1alpha1.ProgramReconcileSuccess.Condition("Attached")
	late := in(&v1alpha1.FentryProgram{}, "", "late", success, v1alpha1.NodeCounts{Selected: 1, Attached: 1})
	late.SetGeneration(2)
	policy := &v1alpha1.BytecodePolicy{ObjectMeta: named("", "signed")}
	policy.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Invalid", Message: "Secret keys/cosign doesn't exist"}}
	staged := &v1alpha1.TcProgram{}
	staged.GetStatus().Rollout = &v1alpha1.RolloutStatus{State: v1alpha1.RolloutProgressing}
	in(staged, "", "staged", v1alpha1.ProgramNotYetLoaded.Condition("Rollout progressing: revision 2, step 1 of 2 on 1 of 3 nodes"), v1alpha1.NodeCounts{Selected: 3, Attached: 1})
	idle := in(&v1alpha1.UprobeNsProgram{}, "acme", "idle", v1alpha1.ProgramReconcileSuccess.Condition("Attached on 0 of 2 selected nodes; nothing to attach to on one (no container matches), two (no container matches)"), v1alpha1.NodeCounts{Selected: 2, Idle: 2})
	idle.(v1alpha1.UserObject).GetStatus().Problem = string(problem.NothingMatches) //nolint:errcheck // it is one
	typo := in(&v1alpha1.TcxNsProgram{}, "acme", "typo", v1alpha1.ProgramReconcileError.Condition("Failed on 1 node: one: attach to eth9 ingress: the node has no interface eth9"), v1alpha1.NodeCounts{Selected: 1, Failed: 1})
	typo.(v1alpha1.UserObject).GetStatus().Problem = string(problem.NoSuchInterface) //nolint:errcheck // it is one
	return append(everything(), late, policy, staged, idle, typo,
		in(&v1alpha1.XdpProgram{}, "", "fine", success, v1alpha1.NodeCounts{Selected: 2, Attached: 2}),
		in(&v1alpha1.XdpProgram{}, "", "counter", success, v1alpha1.NodeCounts{Selected: 2, Attached: 2}),
	)
}

// TestNearestFunction checks that why names the function whose name was misspelled.
func TestNearestFunction(t *testing.T) {
	for message, want := range map[string]string{
		"the bytecode has no function tcx_stat (did you mean tcx_stats?); its functions are pass, tcx_stats, when loading from image x": "set bpffunctionname to tcx_stats, or to another function that the message lists",
		"the bytecode has no function flows; its functions are pass, tcx_stats, when loading from image x":                              "set `bpffunctionname` to a function that the bytecode has: the message lists them",
	} {
		o := counter()
		o.Spec.NodeSelector.MatchLabels = nil
		failed := report(o, "TcxProgram", "one", "tcx_stat", 0, v1alpha1.BpfProgCondNotLoaded.Condition("load: "+message))
		about(problem.NoSuchFunction, failed)
		objects := []client.Object{o, failed}
		if got := executed(t, objects, "why", "counter"); !strings.Contains(got, "To do: "+want+"\n") || strings.Count(got, "To do: "+want) != 2 {
			t.Errorf("%s: %s", message, got)
		}
	}
}

// about has a report name its problem.
func about(reason problem.Reason, report client.Object) client.Object {
	report.(v1alpha1.ProgramObject).GetStatus().Problem = string(reason) //nolint:errcheck // it is one
	return report
}

func namespaced() []client.Object {
	names := []string{"web"}
	o := &v1alpha1.BpfNsApplication{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "probes", UID: ownerUID, Generation: 1}}
	pods := &v1alpha1.ContainerNsSelector{Pods: metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}, ContainerNames: &names}
	o.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "registry.example.com/team/probes:v1"}
	o.Spec.Programs = []v1alpha1.BpfNsApplicationProgram{
		{Type: v1alpha1.ProgTypeUprobe, Uprobe: &v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: "enter"}, FunctionName: "malloc", Target: "libc", Containers: pods}},
		{Type: v1alpha1.ProgTypeUretprobe, Uretprobe: &v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: "leave"}, FunctionName: "malloc", Target: "libc", Containers: pods}},
	}
	o.Status.ObservedGeneration, o.Status.Nodes = 1, &v1alpha1.NodeCounts{Selected: 2, Idle: 2}
	o.Status.Conditions = v1alpha1.Ready.Conditions(v1alpha1.ProgramReconcileSuccess.Condition("Attached on 0 of 2 selected nodes; nothing to attach to on one (no container matches), two (no container matches)"))
	o.Status.Conditions[1].Reason = v1alpha1.NothingMatched
	none := v1alpha1.BpfProgCondNoContainersOnNode.Condition()
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"app": "shop"}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "proxy"}}},
		}
	}
	return []client.Object{
		o, node("one", nil), node("two", nil), agent("one"), agent("two"), pod("a", "one"), pod("b", "one"),
		report(o, "BpfNsApplication", "one", "enter", 11, none), report(o, "BpfNsApplication", "one", "leave", 12, none),
		report(o, "BpfNsApplication", "two", "enter", 11, none), report(o, "BpfNsApplication", "two", "leave", 12, none),
	}
}

// forbidden connects to a cluster where only bpfman's kinds can be read.
func forbidden(objects ...client.Object) cluster.Connect {
	return without([]string{"nodes", "pods", "configmaps"}, objects...)
}

// without connects to a cluster where some kinds can't be read.
func without(resources []string, objects ...client.Object) cluster.Connect {
	allow := func(resource string) error {
		if slices.Contains(resources, resource) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("the user may not"))
		}
		return nil
	}
	reader := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			var err error
			switch list.(type) {
			case *corev1.NodeList:
				err = allow("nodes")
			case *corev1.PodList:
				err = allow("pods")
			}
			return cmp.Or(err, c.List(ctx, list, options...))
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			var err error
			if _, ok := o.(*corev1.ConfigMap); ok {
				err = allow("configmaps")
			}
			return cmp.Or(err, c.Get(ctx, key, o, options...))
		},
	}).Build()
	return func() (*cluster.Cluster, error) { return &cluster.Cluster{Reader: reader, Namespace: "team"}, nil }
}

// Whether bpfman is installed in a namespace without agents is only known to who can read its ConfigMap.
func TestWhyWithoutTheConfigMap(t *testing.T) {
	out, _, err := execute(t, without([]string{"configmaps"}, everything()...), "why", "tcxprogram/counter", "--bpfman-namespace=kube-system")
	if err != nil || !strings.Contains(out, "there is no agent in namespace kube-system") || strings.Contains(out, "no agent runs on the node") {
		t.Errorf("error %v:\n%s", err, out)
	}
}

func TestWhy(t *testing.T) {
	lonely := counter()
	lonely.Spec.NodeSelector.MatchLabels = map[string]string{"zone": "nowhere"}
	lonely.Status = v1alpha1.TcxProgramStatus{}
	for file, c := range map[string]struct {
		connect cluster.Connect
		args    []string
	}{
		"everything.txt":  {clusterOf(everything()...), []string{"tcxprogram/counter"}},
		"overview.txt":    {clusterOf(overview()...), nil},
		"overview.json":   {clusterOf(overview()...), []string{"-o", "json"}},
		"name.txt":        {clusterOf(namespaced()...), []string{"probes"}},
		"nothing.txt":     {clusterOf(), nil},
		"namespaced.txt":  {clusterOf(namespaced()...), []string{"bpfnsapp", "probes"}},
		"namespaced.json": {clusterOf(namespaced()...), []string{"bpfnsapp/probes", "-o", "json"}},
		"forbidden.txt":   {forbidden(everything()...), []string{"tcxprogram/counter", "-o", "wide"}},
		"no-node.txt":     {clusterOf(lonely, node("one", map[string]string{"zone": "a"}), agent("one")), []string{"tcxprogram/counter"}},
		"elsewhere.txt":   {clusterOf(everything()...), []string{"tcxprogram/counter", "--bpfman-namespace=kube-system"}},
	} {
		t.Run(file, func(t *testing.T) {
			out, messages, err := execute(t, c.connect, append([]string{"why"}, c.args...)...)
			if err != nil || messages != "" {
				t.Fatalf("said %q, error %v", messages, err)
			}
			golden.Assert(t, out, "why/"+file)
		})
	}
}

func TestWhyRefuses(t *testing.T) {
	refuses(t, clusterOf(), "why", map[string][]string{
		`get TcxProgram absent: tcxprograms.bpfman.io "absent" not found`:                    {"tcxprog/absent"},
		`, xdpprogram; did you mean tcxprogram?`:                                             {"tcxprogramm/a"},
		`"pod" is not one of the kinds`:                                                      {"pod/a"},
		"no object of bpfman is named tcxprog, neither in the cluster nor in namespace team": {"tcxprog"},
		"specify one as KIND/NAME":                                                           {"tcxprog/"},
	})
}
