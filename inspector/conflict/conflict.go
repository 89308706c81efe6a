// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package conflict finds what prevents, or could prevent, programs of bpfman from working
// on a node: other programs at the same hooks, and limits of the kernel and of bpfman. Its
// messages are for the owners of the objects. docs/conflicts.md explains what they can do.
package conflict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Types are the types of conflicts. They are also types of conditions of a BpfNode.
var Types = []string{
	v1alpha1.BpfNodeForeignXDP, v1alpha1.BpfNodeEarlierInChain, v1alpha1.BpfNodeNamespacedEarlier,
	v1alpha1.BpfNodeEventNearLimit, v1alpha1.BpfNodeDispatcherFull, v1alpha1.BpfNodeUnownedProgram,
}

const (
	// slots is the number of programs that one dispatcher of bpfman can run.
	slots = 10
	// eventPrograms is the number of programs that the kernel runs at a tracepoint:
	// BPF_TRACE_MAX_PROGS. Each kprobe is a separate event, and doesn't reach this limit.
	eventPrograms = 64
	// functionPrograms is the number of fentry, fexit, and fmod_ret programs that the
	// kernel runs at a function: BPF_MAX_TRAMP_LINKS.
	functionPrograms = 38
)

// near returns the number of programs from which on a limit is considered near: seven
// eighths.
func near(limit int) int { return limit - limit/8 }

// Report contains what a BpfProgram or BpfNsProgram of this node says about where an
// object is to be attached.
type Report struct {
	Owner v1alpha1.BpfNodeOwner
	UID   types.UID
	// Type is the type of the program, or "application".
	Type  string
	Links []v1alpha1.BpfProgramLink
}

// wants reports whether the object is to be attached to a hook. hook is the agent's name
// for the hook.
func (r Report) wants(hook string, ofType ...string) (v1alpha1.BpfProgramLink, bool) {
	if !slices.Contains(append(ofType, "application"), r.Type) {
		return v1alpha1.BpfProgramLink{}, false
	}
	i := slices.IndexFunc(r.Links, func(l v1alpha1.BpfProgramLink) bool { return l.AttachPoint == hook })
	if i < 0 {
		return v1alpha1.BpfProgramLink{}, false
	}
	return r.Links[i], true
}

