// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package conflict

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

var (
	flows  = v1alpha1.BpfNodeOwner{Kind: "TcxNsProgram", Namespace: "acme", Name: "flows"}
	other  = v1alpha1.BpfNodeOwner{Kind: "XdpNsProgram", Namespace: "acme", Name: "other"}
	drop   = v1alpha1.BpfNodeOwner{Kind: "XdpProgram", Name: "drop"}
	app    = v1alpha1.BpfNodeOwner{Kind: "BpfApplication", Name: "app"}
	cilium = []v1alpha1.BpfNodeHolder{
		{Holds: "program", Path: "/sys/fs/bpf/cilium/x"}, {Holds: "link", PID: 7, Process: "cilium-agent", Namespace: "kube-system", Pod: "cilium-x"},
	}
)

// points parses short forms of attach points: "tcx/ingress eth0 2" is at interface eth0, in
// position 2.
func points(texts ...string) []v1alpha1.BpfNodeAttachPoint {
	var all []v1alpha1.BpfNodeAttachPoint
	for _, text := range texts {
		var point v1alpha1.BpfNodeAttachPoint
		fields := strings.Fields(text)
		point.Type = fields[0]
		switch kind, _, _ := strings.Cut(point.Type, "/"); kind {
		case "xdp", "tc", "tcx":
			point.Interface = fields[1]
			if len(fields) > 2 {
				point.Position = int32(number(fields[2]))
			}
			if len(fields) > 3 {
				point.NetNs = "4026532001"
				point.Namespace, point.Pod, _ = strings.Cut(fields[3], "/")
			}
		case "freplace":
			point.TargetProgramID = number(fields[1])
			if len(fields) > 2 {
				point.Position = int32(number(fields[2]))
			}
		default:
			point.Target = fields[1]
		}
		all = append(all, point)
	}
	return all
}

func number(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		panic(err)
	}
	return uint32(n)
}

func foreign(id uint32, name string, holders []v1alpha1.BpfNodeHolder, at ...string) v1alpha1.BpfNodeProgram {
	return v1alpha1.BpfNodeProgram{ID: id, Name: name, Holders: holders, AttachPoints: points(at...)}
}

func ours(id uint32, name string, owner *v1alpha1.BpfNodeOwner, at ...string) v1alpha1.BpfNodeProgram {
	return v1alpha1.BpfNodeProgram{ID: id, Name: name, Bpfman: true, Owner: owner, AttachPoints: points(at...)}
}

func report(owner v1alpha1.BpfNodeOwner, programType string, links ...string) Report {
	r := Report{Owner: owner, UID: "1", Type: programType}
	for _, link := range links {
		point, attached := strings.CutPrefix(link, "+")
		state := v1alpha1.LinkNotAttached
		if attached {
			state = v1alpha1.LinkAttached
		}
		r.Links = append(r.Links, v1alpha1.BpfProgramLink{AttachPoint: point, State: state})
	}
	return r
}

// dispatcher returns a full dispatcher, and one at another interface that isn't full.
func dispatcher(kind string) []v1alpha1.BpfNodeProgram {
	programs := []v1alpha1.BpfNodeProgram{ours(1, "xdp_dispatcher", nil, kind+" eth0 1"), ours(2, "xdp_dispatcher", nil, kind+" eth1 1")}
	for i := range uint32(slots) {
		programs = append(programs, ours(10+i, "member", &app, "freplace 1"))
		if i > 0 {
			programs = append(programs, ours(30+i, "member", &app, "freplace 2"))
		}
	}
	return programs
}

