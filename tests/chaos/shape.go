// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chaos

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/reader"
)

// Names that the objects of the test share.
const (
	// Space is the namespace of pods and namespaced objects.
	Space = "chaos"
	// Label is a label of every object of the test.
	Label = "bpfman.io/chaos"
	// ZoneLabel is the label of nodes that objects select. GroupLabel is the label of
	// pods.
	ZoneLabel  = "chaos.bpfman.io/zone"
	GroupLabel = "chaos.bpfman.io/group"
	// StagedLabel is the label of objects that the RolloutPolicies select.
	StagedLabel = "chaos.bpfman.io/staged"

	// staged is the value of StagedLabel for revisions that don't fail.
	staged = "staged"

	podInterface   = "eth0"
	kernelFunction = "do_unlinkat"
	wakeUp         = "try_to_wake_up"
	hook           = "inode_mkdir"
	userFunction   = "main.getCount"
	userTarget     = "/go-target"
	targetName     = "target"
	libFunction    = "malloc"
	library        = "libc"
)

// mapsOfTheApplication are the maps of go-app-counter. A pod can wait for one of them since another object had its
// object's name.
var mapsOfTheApplication = []string{
	"xdp_stats_map", "tc_stats_map", "tcx_stats_map", "kprobe_stats_map", "kretprobe_stats_map", "tracepoint_stats_map",
	"uprobe_stats_map", "uretprobe_stats_map", "fentry_stats_map", "fexit_stats_map",
}

// Member is one program of an object.
type Member struct {
	// Type is the type of program, with the name that tests/node uses.
	Type     string
	Function string
	// Map is a map that belongs to the function, or "".
	Map string
}

// Variant is bytecode for an object.
type Variant struct {
	Image   string
	Members []Member
	// Maps are the other maps of the bytecode, which are pinned too.
	Maps []string
	// Global is a global variable of one byte, if the bytecode has one.
	Global string
	// Bad means that it can't be loaded on any kernel.
	Bad bool
}

// Shape is a kind of object, with possible bytecode. The first variant is good.
type Shape struct {
	Kind       string
	Namespaced bool
	// Weight is how likely it is drawn.
	Weight   int
	Variants []Variant
}

// cutsOff is bytecode that drops all packets. A node doesn't keep it on the interface to the API server.
var cutsOff = Variant{Image: "tcx_test", Members: []Member{{"TCX", "tcx_drop", ""}}, Bad: true}

