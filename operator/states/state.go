// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package states writes the States of upstream's v0.6: one object for each application on each node, where the kind's
// definition is installed. It computes them from reports.
package states

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// Limits of a State. The API server limits an object to 1.5 MiB, and a link has about 400 bytes.
const (
	maxLinks   = reports.MaxLinks
	maxMessage = 4096
	maxNamed   = 5
)

// Program is a program of an application.
type Program struct {
	Name string
	Type v1alpha1.ApplicationProgramType
	// Traced is the kernel function of a fentry or fexit program. It is part of its identity, and so is Member, the label of its
	// only member.
	Traced, Member string
}

// Application is what the States of an application depend on.
type Application struct {
	Name     string
	UID      types.UID
	Deleting bool
	Programs []Program
}

// programsOf returns the programs of an application, in its order.
func programsOf(o v1alpha1.UserObject) []Program {
	var programs []Program
	if application, ok := o.(v1alpha1.LinkedObject); ok {
		ids := userobject.MemberIDs{}
		for _, p := range application.Linked().Spec.Programs {
			program := Program{Name: p.Name, Type: p.Type}
			for _, links := range []*v1alpha1.FunctionLinks{p.FEntry, p.FExit} {
				if links != nil {
					program.Traced = links.Function
					program.Member = v1alpha1.LabelValue(ids.Unique(userobject.MemberID(strings.ToLower(string(p.Type)), links.Function, p.Name)))
				}
			}
			programs = append(programs, program)
		}
	}
	return programs
}

// nameOf returns the name of the State of an application on a node. A new application with the name of an earlier one has
// other States, so it doesn't wait until those are deleted.
func nameOf(kind string, application *Application, node string) string {
	const separator = "\x00"
	sum := sha256.Sum256([]byte(kind + separator + string(application.UID) + separator + node))
	suffix := "-" + hex.EncodeToString(sum[:8])
	base := application.Name[:min(len(application.Name), validation.DNS1123SubdomainMaxLength-len(suffix))]
	return strings.TrimRight(base, "-.") + suffix
}

// labelsOf returns the labels of the State of an application on a node, of which label is the label.
func labelsOf(application *Application, label string) map[string]string {
	return map[string]string{v1alpha1.LabelOwnedByProgram: v1alpha1.LabelValue(application.Name), v1alpha1.LabelHostname: label}
}

// member is a report about one member of an application, with its detail.
type member struct {
	*reports.Report
	reports.State
	reports.Detail
}

// loaded reports whether the program is loaded as the application describes it.
func (m member) loaded() bool { return m.ProgramID != 0 && !m.Previous && m.Undecodable == "" }

// failed reports whether the node doesn't have what was requested.
func (m member) failed() bool { return m.Undecodable != "" || m.Condition.Failed() }

// linkStatus returns whether the links are as the application describes them.
func (m member) linkStatus() v1alpha1.ProgramLinkStatus {
	failing := slices.ContainsFunc(m.Links, func(l v1alpha1.BpfProgramLink) bool { return l.Error != "" })
	switch {
	case m.Condition == v1alpha1.BpfProgCondNotLoaded && m.loaded() && !failing:
		return v1alpha1.ProgramLinkUpdateAttachInfoError
	case m.failed():
		return v1alpha1.ProgramLinkError
	case !m.loaded(), m.Condition != v1alpha1.BpfProgCondLoaded && !m.Condition.Idle():
		return v1alpha1.ProgramLinkPending
	}
	return v1alpha1.ProgramLinkSuccess
}

// severity orders the values of ProgramLinkStatus. A program has that of the worst of its members.
var severity = []v1alpha1.ProgramLinkStatus{
	v1alpha1.ProgramLinkSuccess, v1alpha1.ProgramLinkPending, v1alpha1.ProgramLinkUpdateAttachInfoError, v1alpha1.ProgramLinkError,
}

