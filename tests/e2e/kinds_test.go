// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	readers "github.com/bpfman/bpfman-operator/tests/reader"
)

const (
	kindsSpace = "e2e-kinds"
	// kernelFunction is called when a file is removed. The container runtime does so for
	// every command that runs in a container.
	kernelFunction = "do_unlinkat"
	wakeUp         = "try_to_wake_up"
	killCalls      = "syscalls/sys_enter_kill"
	userFunction   = "main.getCount"
	userTarget     = "/go-target"
	podInterface   = "eth0"
	priority       = 500
)

// kindCase is an object of a user kind, with the maps in which it counts.
type kindCase struct {
	object v1alpha1.UserObject
	maps   []string
	// trials are what the daemon must support.
	trials []string
}

// TestEveryKind follows an object of each user kind from its creation to its deletion. It
// is attached, counts real events, is read by an unprivileged pod, and leaves nothing in
// the API, the daemon, the kernel, and the bpffs. The objects exist at the same time, on
// the same interfaces and functions.
func TestEveryKind(t *testing.T) {
	ctx := t.Context()
	namespace(ctx, t, kindsSpace)
	target := uprobeTarget()
	create(ctx, t, target)
	awaitReady(ctx, t, target)
	cases := append(clusterKinds(), namespacedKinds()...)
	cases = append(cases, applicationKinds()...)
	cases = append(cases, linkedKind())
	t.Run("kind", func(t *testing.T) {
		for _, c := range cases {
			t.Run(kindOf(c.object), func(t *testing.T) {
				t.Parallel()
				c.run(t, target)
			})
		}
	})
}

func (c kindCase) run(t *testing.T, target *corev1.Pod) {
	t.Helper()
	for _, trial := range c.trials {
		requireType(t, trial)
	}
	if len(c.maps) == 0 {
		t.Skip("the kernels support none of its members")
	}
	ctx, kind := t.Context(), kindOf(c.object)
	create(ctx, t, c.object)
	awaitAttached(ctx, t, c.object)
	loaded, err := loadedFor(ctx, c.object.GetUID())
	if err != nil {
		t.Fatal(err)
	}
	pod := reader(kindsSpace, strings.ToLower(kind)+"-reader", c.object.GetName(), strings.Join(c.maps, ","))
	create(ctx, t, pod)
	awaitReady(ctx, t, pod)
	await(ctx, t, "the pod reads "+strings.Join(c.maps, ", "), func(ctx context.Context) (bool, string) {
		log, err := logOf(ctx, pod)
		read := readers.Counts(log)
		missing := slices.ContainsFunc(c.maps, func(name string) bool { _, ok := read[name]; return !ok })
		return err == nil && !missing, fmt.Sprint(read, err)
	})
	awaitGrowth(ctx, t, pod, "", func(ctx context.Context, t *testing.T) {
		t.Helper()
		callKill(ctx, t)
		knock(ctx, t, target)
	})
	saw(kind, func(r *result) { r.counted, r.read = true, true })

	must.Succeed(t, remove(ctx, pod))
	removeProgram(ctx, t, c.object)
	awaitNothingLeft(ctx, t, loaded)
	saw(kind, func(r *result) { r.removed = !t.Failed() })
}

// awaitNothingLeft waits until nothing of the programs is left in kernels and their BPF
// file systems.
func awaitNothingLeft(ctx context.Context, t *testing.T, loaded []node.Program) {
	t.Helper()
	maps := map[string]bool{}
	for _, p := range loaded {
		for _, id := range p.MapIDs {
			maps[fmt.Sprint(id)] = true
		}
	}
	if len(loaded) == 0 {
		t.Error("the daemons held nothing for the object")
	}
	for _, name := range under.nodes() {
		await(ctx, t, "nothing is left on "+name, func(ctx context.Context) (bool, string) {
			left, err := ask[[]string](ctx, name, "leftovers", idsOf(loaded), join(maps))
			return err == nil && len(left) == 0, fmt.Sprint(left, err)
		})
	}
}