// shapes contains all kinds that users write.
var shapes = []Shape{
	{
		Kind: "TcxProgram", Weight: 8, Variants: []Variant{
			{Image: "go-tcx-counter", Members: []Member{{"TCX", "tcx_stats", "tcx_stats_map"}}},
			{Image: "tcx_test", Members: []Member{{"TCX", "tcx_next", ""}}, Global: "GLOBAL_u8"},
			{Image: "rejected", Members: []Member{{"TCX", "rejected", ""}}, Bad: true},
			{Image: "go-tcx-counter", Members: []Member{{"TCX", "no_such_function", ""}}, Bad: true},
			{Image: "no_such_image", Members: []Member{{"TCX", "tcx_stats", ""}}, Bad: true},
		},
	},
	{
		Kind: "TracepointProgram", Weight: 8, Variants: []Variant{
			{Image: "go-tracepoint-counter", Members: []Member{{"Tracepoint", "tracepoint_kill_recorder", "tracepoint_stats_map"}}},
			{Image: "globals", Members: []Member{{"Tracepoint", "show_globals", "globals_map"}}, Global: "GLOBAL_u8"},
			{Image: "go-tracepoint-counter", Members: []Member{{"Tracepoint", "no_such_function", ""}}, Bad: true},
			{Image: "no_such_image", Members: []Member{{"Tracepoint", "tracepoint_kill_recorder", ""}}, Bad: true},
		},
	},
	{
		Kind: "UprobeProgram", Weight: 3, Variants: []Variant{
			{Image: "go-uprobe-counter", Members: []Member{{"Uprobe", "uprobe_counter", "uprobe_stats_map"}}},
			{Image: "go-uprobe-counter", Members: []Member{{"Uprobe", "no_such_function", ""}}, Bad: true},
		},
	},
	{
		Kind: "KprobeProgram", Weight: 2, Variants: []Variant{
			{Image: "go-kprobe-counter", Members: []Member{{"Kprobe", "kprobe_counter", "kprobe_stats_map"}}},
		},
	},
	{
		Kind: "XdpProgram", Weight: 1, Variants: []Variant{
			{Image: "go-xdp-counter", Members: []Member{{"XDP", "xdp_stats", "xdp_stats_map"}}},
		},
	},
	{
		Kind: "TcProgram", Weight: 1, Variants: []Variant{
			{Image: "go-tc-counter", Members: []Member{{"TC", "stats", "tc_stats_map"}}},
		},
	},
	{
		Kind: "FentryProgram", Weight: 1, Variants: []Variant{
			{Image: "fentry", Members: []Member{{"Fentry", "test_fentry", "fentry_stats_map"}}},
		},
	},
	{
		Kind: "FexitProgram", Weight: 1, Variants: []Variant{
			{Image: "fexit", Members: []Member{{"Fexit", "test_fexit", "fexit_stats_map"}}},
		},
	},
	{
		Kind: "LsmProgram", Weight: 1, Variants: []Variant{
			{Image: "lsm", Members: []Member{{"LSM", "deny_mkdir", "lsm_stats_map"}}},
		},
	},
	{
		Kind: "TcxNsProgram", Namespaced: true, Weight: 5, Variants: []Variant{
			{Image: "go-tcx-counter", Members: []Member{{"TCX", "tcx_stats", "tcx_stats_map"}}},
			{Image: "tcx_test", Members: []Member{{"TCX", "tcx_next", ""}}, Global: "GLOBAL_u8"},
			{Image: "rejected", Members: []Member{{"TCX", "rejected", ""}}, Bad: true},
		},
	},
	{
		Kind: "UprobeNsProgram", Namespaced: true, Weight: 4, Variants: []Variant{
			{Image: "go-uprobe-counter", Members: []Member{{"Uprobe in a container", "uprobe_counter", "uprobe_stats_map"}}},
		},
	},
	{
		Kind: "XdpNsProgram", Namespaced: true, Weight: 1, Variants: []Variant{
			{Image: "go-xdp-counter", Members: []Member{{"XDP", "xdp_stats", "xdp_stats_map"}}},
		},
	},
	{
		Kind: "TcNsProgram", Namespaced: true, Weight: 1, Variants: []Variant{
			{Image: "go-tc-counter", Members: []Member{{"TC", "stats", "tc_stats_map"}}},
		},
	},
	{
		Kind: "BpfApplication", Weight: 5, Variants: []Variant{
			{Image: "go-app-counter", Members: []Member{
				{"Tracepoint", "tracepoint_kill_recorder", "tracepoint_stats_map"}, {"TCX", "tcx_stats", "tcx_stats_map"},
			}, Maps: mapsOfTheApplication},
			{Image: "no_such_image", Members: []Member{
				{"Tracepoint", "tracepoint_kill_recorder", ""}, {"TCX", "tcx_stats", ""},
			}, Bad: true},
		},
	},
	{
		Kind: "ClusterBpfApplication", Weight: 3, Variants: []Variant{
			{Image: "go-app-counter", Members: []Member{
				{"Tracepoint", "tracepoint_kill_recorder", "tracepoint_stats_map"}, {"TCX", "tcx_stats", "tcx_stats_map"},
			}, Maps: mapsOfTheApplication},
		},
	},
	{
		Kind: "BpfNsApplication", Namespaced: true, Weight: 3, Variants: []Variant{
			{Image: "go-app-counter", Members: []Member{
				{"TCX", "tcx_stats", "tcx_stats_map"}, {"Uprobe in a container", "uprobe_counter", "uprobe_stats_map"},
			}, Maps: mapsOfTheApplication},
		},
	},
}

