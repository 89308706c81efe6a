// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rollout defines what a revision of a user object is, and which of its revisions a node runs while a
// RolloutPolicy rolls out a change. The operator decides about the steps, and each agent finds out by itself what its
// node is to run. It has no side effects.
package rollout

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Revision is the part of a user object that affects its programs. It is stored as JSON.
type Revision struct {
	Metadata Metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
}

// Metadata is the metadata of a Revision. Annotations contains only those that affect programs.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         types.UID         `json:"uid"`
	Generation  int64             `json:"generation"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RevisionOf returns the revision of an object.
func RevisionOf(o v1alpha1.UserObject) (Revision, error) {
	var r Revision
	whole, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(whole, &r)
	}
	if err != nil {
		return Revision{}, fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	for name := range r.Metadata.Annotations {
		if !AffectsPrograms(name) {
			delete(r.Metadata.Annotations, name)
		}
	}
	if len(r.Metadata.Annotations) == 0 {
		r.Metadata.Annotations = nil
	}
	return r, nil
}

// AffectsPrograms reports whether an annotation of a user object is part of its revision.
func AffectsPrograms(annotation string) bool {
	return annotation == v1alpha1.AnnotationReplacePinnedMaps || annotation == v1alpha1.AnnotationRestartedAt
}

// Parse parses a stored revision.
func Parse(stored []byte) (Revision, error) {
	var r Revision
	if err := json.Unmarshal(stored, &r); err != nil {
		return Revision{}, fmt.Errorf("decode a revision: %w", err)
	}
	return r, nil
}

// Hash returns a hash of everything that makes two revisions of an object differ. It doesn't include the generation,
// because a change that is taken back leads to the same revision, nor the node selector, which selects nodes but doesn't
// change what they run.
func (r Revision) Hash() string {
	// Stored objects have another order of fields.
	decoder := json.NewDecoder(bytes.NewReader(r.Spec))
	decoder.UseNumber()
	var spec map[string]any
	_ = decoder.Decode(&spec) // a damaged spec equals no other
	delete(spec, "nodeselector")
	delete(spec, "nodeSelector") // of an application of v0.6
	same, err := json.Marshal(map[string]any{"annotations": r.Metadata.Annotations, "uid": r.Metadata.UID, "spec": spec})
	if err != nil || spec == nil {
		same = r.Spec
	}
	sum := sha256.Sum256(same)
	return hex.EncodeToString(sum[:hashBytes])
}

const hashBytes = 10

// Object returns the object of a kind as it was in this revision.
func (r Revision) Object(kind string) (v1alpha1.UserObject, error) {
	object := namespaced.New(kind, r.Metadata.Namespace)
	if object == nil {
		return nil, fmt.Errorf("kind %q is unknown", kind)
	}
	stored, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(stored, object)
	}
	if err != nil {
		return nil, fmt.Errorf("decode a revision of %s %s: %w", kind, r.Metadata.Name, err)
	}
	return object, nil
}

// Mark is an annotation with an object's hash. It only exists in caches, in which objects aren't complete.
const Mark = "!revision"

// MarkObject adds the annotation to an object, unless the object has it: after it was marked, it can have lost what the
// hash is about.
func MarkObject(o v1alpha1.UserObject) {
	if _, marked := o.GetAnnotations()[Mark]; marked {
		return
	}
	hash := "" // no revision has it
	if revision, err := RevisionOf(o); err == nil {
		hash = revision.Hash()
	}
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Mark] = hash
	o.SetAnnotations(annotations)
}