func times(n int, program v1alpha1.BpfNodeProgram) []v1alpha1.BpfNodeProgram {
	var programs []v1alpha1.BpfNodeProgram
	for range n {
		program.ID++
		programs = append(programs, program)
	}
	return programs
}

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		programs []v1alpha1.BpfNodeProgram
		reports  []Report
		want     []string
	}{
		"nothing": {nil, nil, nil},
		"XDP where nobody wants to be": {
			[]v1alpha1.BpfNodeProgram{foreign(5, "lb", cilium, "xdp eth0")},
			[]Report{report(drop, "xdp", "eth1", "eth00", "eth0 in pod acme/web"), report(flows, "tcx", "eth0")},
			nil,
		},
		"XDP where ours wants to be": {
			[]v1alpha1.BpfNodeProgram{foreign(5, "lb", cilium, "xdp eth0", "xdp lo"), ours(6, "xdp_dispatcher", nil, "xdp eth1")},
			[]Report{report(drop, "xdp", "+eth1", "eth0"), report(app, "application", "eth0 ingress", "lo")},
			[]string{
				"ForeignXDP 5 BpfApplication app: BpfApplication app can't be attached to interface lo, because XDP program lb (5) is attached there, held by process cilium-agent of pod kube-system/cilium-x",
				"ForeignXDP 5 XdpProgram drop: XdpProgram drop can't be attached to interface eth0, because XDP program lb (5) is attached there, held by process cilium-agent of pod kube-system/cilium-x",
			},
		},
		"XDP in a pod": {
			[]v1alpha1.BpfNodeProgram{foreign(5, "lb", nil, "xdp eth0 0 acme/web")},
			[]Report{report(drop, "xdp", "eth0", "eth0 in pod acme/web")},
			[]string{"ForeignXDP 5 XdpProgram drop: XdpProgram drop can't be attached to interface eth0 in pod acme/web, because XDP program lb (5) is attached there, held by an unknown process"},
		},
		"TCX before ours": {
			[]v1alpha1.BpfNodeProgram{
				foreign(5, "from_netdev", cilium, "tcx/ingress eth0 1", "tcx/egress eth0 2"),
				ours(6, "count", &flows, "tcx/ingress eth0 2", "tcx/egress eth0 1", "tcx/ingress eth1 2"),
				foreign(7, "after", cilium, "tcx/ingress eth0 3", "tcx/ingress eth1 3"),
				foreign(8, "elsewhere", nil, "tcx/ingress eth0 1 acme/web"),
			},
			nil,
			[]string{"EarlierInChain 5 TcxNsProgram acme/flows: program from_netdev (5) runs before TcxNsProgram acme/flows at tcx/ingress of interface eth0, and can end the chain; it is held by process cilium-agent of pod kube-system/cilium-x"},
		},
		"TCX before ours of TC": {
			[]v1alpha1.BpfNodeProgram{
				foreign(5, "first", nil, "tcx/ingress eth0 1"), foreign(6, "later", nil, "tc/ingress eth0 2"),
				ours(7, "tc_dispatcher", nil, "tc/ingress eth0 1", "tc/egress eth0 2"), ours(8, "count", &app, "freplace 7"),
				foreign(9, "shape", nil, "tc/qdisc eth0 1"), // it runs after the hook
			},
			nil,
			[]string{"EarlierInChain 5 BpfApplication app: program first (5) runs before BpfApplication app at tc/ingress of interface eth0, and can end the chain; it is held by an unknown process"},
		},
		"a chain of ours alone, those of namespaces last": {
			[]v1alpha1.BpfNodeProgram{ours(5, "a", &flows, "tcx/ingress eth0 2"), ours(6, "b", &app, "tcx/ingress eth0 1"), ours(7, "c", &other, "tcx/ingress eth0 3")}, nil, nil,
		},
		"a tracepoint with room": {times(near(eventPrograms)-1, foreign(1, "f", nil, "tracepoint sched/sched_switch")), nil, nil},
		"a tracepoint of others": {
			times(near(eventPrograms), foreign(1, "f", cilium, "tracepoint sched/sched_switch")),
			[]Report{report(app, "tracepoint", "sched/sched_wakeup")},
			[]string{"EventNearLimit 0: tracepoint sched/sched_switch has at least 56 of the 64 programs that the kernel allows, most of them held by process cilium-agent of pod kube-system/cilium-x"},
		},
		"a tracepoint that ours wants": {
			append(times(eventPrograms-1, foreign(1, "f", cilium, "tracepoint sched/sched_switch")), ours(99, "g", &drop, "tracepoint sched/sched_switch")),
			[]Report{report(app, "tracepoint", "sched/sched_switch")},
			[]string{
				"EventNearLimit 0 BpfApplication app: tracepoint sched/sched_switch has all of the 64 programs that the kernel allows, most of them held by process cilium-agent of pod kube-system/cilium-x; BpfApplication app uses it",
				"EventNearLimit 0 XdpProgram drop: tracepoint sched/sched_switch has all of the 64 programs that the kernel allows, most of them held by process cilium-agent of pod kube-system/cilium-x; XdpProgram drop uses it",
			},
		},
		"a tracepoint of which the group isn't known": {
			times(near(eventPrograms), foreign(1, "f", nil, "tracepoint sched_switch")),
			[]Report{report(app, "tracepoint", "sched/sched_switch"), report(drop, "tracepoint", "x_sched_switch")},
			[]string{"EventNearLimit 0 BpfApplication app: tracepoint sched_switch has at least 56 of the 64 programs that the kernel allows, most of them held by an unknown process; BpfApplication app uses it"},
		},
		"a function": {
			append(times(near(functionPrograms)-1, foreign(1, "f", nil, "fentry vfs_read")), foreign(2, "g", nil, "fexit vfs_read")), nil,
			[]string{"EventNearLimit 0: function vfs_read has at least 34 of the 38 programs that the kernel allows, most of them held by an unknown process"},
		},
		"kprobes have no limit": {times(100, foreign(1, "f", nil, "kprobe vfs_read")), nil, nil},
		"a full dispatcher that all are in": {
			dispatcher("xdp"),
			[]Report{report(drop, "xdp", "+eth0", "eth1")},
			[]string{"DispatcherFull 1: bpfman's dispatcher at xdp of interface eth0 has 10 programs and no free slot"},
		},
		"a full dispatcher that others want to be in": {
			dispatcher("tc/ingress"),
			[]Report{report(app, "tc", "eth0 ingress", "eth0 egress", "eth1 ingress")},
			[]string{"DispatcherFull 1 BpfApplication app: BpfApplication app isn't attached to tc/ingress of interface eth0, because bpfman's dispatcher there has 10 programs and no free slot"},
		},
		"TCX of a namespace before ours": {
			[]v1alpha1.BpfNodeProgram{
				ours(5, "pass", &flows, "tcx/ingress eth0 1 acme/web", "tcx/ingress eth0 1 acme/db", "tcx/egress eth0 2 acme/web"),
				ours(6, "count", &app, "tcx/ingress eth0 2 acme/web", "tcx/ingress eth0 2 acme/db", "tcx/egress eth0 1 acme/web", "tcx/ingress eth1 1"),
				ours(7, "other", &other, "tcx/ingress eth0 3 acme/web"),
			},
			nil,
			[]string{"NamespacedEarlierInChain 5 BpfApplication app: program pass (5) of TcxNsProgram acme/flows runs before BpfApplication app at tcx/ingress of interface eth0 in pod acme/db, and can end the chain"},
		},
		"TCX of a namespace before TC of ours": {
			[]v1alpha1.BpfNodeProgram{
				ours(4, "tc_dispatcher", nil, "tc/ingress eth0 1 acme/web"), ours(5, "pass", &flows, "tcx/ingress eth0 1 acme/web"), ours(6, "count", &app, "freplace 4 1"),
			},
			nil,
			[]string{"NamespacedEarlierInChain 5 BpfApplication app: program pass (5) of TcxNsProgram acme/flows runs before BpfApplication app at tc/ingress of interface eth0 in pod acme/web, and can end the chain"},
		},
		"in a dispatcher before ours": {
			[]v1alpha1.BpfNodeProgram{
				ours(4, "xdp_dispatcher", nil, "xdp eth0 0 acme/web"), ours(5, "count", &drop, "freplace 4 2"), ours(6, "pass", &other, "freplace 4 1"),
				ours(7, "late", &flows, "freplace 4 3"), ours(8, "elsewhere", &other, "freplace 9 1"),
			},
			nil,
			[]string{"NamespacedEarlierInChain 6 XdpProgram drop: program pass (6) of XdpNsProgram acme/other runs before XdpProgram drop at xdp of interface eth0 in pod acme/web, and can end the chain"},
		},
		"a full dispatcher with programs of a namespace": {
			append(dispatcher("xdp"), ours(50, "pass", &flows, "freplace 1"), ours(51, "pass", &other, "freplace 1")),
			[]Report{report(drop, "xdp", "eth0")},
			[]string{
				"DispatcherFull 1 XdpProgram drop: XdpProgram drop isn't attached to xdp of interface eth0, because bpfman's dispatcher there has 10 programs and no free slot; namespace acme has 2 of them",
			},
		},
		"loaded by another client of the daemon": {
			[]v1alpha1.BpfNodeProgram{ours(5, "", nil), ours(6, "stray", nil, "tracepoint sched/sched_switch"), ours(7, "tc_dispatcher", nil)},
			nil,
			[]string{
				"UnownedProgram 5: bpfman loaded program 5 without a name, but no object owns it: another client of the bpfman daemon loaded it",
				"UnownedProgram 6: bpfman loaded program stray (6), but no object owns it: another client of the bpfman daemon loaded it",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			status := &v1alpha1.BpfNodeStatus{Programs: c.programs}
			for _, conflict := range Find(status, c.reports) {
				text := fmt.Sprintf("%s %d", conflict.Type, conflict.ProgramID)
				if conflict.Owner != nil {
					text += " " + conflict.Owner.String()
				}
				got = append(got, text+": "+conflict.Message)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if len(Find(status, nil)) < len(got) && !NeedsReports(status) {
				t.Error("the reports aren't asked for, and tell more")
			}
		})
	}
}

