// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package report builds BpfProgram objects, which report the programs and links on this
// node, and errors. It doesn't write them.
package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Attach identifies a wanted link of a function in a plan.
type Attach struct {
	Load     int
	Function string
	Link     daemon.Link
}

// Outcome contains the errors of executing a plan.
type Outcome struct {
	// Loads contains the errors by the index of the Load in the plan. A BytecodeError
	// is about the source of the bytecode.
	Loads map[int]error
	// Attaches contains the errors of links that couldn't be attached.
	Attaches map[Attach]error
	// Removals contains the errors of links and programs that couldn't be removed.
	Removals []error
	// Judgements contains the verdicts of policies on the bytecode, by the index of the
	// Load in the plan. It is empty if there are no policies.
	Judgements map[int]Judgement
}

// Judgement contains the verdicts of policies on bytecode.
type Judgement struct {
	// Image is the resolved image. Its digests are empty if they aren't known.
	Image bytecode.Image
	// Signers contains the signers of the image, from the authorities of policies.
	Signers  []string
	Policies []v1alpha1.BpfProgramPolicy
}

// PolicyError is the error of a Load that policies don't allow. If it isn't Final, it isn't
// known yet whether they do.
type PolicyError struct {
	Err   error
	Final bool
}

func (e *PolicyError) Error() string { return e.Err.Error() }
func (e *PolicyError) Unwrap() error { return e.Err }

// UndoneError is about where a version isn't attached, because it is rolled back there.
type UndoneError struct{ Message string }

func (e *UndoneError) Error() string { return e.Message }

// Problem implements the method of errors that name their problem.
func (e *UndoneError) Problem() problem.Reason { return problem.RolledBack }

// IsUndone reports whether an error is an UndoneError. Such a place is decided, so a retry can't help, and nothing waits for it.
func IsUndone(err error) bool {
	undone := (*UndoneError)(nil)
	return errors.As(err, &undone)
}

// BytecodeError is a failure to get the bytecode, before the daemon is called. It is Final if
// a retry can't help until the object or the image changes.
type BytecodeError struct {
	Err   error
	Final bool
}

func (e *BytecodeError) Error() string { return e.Err.Error() }
func (e *BytecodeError) Unwrap() error { return e.Err }

// Err joins all errors except those about where a version is undone. It returns nil if there are none.
func (o Outcome) Err() error {
	var all []error
	for _, n := range slices.Sorted(maps.Keys(o.Loads)) {
		all = append(all, o.Loads[n])
	}
	keys := slices.SortedFunc(maps.Keys(o.Attaches), func(a, b Attach) int {
		return cmp.Or(cmp.Compare(a.Load, b.Load), strings.Compare(a.Function, b.Function),
			strings.Compare(a.Link.Point, b.Link.Point), strings.Compare(a.Link.Digest, b.Link.Digest))
	})
	for _, k := range keys {
		if err := o.Attaches[k]; !IsUndone(err) {
			all = append(all, err)
		}
	}
	return errors.Join(append(all, o.Removals...)...)
}

// FailedDiscovered returns the failed attaches at attach points that the plan
// discovered on the node. These might not exist anymore. Where a reason is known,
// nothing was attempted.
func (o Outcome) FailedDiscovered(p plan.Plan) []Attach {
	return slices.DeleteFunc(slices.Collect(maps.Keys(o.Attaches)), func(a Attach) bool {
		return !p.Discovers(a.Load, a.Function, a.Link)
	})
}