// Find returns the conflicts of a node in a stable order. It needs the whole status,
// without limits on its size, and the reports of the node's objects.
func Find(status *v1alpha1.BpfNodeStatus, reports []Report) []v1alpha1.BpfNodeConflict {
	f := finder{reports: reports, members: map[uint32][]*v1alpha1.BpfNodeProgram{}}
	for i := range status.Programs {
		program := &status.Programs[i]
		f.programs = append(f.programs, program)
		for _, point := range program.AttachPoints {
			if point.Type == "freplace" {
				f.members[point.TargetProgramID] = append(f.members[point.TargetProgramID], program)
			}
		}
	}
	f.foreignXDP()
	f.earlierInChain()
	f.namespacedEarlier()
	f.eventNearLimit()
	f.dispatcherFull()
	f.unowned()
	slices.SortStableFunc(f.found, func(a, b v1alpha1.BpfNodeConflict) int {
		return cmp.Or(cmp.Compare(slices.Index(Types, a.Type), slices.Index(Types, b.Type)), cmp.Compare(a.ProgramID, b.ProgramID), strings.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(f.found, func(a, b v1alpha1.BpfNodeConflict) bool {
		return a.Type == b.Type && a.ProgramID == b.ProgramID && a.Message == b.Message
	})
}

// NeedsReports reports whether Find needs the reports of the node's objects to find out
// which objects are affected, or whether there is a conflict.
func NeedsReports(status *v1alpha1.BpfNodeStatus) bool {
	for i := range status.Programs {
		program := &status.Programs[i]
		if !program.Bpfman && slices.ContainsFunc(program.AttachPoints, func(p v1alpha1.BpfNodeAttachPoint) bool { return p.Type == "xdp" }) {
			return true
		}
	}
	return slices.ContainsFunc(Find(status, nil), func(c v1alpha1.BpfNodeConflict) bool { return c.Type != v1alpha1.BpfNodeUnownedProgram })
}

type finder struct {
	programs []*v1alpha1.BpfNodeProgram
	// members are the programs that replace functions of a dispatcher, by the id of the
	// dispatcher.
	members map[uint32][]*v1alpha1.BpfNodeProgram
	reports []Report
	found   []v1alpha1.BpfNodeConflict
}

func (f *finder) add(kind string, program uint32, owner *v1alpha1.BpfNodeOwner, format string, args ...any) {
	f.found = append(f.found, v1alpha1.BpfNodeConflict{Type: kind, Message: fmt.Sprintf(format, args...), ProgramID: program, Owner: owner})
}

func (f *finder) foreignXDP() {
	for _, program := range f.programs {
		for _, point := range program.AttachPoints {
			if program.Bpfman || point.Type != "xdp" {
				continue
			}
			for _, report := range f.reports {
				if _, wants := report.wants(hookOf(point), "xdp"); wants {
					f.add(v1alpha1.BpfNodeForeignXDP, program.ID, &report.Owner, "%s can't be attached to %s, because XDP %s is attached there, %s",
						report.Owner, place(point), describe(program), heldBy(program))
				}
			}
		}
	}
}

// at is a program at a hook.
type at struct {
	program *v1alpha1.BpfNodeProgram
	point   v1alpha1.BpfNodeAttachPoint
}

// chains returns the programs at each interface and direction, in the order in which they
// run: XDP programs, or first TCX programs, and then TC filters. It doesn't contain the programs that a
// dispatcher runs.
func (f *finder) chains() map[string][]at {
	chains := map[string][]at{}
	for _, program := range f.programs {
		for _, point := range program.AttachPoints {
			if kind, _, _ := strings.Cut(point.Type, "/"); kind == "tcx" || kind == "tc" || kind == "xdp" {
				hook := hookOf(point) + " " + point.NetNs
				chains[hook] = append(chains[hook], at{program, point})
			}
		}
	}
	for _, chain := range chains {
		slices.SortStableFunc(chain, func(a, b at) int {
			tcx := func(p at) int { return map[bool]int{true: 0, false: 1}[strings.HasPrefix(p.point.Type, "tcx/")] }
			return cmp.Or(cmp.Compare(tcx(a), tcx(b)), cmp.Compare(a.point.Position, b.point.Position))
		})
	}
	return chains
}

func (f *finder) earlierInChain() {
	for _, chain := range f.chains() {
		for i, ours := range chain {
			for _, other := range chain[:i] {
				if ours.program.Bpfman && !other.program.Bpfman {
					f.before(other, ours)
				}
			}
		}
	}
}

func (f *finder) before(other, ours at) {
	for _, owner := range f.ownersOf(ours.program) {
		f.add(v1alpha1.BpfNodeEarlierInChain, other.program.ID, owner, "%s runs before %s at %s of %s, and can end the chain; it is %s",
			describe(other.program), owner, ours.point.Type, place(ours.point), heldBy(other.program))
	}
}

// ownersOf returns the objects that a program, or the members of a dispatcher, were loaded
// for.
func (f *finder) ownersOf(program *v1alpha1.BpfNodeProgram) []*v1alpha1.BpfNodeOwner {
	var owners []*v1alpha1.BpfNodeOwner
	for _, p := range append([]*v1alpha1.BpfNodeProgram{program}, f.members[program.ID]...) {
		if p.Owner != nil && !slices.ContainsFunc(owners, func(o *v1alpha1.BpfNodeOwner) bool { return *o == *p.Owner }) {
			owners = append(owners, p.Owner)
		}
	}
	return owners
}

// event is a tracepoint or function with a limit on the number of its programs.
type event struct{ kind, target string }

func (e event) limit() int {
	if e.kind == "tracepoint" {
		return eventPrograms
	}
	return functionPrograms
}

// wantsEvent reports whether the object is to be attached to the event. The group of a
// tracepoint isn't always known.
func (r Report) wantsEvent(e event) bool {
	if e.kind != "tracepoint" {
		_, wants := r.wants(e.target, "fentry", "fexit")
		return wants
	}
	if _, wants := r.wants(e.target, e.kind); wants || strings.Contains(e.target, "/") {
		return wants
	}
	return r.Type == e.kind && slices.ContainsFunc(r.Links, func(l v1alpha1.BpfProgramLink) bool { return strings.HasSuffix(l.AttachPoint, "/"+e.target) })
}

func (f *finder) eventNearLimit() {
	events := map[event][]*v1alpha1.BpfNodeProgram{}
	for _, program := range f.programs {
		for _, point := range program.AttachPoints {
			switch point.Type {
			case "tracepoint":
				events[event{point.Type, point.Target}] = append(events[event{point.Type, point.Target}], program)
			case "fentry", "fexit", "fmod_ret", "lsm":
				if point.TargetProgramID == 0 { // functions of programs also have the limit, but no object of bpfman attaches to them
					events[event{"function", point.Target}] = append(events[event{"function", point.Target}], program)
				}
			}
		}
	}
	for _, e := range slices.SortedFunc(maps.Keys(events), func(a, b event) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.target, b.target))
	}) {
		if len(events[e]) >= near(e.limit()) {
			f.nearLimit(e, events[e])
		}
	}
}