func join(set map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(set)), ",")
}

// uprobeTarget returns a pod that calls a function repeatedly, and to which packets are
// sent.
func uprobeTarget() *corev1.Pod {
	pod := reader(kindsSpace, "target", "", "")
	pod.Labels = map[string]string{"app": "target"}
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	pod.Spec.Containers[0].Name = "target"
	pod.Spec.Containers[0].Image = settings.uprobed
	pod.Spec.Containers[0].Args = []string{"--interval=100ms"}
	return pod
}

var targetPods = metav1.LabelSelector{MatchLabels: map[string]string{"app": "target"}}

// The parts of single programs and applications.

func containers() *v1alpha1.ContainerSelector {
	return &v1alpha1.ContainerSelector{Namespace: kindsSpace, Pods: targetPods}
}

func nsContainers() *v1alpha1.ContainerNsSelector {
	return &v1alpha1.ContainerNsSelector{Pods: targetPods}
}

func primary() v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{PrimaryNodeInterface: new(true)}
}

func on(iface string) v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{Interfaces: &[]string{iface}}
}

func fentryInfo(function string) v1alpha1.FentryProgramInfo {
	return v1alpha1.FentryProgramInfo{BpfProgramCommon: functionOf(function), FunctionName: kernelFunction}
}

func fexitInfo(function string) v1alpha1.FexitProgramInfo {
	return v1alpha1.FexitProgramInfo{BpfProgramCommon: functionOf(function), FunctionName: kernelFunction}
}

func kprobeInfo(function string) v1alpha1.KprobeProgramInfo {
	return v1alpha1.KprobeProgramInfo{BpfProgramCommon: functionOf(function), FunctionName: wakeUp}
}

func tcInfo(at v1alpha1.InterfaceSelector) v1alpha1.TcProgramInfo {
	return v1alpha1.TcProgramInfo{BpfProgramCommon: functionOf("stats"), InterfaceSelector: at, Priority: priority, Direction: "ingress"}
}

// tcxInfo returns a program for packets that interfaces receive.
func tcxInfo(function string, at v1alpha1.InterfaceSelector) v1alpha1.TcxProgramInfo {
	return v1alpha1.TcxProgramInfo{BpfProgramCommon: functionOf(function), InterfaceSelector: at, Priority: priority, Direction: "ingress"}
}

func xdpInfo(at v1alpha1.InterfaceSelector) v1alpha1.XdpProgramInfo {
	return v1alpha1.XdpProgramInfo{BpfProgramCommon: functionOf("xdp_stats"), InterfaceSelector: at, Priority: priority}
}

func uprobeInfo(function string) v1alpha1.UprobeProgramInfo {
	return v1alpha1.UprobeProgramInfo{BpfProgramCommon: functionOf(function), FunctionName: userFunction, Target: userTarget, Containers: containers()}
}

func tcNsInfo() v1alpha1.TcNsProgramInfo {
	return v1alpha1.TcNsProgramInfo{
		BpfProgramCommon: functionOf("stats"), InterfaceSelector: on(podInterface), Priority: priority, Direction: "ingress", Containers: nsContainers(),
	}
}

func tcxNsInfo() v1alpha1.TcxNsProgramInfo {
	return v1alpha1.TcxNsProgramInfo{
		BpfProgramCommon: functionOf("tcx_stats"), InterfaceSelector: on(podInterface), Priority: priority, Direction: "ingress", Containers: nsContainers(),
	}
}

func xdpNsInfo() v1alpha1.XdpNsProgramInfo {
	return v1alpha1.XdpNsProgramInfo{BpfProgramCommon: functionOf("xdp_stats"), InterfaceSelector: on(podInterface), Priority: priority, Containers: nsContainers()}
}