// Programs returns the BpfPrograms or BpfNsPrograms of an owner that selects this node,
// one for each of its programs, whether it is loaded or not.
func Programs(owner program.Owner, node string, p plan.Plan, actual []daemon.Program, o Outcome) []v1alpha1.ProgramObject {
	var out []v1alpha1.ProgramObject
	for n, load := range p.Loads {
		present := p.Present(n, actual)
		for _, wanted := range load.Programs {
			function := wanted.Function()
			object := empty(owner, node, wanted.Member)
			if loaded, ok := present[function]; ok {
				describe(object, loaded)
				resolved(object, loaded.Image)
				judged(object, o.Judgements[n], wanted.Policies)
				links, failed := linksOf(p, n, wanted, loaded, o)
				object.GetStatus().Links = links
				conditions, reason := loadedConditions(owner, wanted, loaded, failed, o, object.GetStatus().Bytecode)
				setConditions(object, conditions, reason)
				addDetails(object, owner.Kind, wanted.Member, wanted.Points)
			} else {
				predecessor := describePredecessor(object, actual, func(a daemon.Program) bool {
					return a.OwnerUID == string(p.UID) && a.Function == function
				})
				resolved(object, o.Judgements[n].Image)
				judged(object, o.Judgements[n], nil)
				conditions, reason := notLoadedConditions(o.Loads[n], predecessor)
				setConditions(object, conditions, reason)
				addDetails(object, owner.Kind, wanted.Member, nil)
			}
			out = append(out, object)
		}
	}
	for _, blocked := range p.Blocked {
		object := empty(owner, node, blocked.Member)
		predecessor := describePredecessor(object, actual, func(a daemon.Program) bool { return p.KeptFor(blocked, a) })
		state := v1alpha1.Reconciling
		switch blocked.Condition {
		case v1alpha1.BpfProgCondNotLoaded, v1alpha1.BpfProgCondRolledBack:
			state = v1alpha1.Stalled
		default: // a map owner can still be loaded
		}
		setConditions(object, state.Conditions(blocked.Condition.Condition(blocked.Err.Error()+predecessor)), problem.Of(blocked.Err))
		addDetails(object, owner.Kind, blocked.Member, nil)
		out = append(out, object)
	}
	return out
}

// addDetails adds what only States need, with the attach points of a program that is loaded. In the reports of other kinds, this
// would double the links in pods. Tenants don't see the node's PIDs and paths.
func addDetails(object v1alpha1.ProgramObject, kind string, member program.Member, points []program.AttachPoint) {
	namespaced := object.GetNamespace() != ""
	if !v1alpha1.HasLinks(kind, namespaced) {
		return
	}
	status := object.GetStatus()
	status.ProgramType = member.ProgramType
	hooks := map[daemon.Link]*v1alpha1.BpfProgramHook{}
	for _, point := range points {
		hook := point.Hook()
		if namespaced && hook != nil {
			hook.NetNS, hook.ContainerPID = "", nil
		}
		hooks[plan.LinkOf(point)], hooks[daemon.Link{Point: point.Name}] = hook, hook // attached, and not
	}
	for i, link := range status.Links {
		status.Links[i].Hook = hooks[daemon.Link{Point: link.AttachPoint, Digest: link.Digest}]
	}
}

// judged sets the verdicts of policies on the bytecode and, for policies that allow the
// bytecode, those on attach points.
func judged(object v1alpha1.ProgramObject, j Judgement, points []v1alpha1.BpfProgramPolicy) {
	b := object.GetStatus().Bytecode
	if b == nil {
		return
	}
	for _, signer := range j.Signers {
		b.Signers = append(b.Signers, shorten.Middle(signer, maxLinkError))
	}
	b.Policies = slices.Clone(j.Policies)
	for i, said := range b.Policies {
		n := slices.IndexFunc(points, func(p v1alpha1.BpfProgramPolicy) bool { return p.Name == said.Name })
		if n >= 0 && said.Verdict == v1alpha1.VerdictAllowed {
			b.Policies[i] = points[n]
		}
	}
	for i := range b.Policies {
		b.Policies[i].Message = shorten.Middle(b.Policies[i].Message, maxLinkError)
	}
}

// Name returns the name of a program's report: the owner's name, and a hash of the
// other fields that identify it among all kinds, namespaces, and nodes.
func Name(owner program.Owner, member, node string) string { return named(owner, member, node, 4) }

// LongName returns the name of a report whose Name is that of another one: of an application's reports on thousands of
// nodes, two can have the same one.
func LongName(owner program.Owner, member, node string) string {
	return named(owner, member, node, 16)
}

