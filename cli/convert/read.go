// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Object is one Kubernetes object of the input, in JSON.
type Object struct {
	// Source names the input, for messages.
	Source string
	JSON   json.RawMessage
}

// Read reads the objects of a file or stream. It accepts one or more YAML documents or
// JSON values, each with an object or a list of objects. source names the input in
// errors.
func Read(source string, r io.Reader) ([]Object, error) {
	buffered := bufio.NewReader(r)
	documents := yamlDocuments(buffered)
	if isJSON(buffered) {
		documents = jsonDocuments(buffered)
	}
	var out []Object
	for n := 1; ; n++ {
		document, err := documents()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		where := fmt.Sprintf("%s, document %d", source, n)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", where, err)
		}
		if bytes.Equal(bytes.TrimSpace(document), []byte("null")) {
			continue // the document contains only comments
		}
		objects, err := flatten(Object{Source: where, JSON: document})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", where, err)
		}
		out = append(out, objects...)
	}
}

// isJSON reports whether a stream starts with a JSON object. YAML can also start with a
// brace, but tools that print such YAML print JSON.
func isJSON(r *bufio.Reader) bool {
	for n := 1; ; n++ {
		head, err := r.Peek(n)
		if err != nil {
			return false
		}
		if !strings.ContainsRune(" \t\r\n", rune(head[n-1])) {
			return head[n-1] == '{'
		}
	}
}

// jsonDocuments refuses duplicate keys, as yamlDocuments does.
func jsonDocuments(r io.Reader) func() (json.RawMessage, error) {
	decoder := jsontext.NewDecoder(r)
	return func() (json.RawMessage, error) {
		document, err := decoder.ReadValue()
		switch wrong, ok := errors.AsType[*jsontext.SyntacticError](err); {
		case errors.Is(err, jsontext.ErrDuplicateName) && ok:
			return nil, fmt.Errorf("the key %s is there twice", wrong.JSONPointer)
		case ok:
			return nil, fmt.Errorf("%w at byte %d", wrong.Err, wrong.ByteOffset)
		}
		return json.RawMessage(document.Clone()), err
	}
}

// yamlDocuments refuses documents with duplicate keys, because decoding would silently
// drop one of the values.
func yamlDocuments(r *bufio.Reader) func() (json.RawMessage, error) {
	reader := utilyaml.NewYAMLReader(r)
	return func() (json.RawMessage, error) {
		document, err := reader.Read()
		if err != nil {
			return nil, err
		}
		return yaml.YAMLToJSONStrict(document)
	}
}

// flatten replaces a list with its items. The items of a typed list don't need a kind.
func flatten(o Object) ([]Object, error) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           *[]json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(o.JSON, &list); err != nil {
		return nil, fmt.Errorf("not a Kubernetes object: %w", inWords(err))
	}
	kind, isList := strings.CutSuffix(list.Kind, "List")
	if !isList || list.Items == nil {
		if list.APIVersion == "" || list.Kind == "" {
			return nil, errors.New("not a Kubernetes object: no apiVersion or kind")
		}
		return []Object{o}, nil
	}
	var out []Object
	for n, raw := range *list.Items {
		item, err := withKind(raw, list.APIVersion, kind)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", n, err)
		}
		objects, err := flatten(Object{Source: fmt.Sprintf("%s, items[%d]", o.Source, n), JSON: item})
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", n, err)
		}
		out = append(out, objects...)
	}
	return out, nil
}

// withKind adds the version and kind to an item of a typed list, if it lacks them.
func withKind(raw json.RawMessage, apiVersion, kind string) (json.RawMessage, error) {
	var item map[string]json.RawMessage
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, fmt.Errorf("not a Kubernetes object: %w", inWords(err))
	}
	if item == nil {
		return nil, errors.New("not a Kubernetes object: null")
	}
	if _, named := item["kind"]; named || kind == "" {
		return raw, nil
	}
	item["apiVersion"], _ = json.Marshal(apiVersion) //nolint:errchkjson // a string
	item["kind"], _ = json.Marshal(kind)             //nolint:errchkjson // a string
	return json.Marshal(item)
}

// inWords describes an error of decoding JSON in terms of the manifest, instead of Go's
// types.
func inWords(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	expected := cmp.Or(map[reflect.Kind]string{
		reflect.Slice:  "a list",
		reflect.String: "a string",
		reflect.Bool:   "true or false",
		reflect.Int32:  "an integer of 32 bits",
		reflect.Int64:  "an integer of 64 bits",
		reflect.Uint64: "an unsigned integer of 64 bits",
	}[wrong.Type.Kind()], "an object")
	field := slices.DeleteFunc(strings.Split(wrong.Field, "."), func(part string) bool {
		return slices.Contains([]string{"TypeMeta", "ApplicationCommon", "NetworkLink", "UprobeTarget"}, part) // an embedded type
	})
	return errors.New(strings.TrimPrefix(strings.Join(field, ".")+": ", ": ") + wrong.Value + " instead of " + expected)
}
