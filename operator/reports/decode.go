// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package reports

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unique"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// maxMessage is the maximum length of a failure that is kept, in bytes. The verifier's statistics, and what the
// agent adds after the verdict, take about 300 bytes.
const maxMessage = 600

// metadata contains the fields of an object's metadata that are needed.
type metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
	Labels          struct {
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
	Conditions      []struct {
		Type    v1alpha1.BpfProgramConditionType `json:"type"`
		Status  metav1.ConditionStatus           `json:"status"`
		Message string                           `json:"message"`
	} `json:"conditions"`
	Links    []struct{} `json:"links"`
	Bytecode struct {
		Policies []v1alpha1.BpfProgramPolicy `json:"policies"`
	} `json:"bytecode"`
}

// The API server has validated what it serves, but possibly with an earlier schema.
var lax = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Decode decodes a report in JSON from the API server.
func Decode(object []byte) (*Report, error) {
	report, _, err := decode(object)
	return report, err
}

// decode decodes a report. If the status can't be decoded, because it was stored with another schema, the report
// is Undecodable.
func decode(object jsontext.Value) (*Report, metadata, error) {
	var read struct {
		Metadata metadata `json:"metadata"`
		Status   status   `json:"status"`
	}
	problem := json.Unmarshal(object, &read, lax)
	if problem == nil {
		return reportOf(&read.Metadata, stateOf(&read.Metadata, &read.Status), read.Status.Node), read.Metadata, nil
	}
	var rest struct {
		Metadata metadata `json:"metadata"`
	}
	if err := json.Unmarshal(object, &rest, lax); err != nil {
		return nil, metadata{}, fmt.Errorf("decode the metadata of a report: %w", err)
	}
	state := stateOf(&rest.Metadata, &status{})
	state.Undecodable = shorten.Middle(problem.Error(), maxMessage)
	return reportOf(&rest.Metadata, state, ""), rest.Metadata, nil
}

func reportOf(m *metadata, state State, node string) *Report {
	owner := Owner{Namespace: m.Namespace}
	for _, reference := range m.OwnerReferences {
		if reference.Controller {
			owner.Kind, owner.Name, owner.UID = reference.Kind, reference.Name, reference.UID
		}
	}
	return &Report{
		Name: m.Name, UID: m.UID, Foreign: m.foreign(),
		Owner: unique.Make(owner),
		Node:  unique.Make(Node{Label: m.Labels.Node, Name: node}),
		State: unique.Make(state),
	}
}

func stateOf(m *metadata, s *status) State {
	state := State{Kind: m.Labels.OwnerKind, Member: m.Labels.Member, Generation: s.OwnerGeneration, Linked: len(s.Links) > 0}
	if len(s.Conditions) > 0 {
		state.Condition = s.Conditions[0].Type
	}
	if state.Condition.Failed() {
		state.Message = shorten.Middle(s.Conditions[0].Message, maxMessage)
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

// list is a list of reports for a reflector.
type list struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject implements [runtime.Object].
func (l *list) DeepCopyObject() runtime.Object { return &list{l.TypeMeta, l.ListMeta, l.Items} }

// decodeList decodes a list as it arrives, one report at a time, because it can have hundreds of megabytes.
func decodeList(from io.Reader) (*list, error) {
	d := jsontext.NewDecoder(from, lax)
	read := &list{}
	err := eachMember(d, func(name string) error {
		switch name {
		case "metadata":
			var m struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			}
			if err := json.UnmarshalDecode(d, &m); err != nil {
				return fmt.Errorf("decode its metadata: %w", err)
			}
			read.ResourceVersion, read.Continue = m.ResourceVersion, m.Continue
			return nil
		case "items":
			return eachElement(d, func() error {
				object, err := d.ReadValue()
				if err != nil {
					return fmt.Errorf("read a report: %w", err)
				}
				report, _, err := decode(object)
				read.Items = append(read.Items, report)
				return err
			})
		}
		return d.SkipValue()
	})
	if err != nil {
		return nil, fmt.Errorf("read a list of reports: %w", err)
	}
	return read, nil
}

// eachMember reads the next object, and calls visit at the value of each member.
func eachMember(d *jsontext.Decoder, visit func(name string) error) error {
	if err := expect(d, '{'); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := visit(name.String()); err != nil {
			return err
		}
	}
	return expect(d, '}')
}

// eachElement reads the next array, which can be null, and calls visit at each element.
func eachElement(d *jsontext.Decoder, visit func() error) error {
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	if err := expect(d, '['); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if err := visit(); err != nil {
			return err
		}
	}
	return expect(d, ']')
}

func expect(d *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != kind {
		return fmt.Errorf("%s at offset %d, not %s", token.Kind(), d.InputOffset(), kind)
	}
	return nil
}

// object is the object in an event of a watch. A reflector only needs its methods. At the start, the reflector
// keeps one for each report.
type object struct {
	metav1.Object // nil

	report  *Report
	version string
	// last marks the bookmark after the initial events of the watch.
	last bool
}

func (o *object) GetName() string            { return o.report.Name }
func (o *object) GetNamespace() string       { return o.report.Namespace() }
func (o *object) GetResourceVersion() string { return o.version }

func (o *object) GetAnnotations() map[string]string {
	if o.last {
		return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return nil
}

// GetObjectKind implements [runtime.Object].
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object].
func (o *object) DeepCopyObject() runtime.Object {
	return &object{report: o.report, version: o.version, last: o.last}
}

// events decodes a watch.
type events struct {
	body    io.ReadCloser
	decoder *jsontext.Decoder
}

func newEvents(body io.ReadCloser) *events { return &events{body, jsontext.NewDecoder(body, lax)} }

// Close implements [watch.Decoder].
func (e *events) Close() { _ = e.body.Close() }

// Decode implements [watch.Decoder].
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	value, err := e.decoder.ReadValue()
	switch {
	case errors.Is(err, io.EOF):
		return "", nil, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF): // a lost connection must not cause another list
		return "", nil, io.ErrUnexpectedEOF
	case err != nil:
		return "", nil, fmt.Errorf("read an event: %w", err)
	}
	var event struct {
		Type   watch.EventType `json:"type"`
		Object jsontext.Value  `json:"object"`
	}
	if err := json.Unmarshal(value, &event, lax); err != nil {
		return "", nil, fmt.Errorf("decode an event: %w", err)
	}
	switch event.Type {
	case watch.Error:
		problem := &metav1.Status{}
		if err := stdjson.Unmarshal(event.Object, problem); err != nil {
			return "", nil, fmt.Errorf("decode an error: %w", err)
		}
		return event.Type, problem, nil
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
	}
	report, m, err := decode(event.Object)
	if err != nil {
		return "", nil, err
	}
	return event.Type, &object{report: report, version: m.ResourceVersion, last: m.Annotations[metav1.InitialEventsAnnotationKey] == "true"}, nil
}