// makers create the objects of each kind.
var makers = map[string]func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject{
	"TcxProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.TcxProgram{Spec: v1alpha1.TcxProgramSpec{TcxProgramInfo: *o.tcx(0), BpfAppCommon: c}}
	},
	"TracepointProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.TracepointProgram{Spec: v1alpha1.TracepointProgramSpec{TracepointProgramInfo: *o.tracepoint(0), BpfAppCommon: c}}
	},
	"UprobeProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.UprobeProgram{Spec: v1alpha1.UprobeProgramSpec{
			UprobeProgramInfo: v1alpha1.UprobeProgramInfo{BpfProgramCommon: o.common(0), FunctionName: libFunction, Target: library}, BpfAppCommon: c,
		}}
	},
	"KprobeProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.KprobeProgram{Spec: v1alpha1.KprobeProgramSpec{
			KprobeProgramInfo: v1alpha1.KprobeProgramInfo{BpfProgramCommon: o.common(0), FunctionName: wakeUp}, BpfAppCommon: c,
		}}
	},
	"XdpProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.XdpProgram{Spec: v1alpha1.XdpProgramSpec{
			XdpProgramInfo: v1alpha1.XdpProgramInfo{BpfProgramCommon: o.common(0), InterfaceSelector: o.interfaces(), Priority: o.Priority}, BpfAppCommon: c,
		}}
	},
	"TcProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.TcProgram{Spec: v1alpha1.TcProgramSpec{
			TcProgramInfo: v1alpha1.TcProgramInfo{BpfProgramCommon: o.common(0), InterfaceSelector: o.interfaces(), Priority: o.Priority, Direction: "ingress"}, BpfAppCommon: c,
		}}
	},
	"FentryProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.FentryProgram{Spec: v1alpha1.FentryProgramSpec{
			FentryProgramInfo: v1alpha1.FentryProgramInfo{BpfProgramCommon: o.common(0), FunctionName: kernelFunction}, BpfAppCommon: c,
		}}
	},
	"FexitProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.FexitProgram{Spec: v1alpha1.FexitProgramSpec{
			FexitProgramInfo: v1alpha1.FexitProgramInfo{BpfProgramCommon: o.common(0), FunctionName: kernelFunction}, BpfAppCommon: c,
		}}
	},
	"LsmProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.LsmProgram{Spec: v1alpha1.LsmProgramSpec{
			LsmProgramInfo: v1alpha1.LsmProgramInfo{BpfProgramCommon: o.common(0), HookName: hook}, BpfAppCommon: c,
		}}
	},
	"TcxNsProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.TcxNsProgram{Spec: v1alpha1.TcxNsProgramSpec{TcxNsProgramInfo: *o.tcxNs(0), BpfAppCommon: c}}
	},
	"UprobeNsProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.UprobeNsProgram{Spec: v1alpha1.UprobeNsProgramSpec{UprobeNsProgramInfo: *o.uprobeNs(0), BpfAppCommon: c}}
	},
	"XdpNsProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.XdpNsProgram{Spec: v1alpha1.XdpNsProgramSpec{XdpNsProgramInfo: v1alpha1.XdpNsProgramInfo{
			BpfProgramCommon: o.common(0), InterfaceSelector: inPod(), Priority: o.Priority, Containers: o.pods(),
		}, BpfAppCommon: c}}
	},
	"TcNsProgram": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.TcNsProgram{Spec: v1alpha1.TcNsProgramSpec{TcNsProgramInfo: v1alpha1.TcNsProgramInfo{
			BpfProgramCommon: o.common(0), InterfaceSelector: inPod(), Priority: o.Priority, Direction: "ingress", Containers: o.pods(),
		}, BpfAppCommon: c}}
	},
	"BpfApplication": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.BpfApplication{Spec: v1alpha1.BpfApplicationSpec{BpfAppCommon: c, Programs: []v1alpha1.BpfApplicationProgram{
			{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: o.tracepoint(0)},
			{Type: v1alpha1.ProgTypeTCX, TCX: o.tcx(1)},
		}}}
	},
	"ClusterBpfApplication": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		application := &v1alpha1.ClusterBpfApplication{}
		application.SetAppCommon(c)
		tracepoint, tcx := v1alpha1.TracepointLinks{}, v1alpha1.TcxLinks{}
		if !o.Detached {
			for _, name := range o.Tracepoints {
				tracepoint.Links = append(tracepoint.Links, v1alpha1.TracepointLink{Name: name})
			}
			tcx.Links = []v1alpha1.TcxLink{{Direction: "Ingress", NetworkLink: v1alpha1.NetworkLink{
				InterfaceSelector: v1alpha1.LinkInterfaces{Interfaces: o.interfaces().Interfaces}, Priority: &o.Priority,
			}}}
		}
		members := o.variant().Members
		application.Spec.Programs = []v1alpha1.ClusterBpfApplicationProgram{
			{Name: members[0].Function, Type: v1alpha1.ApplicationTracePoint, TracePoint: &tracepoint},
			{Name: members[1].Function, Type: v1alpha1.ApplicationTCX, TCX: &tcx},
		}
		return application
	},
	"BpfNsApplication": func(o *Object, c v1alpha1.BpfAppCommon) v1alpha1.UserObject {
		return &v1alpha1.BpfNsApplication{Spec: v1alpha1.BpfNsApplicationSpec{BpfAppCommon: c, Programs: []v1alpha1.BpfNsApplicationProgram{
			{Type: v1alpha1.ProgTypeTCX, TCX: o.tcxNs(0)},
			{Type: v1alpha1.ProgTypeUprobe, Uprobe: o.uprobeNs(1)},
		}}}
	},
}

func shapeOf(kind string) *Shape {
	for i := range shapes {
		if shapes[i].Kind == kind {
			return &shapes[i]
		}
	}
	return nil
}

// The parts of objects.

