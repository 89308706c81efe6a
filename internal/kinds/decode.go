// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/bpfman/bpfman-operator/internal/undecodable"
)

// Undecodable returns the reason why an object can't be decoded, or "". Such an object
// only has its metadata and, if that can be decoded, its status.
func Undecodable(o metav1.Object) string { return undecodable.Reason(o) }

// TrimAnnotations removes an object's annotations, except for those to keep, and the one that Undecodable reads.
func TrimAnnotations(o metav1.Object, keep ...string) {
	annotations := o.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool { return name != undecodable.Annotation && !slices.Contains(keep, name) })
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
}

// lenient decodes lists and watch events that contain objects that can't be decoded,
// for example because they were stored with an earlier schema. There is no extra work
// if all objects can be decoded.
type lenient struct {
	runtime.NegotiatedSerializer
	scheme *runtime.Scheme
}

func (l lenient) DecoderToVersion(d runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return lenientDecoder{l.NegotiatedSerializer.DecoderToVersion(d, version), l.scheme}
}

type lenientDecoder struct {
	runtime.Decoder
	scheme *runtime.Scheme
}

func (d lenientDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		return object, gvk, nil
	}
	if into == nil { // an event of a watch
		var head metav1.TypeMeta
		if json.Unmarshal(data, &head) != nil {
			return object, gvk, err
		}
		created, unknown := d.scheme.New(head.GroupVersionKind())
		if unknown != nil {
			return object, gvk, err
		}
		into = created
	}
	if meta.IsListType(into) {
		return into, gvk, d.list(data, into)
	}
	if err := d.single(data, into, err); err != nil {
		return object, gvk, err
	}
	return into, gvk, nil
}

// list decodes a list item by item.
func (d lenientDecoder) list(data []byte, into runtime.Object) error {
	var raw struct {
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	kinds, _, err := d.scheme.ObjectKinds(into)
	if err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	kind := kinds[0]
	kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
	items := make([]runtime.Object, 0, len(raw.Items))
	for _, content := range raw.Items {
		item, err := d.scheme.New(kind)
		if err != nil {
			return fmt.Errorf("decode %T: %w", into, err)
		}
		if problem := kjson.UnmarshalCaseSensitivePreserveInts(content, item); problem != nil {
			if err := d.single(content, item, problem); err != nil {
				return err
			}
		}
		items = append(items, item)
	}
	list, err := meta.ListAccessor(into)
	if err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	list.SetResourceVersion(raw.ResourceVersion)
	list.SetContinue(raw.Continue)
	list.SetRemainingItemCount(raw.RemainingItemCount)
	if err := meta.SetList(into, items); err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	return nil
}

// single decodes the decodable parts of an object that failed to decode with problem.
func (d lenientDecoder) single(data []byte, into runtime.Object, problem error) error {
	// Remove the fields that were decoded before the problem.
	whole := reflect.ValueOf(into).Elem()
	whole.SetZero()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	var err error
	for _, unread := range []string{"spec", "status"} {
		fields = maps.Clone(fields)
		delete(fields, unread)
		rest, marshalErr := json.Marshal(fields)
		if marshalErr != nil {
			return fmt.Errorf("decode %T: %w", into, marshalErr)
		}
		if err = kjson.UnmarshalCaseSensitivePreserveInts(rest, into); err == nil {
			break
		}
		whole.SetZero()
	}
	if err != nil {
		return fmt.Errorf("decode the metadata of %T: %w", into, err)
	}
	o, err := meta.Accessor(into)
	if err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	undecodable.Mark(o, problem)
	return nil
}
