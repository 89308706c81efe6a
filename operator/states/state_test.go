// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unique"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

const uid = types.UID("0b0c1d6e-7f60-4f0e-8a75-1c2d3e4f5a6b")

// reported returns a report of a loaded program, with changes.
func reported(name, function, programType string, change func(*reports.Report, *reports.State, *reports.Detail)) *reports.Report {
	r := &reports.Report{Name: name, ProgramID: 7, Node: unique.Make(reports.Node{Label: "n", Name: "n"})}
	state := reports.State{Kind: "ClusterBpfApplication", Member: programType + "-" + function, Generation: 2, Condition: v1alpha1.BpfProgCondLoaded}
	detail := reports.Detail{Function: function, ProgramType: programType}
	if change != nil {
		change(r, &state, &detail)
	}
	r.State = unique.Make(state.WithDetail(detail, reports.MaxLinks))
	return r
}

// fails changes a report to one of a failure.
func fails(condition v1alpha1.BpfProgramConditionType, id uint32, message string) func(*reports.Report, *reports.State, *reports.Detail) {
	return func(r *reports.Report, s *reports.State, _ *reports.Detail) {
		r.ProgramID, s.Condition, s.Message = id, condition, message
	}
}

// attached changes a report to one with links.
func attached(links ...v1alpha1.BpfProgramLink) func(*reports.Report, *reports.State, *reports.Detail) {
	return func(_ *reports.Report, _ *reports.State, d *reports.Detail) { d.Links = links }
}

func linked(id uint32, point string, hook *v1alpha1.BpfProgramHook) v1alpha1.BpfProgramLink {
	return v1alpha1.BpfProgramLink{AttachPoint: point, LinkID: id, State: v1alpha1.LinkAttached, Hook: hook}
}