// statusOf returns the status of the State of an application on a node with some reports, without updateCount and times.
func statusOf(application *Application, node string, of []*reports.Report) v1alpha1.ApplicationStateStatus {
	members := membersOf(of)
	status := v1alpha1.ApplicationStateStatus{Node: node, AppLoadStatus: v1alpha1.ApplicationLoadSuccess}
	budget := &links{application: application.UID, node: node, each: maxLinks / max(1, len(application.Programs))}
	errs := undecodable(members)
	var waits []string
	condition := v1alpha1.ApplicationStateSuccess
	for _, p := range application.Programs {
		state := v1alpha1.ApplicationProgramState{Name: p.Name, Type: p.Type, ProgramLinkStatus: v1alpha1.ProgramLinkSuccess}
		own := slices.DeleteFunc(slices.Clone(members), func(m member) bool { return !p.matches(m) })
		if len(own) == 0 {
			state.ProgramLinkStatus = v1alpha1.ProgramLinkPending
			waits = append(waits, p.Name)
		}
		for _, m := range own {
			if m.ProgramID != 0 {
				state.ProgramID = new(m.ProgramID)
			}
			said := m.linkStatus()
			if slices.Index(severity, said) > slices.Index(severity, state.ProgramLinkStatus) {
				state.ProgramLinkStatus = said
			}
			switch {
			case m.failed():
				errs = append(errs, p.Name+": "+cmp.Or(m.Undecodable, m.Message))
			case said == v1alpha1.ProgramLinkPending:
				waits = append(waits, strings.TrimSuffix(p.Name+": "+m.Message, ": "))
			}
		}
		budget.add(&state, p, own)
		status.Programs = append(status.Programs, state)
	}
	switch {
	case slices.ContainsFunc(members, func(m member) bool { return m.Condition == v1alpha1.BpfProgCondNotUnloaded && application.Deleting }):
		status.AppLoadStatus, condition = v1alpha1.ApplicationUnloadError, v1alpha1.ApplicationStateUnloadError
	case slices.ContainsFunc(members, func(m member) bool { return m.failed() && !m.loaded() }):
		status.AppLoadStatus, condition = v1alpha1.ApplicationLoadError, v1alpha1.ApplicationStateError
	case slices.ContainsFunc(members, func(m member) bool { return !m.loaded() }), len(waits) > 0:
		status.AppLoadStatus = v1alpha1.ApplicationNotLoaded
	}
	switch {
	case condition != v1alpha1.ApplicationStateSuccess:
	case len(errs) > 0:
		condition = v1alpha1.ApplicationStateError
	case len(waits) > 0:
		condition = v1alpha1.ApplicationStatePending
	}
	status.Conditions = []metav1.Condition{{
		Type: string(condition), Status: metav1.ConditionTrue, Reason: string(condition), Message: message(errs, waits) + budget.note(),
		ObservedGeneration: generation(members),
	}}
	return status
}

// complete reports whether the details of reports are kept. For some time after they are first wanted, they aren't yet.
func complete(of []*reports.Report) bool {
	return !slices.ContainsFunc(of, func(r *reports.Report) bool {
		state := r.State.Value()
		_, kept := state.Detail()
		return !kept && state.Undecodable == ""
	})
}

// undecodable says why reports can't be decoded that match no program for this reason.
func undecodable(members []member) []string {
	var reasons []string
	for _, m := range members {
		if m.Undecodable != "" && m.Function == "" {
			reasons = append(reasons, "report "+m.Name+": "+m.Undecodable)
		}
	}
	return reasons
}

// membersOf returns reports with their details, in the order of their names. A report whose detail isn't known
// is about no program.
func membersOf(of []*reports.Report) []member {
	members := make([]member, 0, len(of))
	for _, r := range of {
		state := r.State.Value()
		detail, _ := state.Detail()
		members = append(members, member{r, state, detail})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// matches reports whether a report is about the program. Programs of two types, or for two kernel functions, can have the
// same name. Reports of older agents lack the type.
func (p Program) matches(m member) bool {
	return m.Function == p.Name && (m.ProgramType == "" || m.ProgramType == strings.ToLower(string(p.Type))) && (p.Member == "" || m.Member == p.Member)
}

// generation returns the generation of the application that all reports describe, at least.
func generation(members []member) int64 {
	if len(members) == 0 {
		return 0
	}
	return slices.MinFunc(members, func(a, b member) int { return cmp.Compare(a.Generation, b.Generation) }).Generation
}

// message returns the message of the condition.
func message(errs, waits []string) string {
	text := "All programs are loaded, and attached where the application selects something"
	switch {
	case len(errs) > 0:
		text = first(errs, "; ")
	case len(waits) > 0:
		text = "Waiting for the node to load and attach " + first(waits, ", ")
	}
	return shorten.Middle(text, maxMessage)
}

// first joins the first texts, and says how many more there are.
func first(texts []string, between string) string {
	text := strings.Join(texts[:min(len(texts), maxNamed)], between)
	if more := len(texts) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