// mostOfThem precedes, in a message, who holds most of the programs of an event.
const mostOfThem = ", most of them "

func (f *finder) nearLimit(e event, programs []*v1alpha1.BpfNodeProgram) {
	owners := map[v1alpha1.BpfNodeOwner]bool{}
	for _, program := range programs {
		if program.Owner != nil {
			owners[*program.Owner] = true
		}
	}
	for _, report := range f.reports {
		if report.wantsEvent(e) {
			owners[report.Owner] = true
		}
	}
	// The exact number would change the message with each program.
	has := fmt.Sprintf("%s %s has at least %d of the %d programs that the kernel allows", e.kind, e.target, near(e.limit()), e.limit())
	if len(programs) >= e.limit() {
		has = fmt.Sprintf("%s %s has all of the %d programs that the kernel allows", e.kind, e.target, e.limit())
	}
	has += mostOfThem + mostHeldBy(programs)
	if len(owners) == 0 {
		f.add(v1alpha1.BpfNodeEventNearLimit, 0, nil, "%s", has)
	}
	for _, owner := range slices.SortedFunc(maps.Keys(owners), compareOwners) {
		f.add(v1alpha1.BpfNodeEventNearLimit, 0, &owner, "%s; %s uses it", has, owner)
	}
}

func (f *finder) dispatcherFull() {
	for _, program := range f.programs {
		if !program.Bpfman || len(f.members[program.ID]) < slots {
			continue
		}
		for _, point := range program.AttachPoints {
			kind, _, _ := strings.Cut(point.Type, "/")
			waits, by := false, f.namespacesIn(program.ID)
			for _, report := range f.reports {
				if link, wants := report.wants(hookOf(point), kind); wants && link.State != v1alpha1.LinkAttached {
					waits = true
					f.add(v1alpha1.BpfNodeDispatcherFull, program.ID, &report.Owner, "%s isn't attached to %s of %s, because bpfman's dispatcher there has %d programs and no free slot%s",
						report.Owner, point.Type, place(point), slots, by)
				}
			}
			if !waits {
				f.add(v1alpha1.BpfNodeDispatcherFull, program.ID, nil, "bpfman's dispatcher at %s of %s has %d programs and no free slot%s", point.Type, place(point), slots, by)
			}
		}
	}
}

func (f *finder) unowned() {
	for _, program := range f.programs {
		if program.Bpfman && program.Owner == nil && !v1alpha1.IsDispatcher(program.Name) {
			f.add(v1alpha1.BpfNodeUnownedProgram, program.ID, nil, "bpfman loaded %s, but no object owns it: another client of the bpfman daemon loaded it", describe(program))
		}
	}
}

func compareOwners(a, b v1alpha1.BpfNodeOwner) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Reasons of the conditions.
const (
	reasonFound   = "Found"
	reasonNone    = "NoneFound"
	reasonUnknown = "ReportsNotRead"
)

// maxTold is the maximum number of conflicts in a condition's message.
const maxTold = 3

// Conditions returns a condition for each type of conflict. If the reports couldn't be
// read, unread is the reason, and ForeignXDP, which needs the reports, has the status
// Unknown unless there are conflicts.
func Conditions(conflicts []v1alpha1.BpfNodeConflict, unread error) []metav1.Condition {
	var conditions []metav1.Condition
	for _, kind := range Types {
		var told []string
		for _, c := range conflicts {
			if c.Type == kind {
				told = append(told, c.Message)
			}
		}
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reasonNone, Message: "No conflict of this type was found."}
		switch {
		case len(told) > maxTold:
			told = append(told[:maxTold:maxTold], fmt.Sprintf("%d more", len(told)-maxTold))
			fallthrough
		case len(told) > 0:
			condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, reasonFound, strings.Join(told, "; ")
		case unread != nil && kind == v1alpha1.BpfNodeForeignXDP:
			condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, reasonUnknown, unread.Error()
		}
		conditions = append(conditions, condition)
	}
	return conditions
}