func TestStatus(t *testing.T) {
	pass := Program{Name: "pass", Type: v1alpha1.ApplicationXDP}
	eth0 := &v1alpha1.BpfProgramHook{Interface: "eth0", Priority: new(int32(0)), ProceedOn: []string{"pass", "dispatcher_return"}}
	missing := v1alpha1.BpfProgramLink{AttachPoint: "eth0", State: v1alpha1.LinkNotAttached, Error: "no such device", Hook: eth0}
	for name, c := range map[string]struct {
		deleting  bool
		of        []*reports.Report
		load      v1alpha1.ApplicationLoadStatus
		condition v1alpha1.ApplicationStateCondition
		links     v1alpha1.ProgramLinkStatus
		message   string
	}{
		"attached": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", attached(linked(3, "eth0", eth0)))},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateSuccess, v1alpha1.ProgramLinkSuccess,
			"All programs are loaded",
		},
		"nothing to attach to": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNoInterfacesOnNode, 7, ""))},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateSuccess, v1alpha1.ProgramLinkSuccess,
			"All programs are loaded",
		},
		"another program is reported": {
			false,
			[]*reports.Report{reported("a", "pass", "tc", nil), reported("b", "drop", "xdp", nil)},
			v1alpha1.ApplicationNotLoaded, v1alpha1.ApplicationStatePending, v1alpha1.ProgramLinkPending,
			"Waiting for the node to load and attach pass",
		},
		"the image is pulled": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNone, 0, "the image is pulled"))},
			v1alpha1.ApplicationNotLoaded, v1alpha1.ApplicationStatePending, v1alpha1.ProgramLinkPending,
			"Waiting for the node to load and attach pass: the image is pulled",
		},
		"no status yet": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails("", 0, ""))},
			v1alpha1.ApplicationNotLoaded, v1alpha1.ApplicationStatePending, v1alpha1.ProgramLinkPending,
			"Waiting for the node to load and attach pass",
		},
		"not loaded": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNotLoaded, 0, "invalid program"))},
			v1alpha1.ApplicationLoadError, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkError,
			"pass: invalid program",
		},
		"the previous one runs": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", func(r *reports.Report, s *reports.State, d *reports.Detail) {
				fails(v1alpha1.BpfProgCondNotLoaded, 7, "invalid program")(r, s, d)
				s.Previous = true
			})},
			v1alpha1.ApplicationLoadError, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkError,
			"pass: invalid program",
		},
		"not attached": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", func(r *reports.Report, s *reports.State, d *reports.Detail) {
				fails(v1alpha1.BpfProgCondNotLoaded, 7, "no such device")(r, s, d)
				attached(missing)(r, s, d)
			})},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkError,
			"pass: no such device",
		},
		"attach points aren't known": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNotLoaded, 7, "the node has no primary interface"))},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkUpdateAttachInfoError,
			"pass: the node has no primary interface",
		},
		"a member isn't attached, another is": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNotLoaded, 7, "no such device")), reported("b", "pass", "xdp", nil)},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkUpdateAttachInfoError,
			"pass: no such device",
		},
		"a policy is violated": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondPolicyViolated, 7, "unsigned"))},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkError,
			"pass: unsigned",
		},
		"not unloaded": {
			true,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNotUnloaded, 7, "busy"))},
			v1alpha1.ApplicationUnloadError, v1alpha1.ApplicationStateUnloadError, v1alpha1.ProgramLinkError,
			"pass: busy",
		},
		"a link stays": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", fails(v1alpha1.BpfProgCondNotUnloaded, 7, "busy"))},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkError,
			"pass: busy",
		},
		"the report can't be decoded": {
			false,
			[]*reports.Report{reported("a", "pass", "xdp", func(_ *reports.Report, s *reports.State, _ *reports.Detail) { s.Undecodable = "no object" })},
			v1alpha1.ApplicationLoadError, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkError,
			"pass: no object",
		},
		"the report can't be decoded, not even its function": {
			false,
			[]*reports.Report{reported("a", "", "", func(_ *reports.Report, s *reports.State, _ *reports.Detail) { s.Undecodable = "no object" })},
			v1alpha1.ApplicationLoadError, v1alpha1.ApplicationStateError, v1alpha1.ProgramLinkPending,
			"report a: no object",
		},
		"of an older agent": {
			false,
			[]*reports.Report{reported("a", "pass", "", attached(linked(3, "eth0", nil)))},
			v1alpha1.ApplicationLoadSuccess, v1alpha1.ApplicationStateSuccess, v1alpha1.ProgramLinkSuccess,
			"All programs are loaded, and attached where the application selects something; 0 of 1 links are listed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(&Application{Name: "app", UID: uid, Deleting: c.deleting, Programs: []Program{pass}}, "n", c.of)
			if len(status.Conditions) != 1 || len(status.Programs) != 1 {
				t.Fatalf("%+v", status)
			}
			condition := status.Conditions[0]
			if status.AppLoadStatus != c.load || condition.Type != string(c.condition) || condition.Reason != condition.Type || status.Programs[0].ProgramLinkStatus != c.links {
				t.Errorf("%s, %+v, %s", status.AppLoadStatus, condition, status.Programs[0].ProgramLinkStatus)
			}
			if !strings.HasPrefix(condition.Message, c.message) || condition.ObservedGeneration != 2 || status.Node != "n" {
				t.Errorf("%+v of %s", condition, status.Node)
			}
		})
	}
}