// named returns a name with some bytes of the hash.
func named(owner program.Owner, member, node string, bytes int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{owner.Kind, owner.Namespace, owner.Name, string(owner.UID), member, node}, "\x00")))
	suffix := "-" + hex.EncodeToString(sum[:bytes])
	base := owner.Name[:min(len(owner.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return strings.TrimRight(base, "-.") + suffix
}

func empty(owner program.Owner, node string, member program.Member) v1alpha1.ProgramObject {
	object := v1alpha1.ProgramKind(owner.Namespace != "").New()
	object.SetNamespace(owner.Namespace)
	object.SetName(Name(owner, member.ID, node))
	object.SetLabels(map[string]string{
		v1alpha1.LabelOwnedByProgram: v1alpha1.LabelValue(owner.Name),
		v1alpha1.LabelAppProgramID:   v1alpha1.LabelValue(member.ID),
		v1alpha1.LabelHostname:       v1alpha1.LabelValue(node),
		v1alpha1.LabelOwnerKind:      owner.Kind,
	})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: owner.Kind, Name: owner.Name, UID: owner.UID, Controller: new(true),
	}})
	object.GetSpec().Type = member.Type
	status := object.GetStatus()
	status.Node = node
	status.OwnerGeneration = owner.Generation
	status.Function = member.LoadInfo().GetName()
	if image := BytecodeName(owner.Bytecode); image != "" {
		status.Bytecode = &v1alpha1.BpfProgramBytecode{Image: image}
	}
	return object
}

// BytecodeName returns the bytecode in the form of the owner's spec: the image's
// reference, or the path with the prefix "file:".
func BytecodeName(b v1alpha1.BytecodeSelector) string {
	switch {
	case b.Image != nil:
		return b.Image.Url
	case b.Path != nil:
		return "file:" + *b.Path
	default:
		return ""
	}
}

// resolved sets the digests that the image's reference was resolved to.
func resolved(object v1alpha1.ProgramObject, image bytecode.Image) {
	if b := object.GetStatus().Bytecode; b != nil && b.Image == image.Reference {
		b.Digest = image.Digest
		if image.Manifest != image.Digest {
			b.Manifest = image.Manifest
		}
	}
}

// describe sets the fields that come from the daemon's program.
func describe(object v1alpha1.ProgramObject, loaded daemon.Program) {
	object.SetAnnotations(map[string]string{v1alpha1.AnnotationProgramID: strconv.FormatUint(uint64(loaded.ID), 10)})
	object.GetSpec().Maps = loaded.Maps
	status := object.GetStatus()
	status.ProgramID = loaded.ID
	status.Tag = loaded.Tag
	status.LoadedAt = loaded.LoadedAt
	status.MapIDs = loaded.MapIDs
	status.MapOwnerID = loaded.MapOwnerID
	status.MapUsedBy = loaded.MapUsedBy
}

// describePredecessor describes the predecessor that still runs in place of a program
// that can't be loaded. It returns text about that for a message.
func describePredecessor(object v1alpha1.ProgramObject, actual []daemon.Program, precedes func(daemon.Program) bool) string {
	for _, a := range slices.Backward(actual) {
		if !precedes(a) {
			continue
		}
		describe(object, a)
		byPoint := map[string]v1alpha1.BpfProgramLink{}
		for _, id := range slices.Sorted(maps.Keys(a.Links)) {
			if link := a.Links[id]; link.Point != "" {
				byPoint[link.Point] = v1alpha1.BpfProgramLink{AttachPoint: link.Point, Digest: link.Digest, LinkID: id, State: v1alpha1.LinkAttached}
			}
		}
		object.GetStatus().Links, object.GetStatus().Previous = sorted(byPoint), true
		return fmt.Sprintf(" (the previously loaded program %d keeps running)", a.ID)
	}
	return ""
}