func uprobeNsInfo(function string) v1alpha1.UprobeNsProgramInfo {
	return v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: functionOf(function), FunctionName: userFunction, Target: userTarget, Containers: nsContainers()}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: kindsSpace + "-" + name} }

func namedNs(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: kindsSpace}
}

func of(name string) v1alpha1.BpfAppCommon { return v1alpha1.BpfAppCommon{ByteCode: image(name)} }

func clusterKinds() []kindCase {
	return []kindCase{
		{&v1alpha1.FentryProgram{ObjectMeta: named("fentry"), Spec: v1alpha1.FentryProgramSpec{
			FentryProgramInfo: fentryInfo("test_fentry"), BpfAppCommon: of("fentry"),
		}}, []string{"fentry_stats_map"}, []string{"Fentry"}},
		{&v1alpha1.FexitProgram{ObjectMeta: named("fexit"), Spec: v1alpha1.FexitProgramSpec{
			FexitProgramInfo: fexitInfo("test_fexit"), BpfAppCommon: of("fexit"),
		}}, []string{"fexit_stats_map"}, []string{"Fexit"}},
		{&v1alpha1.LsmProgram{ObjectMeta: named("lsm"), Spec: v1alpha1.LsmProgramSpec{
			LsmProgramInfo: v1alpha1.LsmProgramInfo{BpfProgramCommon: functionOf("deny_mkdir"), HookName: "inode_mkdir"}, BpfAppCommon: of("lsm"),
		}}, []string{"lsm_stats_map"}, []string{"LSM"}},
		{&v1alpha1.KprobeProgram{ObjectMeta: named("kprobe"), Spec: v1alpha1.KprobeProgramSpec{
			KprobeProgramInfo: kprobeInfo("kprobe_counter"), BpfAppCommon: of("go-kprobe-counter"),
		}}, []string{"kprobe_stats_map"}, []string{"Kprobe"}},
		{tc(named("tc"), primary()), []string{"tc_stats_map"}, []string{"TC"}},
		{tcxCounter(named("tcx"), primary()), []string{"tcx_stats_map"}, []string{"TCX"}},
		{tracepoint(kindsSpace + "-tracepoint"), []string{"tracepoint_stats_map"}, []string{"Tracepoint"}},
		{&v1alpha1.UprobeProgram{ObjectMeta: named("uprobe"), Spec: v1alpha1.UprobeProgramSpec{
			UprobeProgramInfo: uprobeInfo("uprobe_counter"), BpfAppCommon: of("go-uprobe-counter"),
		}}, []string{"uprobe_stats_map"}, []string{node.ContainerUprobe}},
		{xdp(named("xdp"), primary()), []string{"xdp_stats_map"}, []string{"XDP"}},
	}
}

func namespacedKinds() []kindCase {
	return []kindCase{
		{&v1alpha1.TcNsProgram{ObjectMeta: namedNs("tc"), Spec: v1alpha1.TcNsProgramSpec{
			TcNsProgramInfo: tcNsInfo(), BpfAppCommon: of("go-tc-counter"),
		}}, []string{"tc_stats_map"}, []string{"TC"}},
		{tcxNs(kindsSpace, "tcx"), []string{"tcx_stats_map"}, []string{"TCX"}},
		{&v1alpha1.UprobeNsProgram{ObjectMeta: namedNs("uprobe"), Spec: v1alpha1.UprobeNsProgramSpec{
			UprobeNsProgramInfo: uprobeNsInfo("uretprobe_counter"), BpfAppCommon: of("go-uretprobe-counter"),
		}}, []string{"uretprobe_stats_map"}, []string{node.NamespacedUprobe}},
		{&v1alpha1.XdpNsProgram{ObjectMeta: namedNs("xdp"), Spec: v1alpha1.XdpNsProgramSpec{
			XdpNsProgramInfo: xdpNsInfo(), BpfAppCommon: of("go-xdp-counter"),
		}}, []string{"xdp_stats_map"}, []string{"XDP"}},
	}
}

