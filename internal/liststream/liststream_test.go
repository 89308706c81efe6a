// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package liststream

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// named is the record of an object.
type named struct{ name string }

func (n *named) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (n *named) DeepCopyObject() runtime.Object   { return n }

func decode(object jsontext.Value) (*named, Metadata, error) {
	var of struct {
		Metadata Metadata `json:"metadata"`
	}
	err := json.Unmarshal(object, &of, Lax)
	return &named{of.Metadata.Name}, of.Metadata, err
}

func TestRecord(t *testing.T) {
	n := &named{"a"}
	for _, item := range []any{n, Event(n, Metadata{Name: "a"})} {
		if got, err := Record[*named](item); err != nil || got != n {
			t.Errorf("%T: %v, %v", item, got, err)
		}
	}
	if got, err := Record[*named]("a"); err == nil {
		t.Errorf("a string is %v", got)
	}
}

// Each item of a list that was decoded is visited, no matter how the list goes on.
func FuzzEachItem(f *testing.F) {
	f.Add(`{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},{}]}`)
	f.Add(`{"items":null}`)
	f.Add(`{"items":[{"metadata":{"name":"a"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		visited := 0
		_, err := EachItem(strings.NewReader(text), func(item jsontext.Value) error {
			visited++
			if len(item) == 0 {
				t.Error("an empty item")
			}
			return nil
		})
		list, listed := DecodeList(strings.NewReader(text), decode)
		if err == nil && listed == nil && len(list.Items) != visited {
			t.Errorf("%d items visited, %d listed", visited, len(list.Items))
		}
	})
}