// Each type has its own field, with the fields of its links.
func TestLinks(t *testing.T) {
	network := &v1alpha1.BpfProgramHook{Interface: "eth0", NetNS: "/run/netns/a", Direction: "egress", Priority: new(int32(50)), ProceedOn: []string{"pipe"}}
	kernel := &v1alpha1.BpfProgramHook{Function: "f", Offset: 8}
	process := &v1alpha1.BpfProgramHook{Function: "malloc", Offset: 8, Target: "libc", PID: new(int32(1)), ContainerPID: new(int32(2))}
	one := func(of v1alpha1.ApplicationLinkState) v1alpha1.ApplicationLinkState {
		if of.LinkID == nil || *of.LinkID != 4294967295 || !of.ShouldAttach || of.LinkStatus != v1alpha1.ApplicationLinkAttached || uuid.Validate(of.UUID) != nil {
			t.Errorf("%+v", of)
		}
		return of
	}
	at := func(l v1alpha1.NetworkLinkState) bool {
		one(l.ApplicationLinkState)
		return l.InterfaceName == "eth0" && l.NetnsPath == "/run/netns/a" && l.Priority == 50
	}
	for name, c := range map[v1alpha1.ApplicationProgramType]struct {
		hook *v1alpha1.BpfProgramHook
		is   func(v1alpha1.ApplicationProgramState) bool
	}{
		v1alpha1.ApplicationXDP: {
			&v1alpha1.BpfProgramHook{Interface: "eth0", NetNS: "/run/netns/a", Priority: new(int32(50)), ProceedOn: []string{"tx"}},
			func(p v1alpha1.ApplicationProgramState) bool {
				return at(p.XDP.Links[0].NetworkLinkState) && p.XDP.Links[0].ProceedOn[0] == "TX"
			},
		},
		v1alpha1.ApplicationTC: {network, func(p v1alpha1.ApplicationProgramState) bool {
			return at(p.TC.Links[0].NetworkLinkState) && p.TC.Links[0].Direction == "Egress" && p.TC.Links[0].ProceedOn[0] == "Pipe"
		}},
		v1alpha1.ApplicationTCX: {network, func(p v1alpha1.ApplicationProgramState) bool {
			return at(p.TCX.Links[0].NetworkLinkState) && p.TCX.Links[0].Direction == "Egress"
		}},
		v1alpha1.ApplicationKProbe: {kernel, func(p v1alpha1.ApplicationProgramState) bool {
			one(p.KProbe.Links[0].ApplicationLinkState)
			return p.KProbe.Links[0].Function == "f" && p.KProbe.Links[0].Offset == 8
		}},
		v1alpha1.ApplicationKRetProbe: {kernel, func(p v1alpha1.ApplicationProgramState) bool {
			one(p.KRetProbe.Links[0].ApplicationLinkState)
			return p.KRetProbe.Links[0].Function == "f"
		}},
		v1alpha1.ApplicationUProbe: {process, func(p v1alpha1.ApplicationProgramState) bool {
			l := p.UProbe.Links[0]
			one(l.ApplicationLinkState)
			return l.Function == "malloc" && l.Offset == 8 && l.Target == "libc" && *l.Pid == 1 && *l.ContainerPid == 2
		}},
		v1alpha1.ApplicationURetProbe: {process, func(p v1alpha1.ApplicationProgramState) bool {
			one(p.URetProbe.Links[0].ApplicationLinkState)
			return p.URetProbe.Links[0].Target == "libc"
		}},
		v1alpha1.ApplicationTracePoint: {&v1alpha1.BpfProgramHook{Tracepoint: "a/b"}, func(p v1alpha1.ApplicationProgramState) bool {
			one(p.TracePoint.Links[0].ApplicationLinkState)
			return p.TracePoint.Links[0].Name == "a/b"
		}},
		v1alpha1.ApplicationFEntry: {kernel, func(p v1alpha1.ApplicationProgramState) bool {
			one(p.FEntry.Links[0])
			return p.FEntry.Function == "f"
		}},
		v1alpha1.ApplicationFExit: {kernel, func(p v1alpha1.ApplicationProgramState) bool {
			one(p.FExit.Links[0])
			return p.FExit.Function == "f"
		}},
	} {
		program := Program{Name: "count", Type: name, Traced: map[bool]string{true: "f"}[c.hook == kernel]}
		of := []*reports.Report{reported("a", "count", strings.ToLower(string(name)), attached(linked(4294967295, "point", c.hook), linked(1, "not selected anymore", nil)))}
		status := statusOf(&Application{UID: uid, Programs: []Program{program}}, "n", of)
		if p := status.Programs[0]; p.Type != name || p.ProgramID == nil || *p.ProgramID != 7 || !c.is(p) {
			t.Errorf("%s: %+v", name, p)
		}
		// A program that isn't reported has the field too.
		if got := statusOf(&Application{UID: uid, Programs: []Program{program}}, "n", nil).Programs[0]; got.ProgramID != nil || got.ProgramLinkStatus != v1alpha1.ProgramLinkPending {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A fentry program is identified by its kernel function too, even if it has no links, and if only a letter distinguishes two.
func TestTracedFunctions(t *testing.T) {
	member := func(label string, id uint32, links ...v1alpha1.BpfProgramLink) *reports.Report {
		return reported(label, "count", "fentry", func(r *reports.Report, s *reports.State, d *reports.Detail) {
			r.ProgramID, s.Member, d.Links = id, label, links
		})
	}
	of := []*reports.Report{
		member("fentry-do-f-count", 1, linked(5, "do_f", &v1alpha1.BpfProgramHook{Function: "do_f"})),
		member("fentry-g-count", 2),
		member("fentry-g-count-2", 3),
	}
	o := &v1alpha1.ClusterBpfApplication{}
	for _, function := range []string{"g", "do_f", "G"} {
		o.Spec.Programs = append(o.Spec.Programs, v1alpha1.ClusterBpfApplicationProgram{
			Name: "count", Type: v1alpha1.ApplicationFEntry, FEntry: &v1alpha1.FunctionLinks{Function: function},
		})
	}
	for i, program := range statusOf(&Application{UID: uid, Programs: programsOf(o)}, "n", of).Programs {
		want := []struct {
			id    uint32
			links int
		}{{2, 0}, {1, 1}, {3, 0}}[i]
		if *program.ProgramID != want.id || len(program.FEntry.Links) != want.links {
			t.Errorf("program %d has id %d, and links %+v", i, *program.ProgramID, program.FEntry.Links)
		}
	}
}

// A link keeps its uuid, and no two links have the same.
func TestUUIDs(t *testing.T) {
	hook := &v1alpha1.BpfProgramHook{Tracepoint: "a/b"}
	uuids := func(application types.UID, node string) []string {
		of := []*reports.Report{
			reported("a", "count", "tracepoint", attached(linked(1, "a/b", hook), linked(2, "a/c", hook))),
			reported("b", "count", "tracepoint", func(r *reports.Report, s *reports.State, d *reports.Detail) {
				attached(linked(3, "a/b", hook))(r, s, d)
				s.Member = "tracepoint-count-2"
			}),
		}
		var all []string
		for _, l := range statusOf(&Application{UID: application, Programs: []Program{{Name: "count", Type: v1alpha1.ApplicationTracePoint}}}, node, of).Programs[0].TracePoint.Links {
			all = append(all, l.UUID)
		}
		return all
	}
	first := uuids(uid, "n")
	if again := uuids(uid, "n"); !slices.Equal(first, again) {
		t.Errorf("%v, then %v", first, again)
	}
	seen := map[string]bool{}
	for _, id := range slices.Concat(first, uuids(uid, "m"), uuids("1b0c1d6e-7f60-4f0e-8a75-1c2d3e4f5a6b", "n"), uuids("no uuid", "n")) {
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
	}
}

// A State stays below the API server's limit, and says that it isn't complete.
func TestManyLinks(t *testing.T) {
	var many []v1alpha1.BpfProgramLink
	for i := range 3000 {
		many = append(many, linked(uint32(i+1), fmt.Sprint("point ", i), &v1alpha1.BpfProgramHook{
			Interface: "eth0123456789ab", NetNS: "/run/netns/cni-01234567-89ab-cdef-0123-456789abcdef", Direction: "ingress", Priority: new(int32(1000)),
		}))
	}
	of := []*reports.Report{reported("a", "a", "tcx", attached(many...)), reported("b", "b", "tcx", attached(many...))}
	status := statusOf(&Application{UID: uid, Programs: []Program{{Name: "a", Type: v1alpha1.ApplicationTCX}, {Name: "b", Type: v1alpha1.ApplicationTCX}}}, "n", of)
	if size := len(encoded(t, status)); size > 1<<20 {
		t.Errorf("%d bytes", size)
	}
	if message := status.Conditions[0].Message; !strings.HasSuffix(message, "; 2048 of 6000 links are listed") {
		t.Error(message)
	}
}

// Reports without their details aren't complete, unless they can't be decoded.
func TestComplete(t *testing.T) {
	detailed, lacking := reported("a", "pass", "xdp", nil), reported("b", "pass", "xdp", nil)
	lacking.State = unique.Make(reports.State{Kind: "ClusterBpfApplication"})
	undecodable := reported("c", "pass", "xdp", nil)
	undecodable.State = unique.Make(reports.State{Undecodable: "no object"})
	if !complete([]*reports.Report{detailed, undecodable}) || complete([]*reports.Report{detailed, lacking}) {
		t.Error("details are expected of an undecodable report, or of none")
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("long-name.", 25)
	seen := map[string]bool{}
	for _, application := range []*Application{{Name: "app", UID: "1"}, {Name: "app", UID: "2"}, {Name: long, UID: "3"}} {
		for _, node := range []string{"n", "m"} {
			name := nameOf("ClusterBpfApplicationState", application, node)
			if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || seen[name] || !strings.HasPrefix(name, application.Name[:3]) {
				t.Errorf("%s: %v", name, errs)
			}
			seen[name] = true
			if labels := labelsOf(application, node); len(validation.IsValidLabelValue(labels[v1alpha1.LabelOwnedByProgram])) > 0 {
				t.Errorf("%v", labels)
			}
		}
	}
}
