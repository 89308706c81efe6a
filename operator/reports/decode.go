// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unique"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/liststream"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// maxMessage is the maximum length of a failure that is kept, in bytes.
const maxMessage = 600

// runsInstead matches what a message says about the program of the previous revision. The status of an object says this for all
// nodes.
var runsInstead = regexp.MustCompile(` \(the previously loaded program \d+ keeps running\)$`)

// metadata contains the fields of an object's metadata that are needed.
type metadata struct {
	liststream.Metadata

	UID    types.UID `json:"uid"`
	Labels struct {
		Member    string `json:"bpfman.io/appProgramId"`
		Node      string `json:"kubernetes.io/hostname"`
		OwnerKind string `json:"bpfman.io/ownerKind"`
	} `json:"labels"`
	OwnerReferences []struct {
		Kind       string    `json:"kind"`
		Name       string    `json:"name"`
		UID        types.UID `json:"uid"`
		Controller bool      `json:"controller"`
	} `json:"ownerReferences"`
	ManagedFields []struct {
		Manager string    `json:"manager"`
		Time    time.Time `json:"time"`
	} `json:"managedFields"`
}

// status contains the fields of a report's status that are needed.
type status struct {
	Node            string `json:"node"`
	OwnerGeneration int64  `json:"ownergeneration"`
	ProgramID       uint32 `json:"programid"`
	Previous        bool   `json:"previous"`
	Problem         string `json:"problem"`
	Conditions      []struct {
		Type    v1alpha1.BpfProgramConditionType `json:"type"`
		Status  metav1.ConditionStatus           `json:"status"`
		Message string                           `json:"message"`
	} `json:"conditions"`
	Links    []link `json:"links"`
	Bytecode struct {
		Policies []v1alpha1.BpfProgramPolicy `json:"policies"`
	} `json:"bytecode"`
}

// link is an attach point of a report.
type link struct {
	AttachPoint string             `json:"attachpoint"`
	State       v1alpha1.LinkState `json:"state"`
}

// inPods reports whether links are attached, except for some in pods.
func inPods(links []link) bool {
	attached, failed := false, false
	for _, l := range links {
		switch {
		case l.State == v1alpha1.LinkAttached:
			attached = true
		case strings.Contains(l.AttachPoint, " in pod "), strings.Contains(l.AttachPoint, " of container "):
			failed = true
		default:
			return false
		}
	}
	return attached && failed
}

// Decode decodes a report in JSON from the API server.
func Decode(object []byte) (*Report, error) {
	report, _, err := decode(object)
	return report, err
}

// decode decodes a report, with its Detail if that is wanted.
func (s *Store) decode(object jsontext.Value) (*Report, liststream.Metadata, error) {
	report, m, err := decode(object)
	if err != nil || !s.detailed(report.Owner.Value()) || report.State.Value().Undecodable != "" {
		return report, m, err
	}
	var read struct {
		Status Detail `json:"status"`
	}
	if err := json.Unmarshal(object, &read, liststream.Lax); err != nil {
		read.Status = Detail{} // the links are of another schema. It is kept nevertheless, so that nothing waits for it
	}
	most := MaxLinks
	if report.Owner.Value().Namespace != "" {
		most = MaxLinksOfTenants
	}
	report.State = unique.Make(report.State.Value().WithDetail(read.Status, most))
	return report, m, nil
}

// decode decodes a report. If the status can't be decoded, because it was stored with another schema, the report
// is Undecodable.
func decode(object jsontext.Value) (*Report, liststream.Metadata, error) {
	var read struct {
		Metadata metadata `json:"metadata"`
		Status   status   `json:"status"`
	}
	unread := json.Unmarshal(object, &read, liststream.Lax)
	if unread == nil {
		return reportOf(&read.Metadata, stateOf(&read.Metadata, &read.Status), &read.Status), read.Metadata.Metadata, nil
	}
	var rest struct {
		Metadata metadata `json:"metadata"`
	}
	if err := json.Unmarshal(object, &rest, liststream.Lax); err != nil {
		return nil, liststream.Metadata{}, fmt.Errorf("decode the metadata of a report: %w", err)
	}
	state := stateOf(&rest.Metadata, &status{})
	state.Undecodable = shorten.Middle(unread.Error(), maxMessage)
	return reportOf(&rest.Metadata, state, &status{}), rest.Metadata.Metadata, nil
}

func reportOf(m *metadata, state State, s *status) *Report {
	owner := Owner{Namespace: m.Namespace}
	for _, reference := range m.OwnerReferences {
		if reference.Controller {
			owner.Kind, owner.Name, owner.UID = reference.Kind, reference.Name, reference.UID
		}
	}
	return &Report{
		Name: m.Name, UID: m.UID, ProgramID: s.ProgramID, Foreign: m.foreign(),
		Owner: unique.Make(owner),
		Node:  unique.Make(Node{Label: m.Labels.Node, Name: s.Node}),
		State: unique.Make(state),
	}
}

func stateOf(m *metadata, s *status) State {
	state := State{Kind: m.Labels.OwnerKind, Member: m.Labels.Member, Generation: s.OwnerGeneration, Previous: s.Previous, Linked: len(s.Links) > 0}
	if len(s.Conditions) > 0 {
		state.Condition = s.Conditions[0].Type
	}
	if state.Condition.Failed() || state.Condition == v1alpha1.BpfProgCondNone {
		cause, _, _ := strings.Cut(s.Conditions[0].Message, "\n")
		if s.Previous { // the id of what runs instead differs on each node
			cause = runsInstead.ReplaceAllString(cause, "")
		}
		state.Message, state.Problem = shorten.Middle(cause, maxMessage), problem.Reason(s.Problem)
		state.InPods = state.Condition == v1alpha1.BpfProgCondNotLoaded && inPods(s.Links)
	}
	for _, c := range s.Conditions {
		state.Stalled = state.Stalled || string(c.Type) == string(v1alpha1.Stalled) && c.Status == metav1.ConditionTrue
	}
	return state.WithPolicies(s.Bytecode.Policies)
}

// foreign reports whether another client than an agent wrote last. Times have a precision of a second. If several
// clients wrote within the same second, foreign returns true.
func (m *metadata) foreign() bool {
	var last time.Time
	for _, by := range m.ManagedFields {
		if by.Time.After(last) {
			last = by.Time
		}
	}
	for _, by := range m.ManagedFields {
		if by.Manager != v1alpha1.AgentFieldManager && by.Time.Equal(last) {
			return true
		}
	}
	return false
}