func (o *Object) common(member int) v1alpha1.BpfProgramCommon {
	common := v1alpha1.BpfProgramCommon{BpfFunctionName: o.variant().Members[member].Function}
	if o.Detached {
		common.Attach = new(bool)
	}
	return common
}

func (o *Object) interfaces() v1alpha1.InterfaceSelector {
	names := append([]string{}, o.Interfaces...)
	return v1alpha1.InterfaceSelector{Interfaces: &names}
}

func inPod() v1alpha1.InterfaceSelector {
	return v1alpha1.InterfaceSelector{Interfaces: &[]string{podInterface}}
}

func (o *Object) pods() *v1alpha1.ContainerNsSelector {
	return &v1alpha1.ContainerNsSelector{Pods: metav1.LabelSelector{MatchLabels: map[string]string{GroupLabel: o.Group}}}
}

func (o *Object) tcx(member int) *v1alpha1.TcxProgramInfo {
	return &v1alpha1.TcxProgramInfo{BpfProgramCommon: o.common(member), InterfaceSelector: o.interfaces(), Priority: o.Priority, Direction: "ingress"}
}

func (o *Object) tcxNs(member int) *v1alpha1.TcxNsProgramInfo {
	return &v1alpha1.TcxNsProgramInfo{BpfProgramCommon: o.common(member), InterfaceSelector: inPod(), Priority: o.Priority, Direction: "ingress", Containers: o.pods()}
}

func (o *Object) tracepoint(member int) *v1alpha1.TracepointProgramInfo {
	return &v1alpha1.TracepointProgramInfo{BpfProgramCommon: o.common(member), Names: append([]string{}, o.Tracepoints...)}
}

func (o *Object) uprobeNs(member int) *v1alpha1.UprobeNsProgramInfo {
	return &v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: o.common(member), FunctionName: userFunction, Target: userTarget, Containers: o.pods()}
}

// Make returns the object for the API server. prefix is the prefix of images.
func (o *Object) Make(prefix string) v1alpha1.UserObject {
	common := v1alpha1.BpfAppCommon{ByteCode: v1alpha1.BytecodeSelector{
		Image: &v1alpha1.BytecodeImage{Url: prefix + "/" + o.variant().Image + ":latest"},
	}}
	switch {
	case o.Zone != "":
		common.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{ZoneLabel: o.Zone}}
	case o.CutsOff != "":
		common.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: o.CutsOff}}
	}
	if global := o.variant().Global; global != "" {
		common.GlobalData = v1alpha1.GlobalData{global: []byte{o.Marker}}
	}
	made := makers[o.Kind](o, common)
	made.SetName(o.Name)
	made.SetLabels(map[string]string{Label: "true"})
	if o.Staged {
		made.GetLabels()[StagedLabel] = cmp.Or(string(o.OnFailure), staged)
	}
	if shapeOf(o.Kind).Namespaced {
		made.SetNamespace(Space)
	}
	return made
}

// Make returns the pod for the API server. A pod that reads maps is unprivileged.
func (p *Pod) Make(counters, target string) *corev1.Pod {
	pod := reader.Pod(counters, Space, p.Name, p.Of, p.Map)
	pod.Labels = map[string]string{Label: "true", GroupLabel: p.Group}
	pod.Spec.NodeName = p.Node
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	if p.Of == "" {
		pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
		pod.Spec.Containers[0].Name = targetName
		pod.Spec.Containers[0].Image = target
		pod.Spec.Containers[0].Args = []string{"--interval=100ms"}
	}
	return pod
}

// Policies returns the RolloutPolicies for the API server. Which nodes a fault makes unhealthy depends on the time, so
// rollouts of good revisions go on with any number of them. Those of revisions that fail end on the canary.
func Policies(canary string) []*v1alpha1.RolloutPolicy {
	policies := make([]*v1alpha1.RolloutPolicy, 0, 3)
	for _, label := range []string{staged, string(v1alpha1.RolloutHalt), string(v1alpha1.RolloutUndo)} {
		p := &v1alpha1.RolloutPolicy{}
		p.Name, p.Labels = Space+"-"+label, map[string]string{Label: "true"}
		p.Spec.Match.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{StagedLabel: label}}
		p.Spec.Steps = []v1alpha1.RolloutStep{{Nodes: intstr.FromInt32(1)}, {Nodes: intstr.FromString("50%"), Pause: &metav1.Duration{Duration: time.Second}}}
		p.Spec.TimeLimit = metav1.Duration{Duration: 10 * time.Second}
		if label == staged {
			p.Spec.MaxUnhealthy = intstr.FromString("100%")
		} else {
			p.Spec.OnFailure = v1alpha1.RolloutOnFailure(label)
			p.Spec.Canaries = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: canary}}
		}
		policies = append(policies, p)
	}
	return policies
}