// applicationKinds returns applications with a member of each type that the kind and the kernels support.
func applicationKinds() []kindCase {
	app := &v1alpha1.BpfApplication{ObjectMeta: named("app"), Spec: v1alpha1.BpfApplicationSpec{BpfAppCommon: of("go-app-counter")}}
	all := kindCase{object: app}
	for _, m := range []struct {
		counter, trial string
		program        v1alpha1.BpfApplicationProgram
	}{
		{"fentry_stats_map", "Fentry", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeFentry, Fentry: new(fentryInfo("fentry_counter"))}},
		{"fexit_stats_map", "Fexit", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeFexit, Fexit: new(fexitInfo("fexit_counter"))}},
		{"kprobe_stats_map", "Kprobe", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeKprobe, Kprobe: new(kprobeInfo("kprobe_counter"))}},
		{"kretprobe_stats_map", "Kprobe", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeKretprobe, Kretprobe: new(kprobeInfo("kretprobe_counter"))}},
		{"tc_stats_map", "TC", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTC, TC: new(tcInfo(primary()))}},
		{"tcx_stats_map", "TCX", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: new(tcxInfo("tcx_stats", primary()))}},
		{"tracepoint_stats_map", "Tracepoint", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: new(tracepointInfo(killCalls))}},
		{"uprobe_stats_map", node.ContainerUprobe, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeUprobe, Uprobe: new(uprobeInfo("uprobe_counter"))}},
		{"uretprobe_stats_map", node.ContainerUprobe, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeUretprobe, Uretprobe: new(uprobeInfo("uretprobe_counter"))}},
		{"xdp_stats_map", "XDP", v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeXDP, XDP: new(xdpInfo(primary()))}},
	} {
		if all.member(m.counter, m.trial) {
			app.Spec.Programs = append(app.Spec.Programs, m.program)
		}
	}
	nsApp := &v1alpha1.BpfNsApplication{ObjectMeta: namedNs("app"), Spec: v1alpha1.BpfNsApplicationSpec{BpfAppCommon: of("go-app-counter")}}
	namespaced := kindCase{object: nsApp}
	for _, m := range []struct {
		counter, trial string
		program        v1alpha1.BpfNsApplicationProgram
	}{
		{"tc_stats_map", "TC", v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeTC, TC: new(tcNsInfo())}},
		{"tcx_stats_map", "TCX", v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeTCX, TCX: new(tcxNsInfo())}},
		{"uprobe_stats_map", node.NamespacedUprobe, v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeUprobe, Uprobe: new(uprobeNsInfo("uprobe_counter"))}},
		{"uretprobe_stats_map", node.NamespacedUprobe, v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeUretprobe, Uretprobe: new(uprobeNsInfo("uretprobe_counter"))}},
		{"xdp_stats_map", "XDP", v1alpha1.BpfNsApplicationProgram{Type: v1alpha1.ProgTypeXDP, XDP: new(xdpNsInfo())}},
	} {
		if namespaced.member(m.counter, m.trial) {
			nsApp.Spec.Programs = append(nsApp.Spec.Programs, m.program)
		}
	}
	return []kindCase{all, namespaced}
}