// linksOf returns the wanted attach points with their states, and the errors of attaches. If several
// programs share a function, the first one also has the links that should have been removed.
func linksOf(p plan.Plan, n int, wanted plan.Program, loaded daemon.Program, o Outcome) ([]v1alpha1.BpfProgramLink, []error) {
	users := p.Loads[n].Users(wanted.Function())
	first := users[0].ID == wanted.ID
	byPoint := map[string]v1alpha1.BpfProgramLink{}
	for _, id := range slices.Sorted(maps.Keys(loaded.Links)) {
		link := loaded.Links[id]
		leftover := first && link.Point != "" && !slices.ContainsFunc(users, func(u plan.Program) bool { return u.Wants(link) })
		if !leftover && !wanted.Wants(link) {
			continue
		}
		// The wanted link takes precedence over a leftover one with the same name.
		if _, there := byPoint[link.Point]; there && leftover {
			continue
		}
		byPoint[link.Point] = v1alpha1.BpfProgramLink{AttachPoint: link.Point, Digest: link.Digest, LinkID: id, State: v1alpha1.LinkAttached}
	}
	var failed []error
	for _, point := range wanted.Points {
		link := plan.LinkOf(point)
		if there := byPoint[point.Name]; there.LinkID != 0 && there.Digest == link.Digest {
			continue
		}
		missing := v1alpha1.BpfProgramLink{AttachPoint: point.Name, State: v1alpha1.LinkNotAttached}
		if err := o.Attaches[Attach{n, wanted.Function(), link}]; err != nil {
			missing.Error, missing.Problem = shorten.Middle(err.Error(), maxLinkError), string(problem.Of(err))
			failed = append(failed, err)
		}
		byPoint[point.Name] = missing
	}
	return sorted(byPoint), failed
}

// sorted returns links by their attach points, which are unique in a report.
func sorted(byPoint map[string]v1alpha1.BpfProgramLink) []v1alpha1.BpfProgramLink {
	return slices.SortedFunc(maps.Values(byPoint), func(a, b v1alpha1.BpfProgramLink) int {
		return strings.Compare(a.AttachPoint, b.AttachPoint)
	})
}

// Maximum lengths of the text of one error, in bytes, because an object can have many
// errors. The API server limits objects to 1.5 MiB, and the message of a condition to
// 32 KiB.
const (
	maxLinkError = 1024
	maxFewError  = 8192
)