func TestHolder(t *testing.T) {
	process := v1alpha1.BpfNodeHolder{PID: 1, Process: "systemd", Unit: "init.scope"}
	ended := v1alpha1.BpfNodeHolder{PID: 8, Process: "loader", Gone: true}
	pin := v1alpha1.BpfNodeHolder{Path: "/sys/fs/bpf/x"}
	for want, holders := range map[string][]v1alpha1.BpfNodeHolder{
		"":                                nil,
		"process systemd of init.scope":   {ended, pin, process},
		"the pin /sys/fs/bpf/x":           {ended, pin},
		"process loader, which has ended": {ended},
		"process " + strings.Repeat("é", 64) + "…": {{PID: 1, Process: strings.Repeat("é", 200)}},
	} {
		if got := Holder(&v1alpha1.BpfNodeProgram{Holders: holders}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestConditions(t *testing.T) {
	var found []v1alpha1.BpfNodeConflict
	for i := range 5 {
		found = append(found, v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeUnownedProgram, Message: fmt.Sprint("message ", i)})
	}
	got := map[string]metav1.Condition{}
	for _, condition := range Conditions(found, errors.New("no answer")) {
		got[condition.Type] = condition
	}
	for kind, want := range map[string]metav1.Condition{
		v1alpha1.BpfNodeForeignXDP:        {Status: metav1.ConditionUnknown, Reason: "ReportsNotRead", Message: "no answer"},
		v1alpha1.BpfNodeEarlierInChain:    {Status: metav1.ConditionFalse, Reason: "NoneFound", Message: "No conflict of this type was found."},
		v1alpha1.BpfNodeNamespacedEarlier: {Status: metav1.ConditionFalse, Reason: "NoneFound", Message: "No conflict of this type was found."},
		v1alpha1.BpfNodeEventNearLimit:    {Status: metav1.ConditionFalse, Reason: "NoneFound", Message: "No conflict of this type was found."},
		v1alpha1.BpfNodeDispatcherFull:    {Status: metav1.ConditionFalse, Reason: "NoneFound", Message: "No conflict of this type was found."},
		v1alpha1.BpfNodeUnownedProgram:    {Status: metav1.ConditionTrue, Reason: "Found", Message: "message 0; message 1; message 2; 2 more"},
	} {
		if want.Type = kind; got[kind] != want {
			t.Errorf("%+v, want %+v", got[kind], want)
		}
	}
}

// TestDocs checks that the page about solutions has a section for each type of conflict, and no
// others.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/conflicts.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for line := range strings.Lines(string(page)) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			sections = append(sections, strings.TrimSpace(heading))
		}
	}
	if !slices.Equal(sections, Types) {
		t.Errorf("docs/conflicts.md has %q, not %q", sections, Types)
	}
	for _, number := range []int{eventPrograms, near(eventPrograms), functionPrograms, near(functionPrograms), slots} {
		if !strings.Contains(string(page), fmt.Sprintf(" %d", number)) {
			t.Errorf("docs/conflicts.md doesn't tell of %d", number)
		}
	}
}