// linkedKind returns a ClusterBpfApplication. Two of its programs have two links.
func linkedKind() kindCase {
	app := &v1alpha1.ClusterBpfApplication{ObjectMeta: named("linked")}
	app.SetAppCommon(of("go-app-counter"))
	linked := kindCase{object: app}
	at := v1alpha1.NetworkLink{InterfaceSelector: v1alpha1.LinkInterfaces{PrimaryNodeInterface: new(true)}, Priority: new(int32(priority))}
	uprobe := uprobeInfo("uprobe_counter")
	target := &v1alpha1.UprobeLinks{Links: []v1alpha1.UprobeLink{{
		UprobeTarget: v1alpha1.UprobeTarget{Function: uprobe.FunctionName, Target: uprobe.Target},
		Containers:   &v1alpha1.LinkContainers{Namespace: uprobe.Containers.Namespace, Pods: uprobe.Containers.Pods, ContainerNames: uprobe.Containers.ContainerNames},
	}}}
	unlink := v1alpha1.FunctionLinks{Function: kernelFunction, Links: []v1alpha1.FunctionLink{{Mode: "Attach"}}}
	for _, m := range []struct {
		counter, trial string
		program        v1alpha1.ClusterBpfApplicationProgram
	}{
		{"fentry_stats_map", "Fentry", v1alpha1.ClusterBpfApplicationProgram{Name: "fentry_counter", Type: v1alpha1.ApplicationFEntry, FEntry: &unlink}},
		{"fexit_stats_map", "Fexit", v1alpha1.ClusterBpfApplicationProgram{Name: "fexit_counter", Type: v1alpha1.ApplicationFExit, FExit: &unlink}},
		{"kprobe_stats_map", "Kprobe", v1alpha1.ClusterBpfApplicationProgram{Name: "kprobe_counter", Type: v1alpha1.ApplicationKProbe, KProbe: &v1alpha1.KprobeLinks{
			Links: []v1alpha1.KprobeLink{{Function: wakeUp}},
		}}},
		{"kretprobe_stats_map", "Kprobe", v1alpha1.ClusterBpfApplicationProgram{Name: "kretprobe_counter", Type: v1alpha1.ApplicationKRetProbe, KRetProbe: &v1alpha1.KretprobeLinks{
			Links: []v1alpha1.KretprobeLink{{Function: wakeUp}},
		}}},
		{"tc_stats_map", "TC", v1alpha1.ClusterBpfApplicationProgram{Name: "stats", Type: v1alpha1.ApplicationTC, TC: &v1alpha1.TcLinks{
			Links: []v1alpha1.TcLink{{NetworkLink: at, Direction: "Ingress"}},
		}}},
		{"tcx_stats_map", "TCX", v1alpha1.ClusterBpfApplicationProgram{Name: "tcx_stats", Type: v1alpha1.ApplicationTCX, TCX: &v1alpha1.TcxLinks{
			Links: []v1alpha1.TcxLink{{NetworkLink: at, Direction: "Ingress"}, {NetworkLink: at, Direction: "egress"}},
		}}},
		{"tracepoint_stats_map", "Tracepoint", v1alpha1.ClusterBpfApplicationProgram{Name: "tracepoint_kill_recorder", Type: v1alpha1.ApplicationTracePoint, TracePoint: &v1alpha1.TracepointLinks{
			Links: []v1alpha1.TracepointLink{{Name: killCalls}, {Name: "syscalls/sys_enter_tkill"}},
		}}},
		{"uprobe_stats_map", node.ContainerUprobe, v1alpha1.ClusterBpfApplicationProgram{Name: "uprobe_counter", Type: v1alpha1.ApplicationUProbe, UProbe: target}},
		{"uretprobe_stats_map", node.ContainerUprobe, v1alpha1.ClusterBpfApplicationProgram{Name: "uretprobe_counter", Type: v1alpha1.ApplicationURetProbe, URetProbe: target}},
		{"xdp_stats_map", "XDP", v1alpha1.ClusterBpfApplicationProgram{Name: "xdp_stats", Type: v1alpha1.ApplicationXDP, XDP: &v1alpha1.XdpLinks{
			Links: []v1alpha1.XdpLink{{NetworkLink: at}},
		}}},
	} {
		if linked.member(m.counter, m.trial) {
			app.Spec.Programs = append(app.Spec.Programs, m.program)
		}
	}
	return linked
}

// member adds the map of an application's member, and reports whether the kernels support the member.
func (c *kindCase) member(counter, trial string) bool {
	supported := under.trials[trial].Attached
	if supported {
		c.maps = append(c.maps, counter)
	}
	return supported
}