// few joins the texts of the first few errors on one line. The links have all errors.
func few(errs []error) string {
	const most = 3
	texts := make([]string, 0, most)
	for _, err := range errs[:min(most, len(errs))] {
		texts = append(texts, shorten.Middle(err.Error(), maxFewError))
	}
	text := strings.Join(texts, "; ")
	if more := len(errs) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// stateOf returns Stalled if one of the errors stays until somebody changes something, and
// Reconciling if a retry can succeed.
func stateOf(errs ...error) v1alpha1.State {
	for _, err := range errs {
		var absent *program.AbsentError
		var source *BytecodeError
		var denied *PolicyError
		var failed *daemon.Error
		switch {
		case errors.As(err, &absent):
		case errors.As(err, &source) && !source.Final:
		case errors.As(err, &denied) && !denied.Final:
		case errors.As(err, &failed) && !failed.Refused():
		default:
			return v1alpha1.Stalled
		}
	}
	return v1alpha1.Reconciling
}

// NotUnloaded returns the conditions about failed removals, and their problem.
func (o Outcome) NotUnloaded() ([]metav1.Condition, problem.Reason) {
	return stateOf(o.Removals...).Conditions(v1alpha1.BpfProgCondNotUnloaded.Condition(few(o.Removals))), problem.Of(errors.Join(o.Removals...))
}

func loadedConditions(owner program.Owner, wanted plan.Program, loaded daemon.Program, failed []error, o Outcome, b *v1alpha1.BpfProgramBytecode) ([]metav1.Condition, problem.Reason) {
	var verdict v1alpha1.PolicyVerdict
	var said error
	if b != nil {
		verdict, said = policy.Sum(b.Policies)
	}
	switch {
	case wanted.Problem != nil:
		return stateOf(wanted.Problem).Conditions(v1alpha1.BpfProgCondNotLoaded.Condition(wanted.Problem.Error())), problem.Of(wanted.Problem)
	case len(failed) > 0:
		condition := v1alpha1.BpfProgCondNotLoaded
		if IsUndone(errors.Join(failed...)) {
			condition = v1alpha1.BpfProgCondRolledBack
		}
		return stateOf(failed...).Conditions(condition.Condition(few(failed))), problem.Of(errors.Join(failed...))
	case len(o.Removals) > 0:
		return o.NotUnloaded()
	case verdict == v1alpha1.VerdictDenied:
		return v1alpha1.Stalled.Conditions(v1alpha1.BpfProgCondPolicyViolated.Condition(said.Error())), problem.Of(said)
	}
	condition := v1alpha1.BpfProgCondLoaded.Condition()
	notes := slices.Concat(owner.Choices(wanted.Member), wanted.Notes)
	if wanted.Idle != "" {
		condition, notes = wanted.Idle.Condition(), nil
	}
	if loaded.Unshared != "" {
		notes = append(notes, problem.Notef(problem.GlobalsNotShared, "the node's daemon gives each function its own copy of the global variables that "+
			"several use, so none sees what another one writes: %s", loaded.Unshared))
	}
	notes = append(notes, wanted.Starts...)
	if verdict == v1alpha1.VerdictWarned {
		notes = append(notes, problem.Notef(problem.WouldBeDenied, "mode enforce would deny it: %v", said))
	}
	if verdict == v1alpha1.VerdictUnknown {
		notes = append(notes, problem.Note{Reason: problem.Of(said), Text: "policies can't be evaluated: " + said.Error()})
	}
	reason := problem.Reason("")
	for _, note := range notes {
		condition.Message += "; " + note.Text
		reason = cmp.Or(reason, note.Reason)
	}
	return v1alpha1.Ready.Conditions(condition), reason
}

func notLoadedConditions(err error, predecessor string) ([]metav1.Condition, problem.Reason) {
	if err == nil {
		gone := problem.Notef(problem.DaemonBusy, "the daemon does not have the program anymore, and the agent loads it again%s", predecessor)
		return v1alpha1.Reconciling.Conditions(v1alpha1.BpfProgCondNotLoaded.Condition(gone.Text)), gone.Reason
	}
	condition := v1alpha1.BpfProgCondNotLoaded
	if denied := (*PolicyError)(nil); errors.As(err, &denied) {
		condition = v1alpha1.BpfProgCondPolicyDenied
	} else if pending := (*bytecode.PendingError)(nil); errors.As(err, &pending) {
		condition = v1alpha1.BpfProgCondNone // it hasn't failed
	} else if source := (*BytecodeError)(nil); errors.As(err, &source) {
		condition = v1alpha1.BpfProgCondBytecodeSelectorError
	}
	cause, log, _ := strings.Cut(err.Error(), "\n")
	return stateOf(err).Conditions(condition.Condition(strings.TrimSuffix(cause+predecessor+"\n"+log, "\n"))), problem.Of(err)
}

func setConditions(object v1alpha1.ProgramObject, conditions []metav1.Condition, reason problem.Reason) {
	for i := range conditions {
		conditions[i].ObservedGeneration = object.GetStatus().OwnerGeneration
	}
	object.GetStatus().Conditions, object.GetStatus().Problem = conditions, string(reason)
}

// LinksOf returns the attached links that Programs recorded in a status, by ID.
func LinksOf(status *v1alpha1.BpfProgramStatus) map[uint32]daemon.Link {
	links := map[uint32]daemon.Link{}
	for _, l := range status.Links {
		if l.State == v1alpha1.LinkAttached && l.LinkID != 0 {
			links[l.LinkID] = daemon.Link{Point: l.AttachPoint, Digest: l.Digest}
		}
	}
	return links
}
