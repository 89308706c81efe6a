// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package liststream

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// List is a list of records for a reflector.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject implements [runtime.Object].
func (l *List) DeepCopyObject() runtime.Object { return &List{l.TypeMeta, l.ListMeta, l.Items} }

// DecodeList decodes a list as it arrives.
func DecodeList[R runtime.Object](from io.Reader, decode Decode[R]) (*List, error) {
	read := &List{}
	metadata, err := EachItem(from, func(item jsontext.Value) error {
		record, _, err := decode(item)
		read.Items = append(read.Items, record)
		return err
	})
	if err != nil {
		return nil, err
	}
	read.ListMeta = metadata
	return read, nil
}

// EachItem calls visit with each item of a list as it arrives, and returns the list's metadata.
func EachItem(from io.Reader, visit func(item jsontext.Value) error) (metav1.ListMeta, error) {
	var read metav1.ListMeta
	d := jsontext.NewDecoder(from, Lax)
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
				item, err := d.ReadValue()
				if err != nil {
					return fmt.Errorf("read an item: %w", err)
				}
				return visit(item)
			})
		}
		return d.SkipValue()
	})
	if err != nil {
		return read, fmt.Errorf("read a list: %w", err)
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

// events decodes a watch.
type events[R runtime.Object] struct {
	body    io.ReadCloser
	decoder *jsontext.Decoder
	decode  Decode[R]
}

// DecodeEvents decodes the events of a watch as they arrive.
func DecodeEvents[R runtime.Object](body io.ReadCloser, decode Decode[R]) watch.Decoder {
	return &events[R]{body, jsontext.NewDecoder(body, Lax), decode}
}

// Close implements [watch.Decoder].
func (e *events[R]) Close() { _ = e.body.Close() }

// Decode implements [watch.Decoder].
func (e *events[R]) Decode() (watch.EventType, runtime.Object, error) {
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
	if err := json.Unmarshal(value, &event, Lax); err != nil {
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
	record, metadata, err := e.decode(event.Object)
	if err != nil {
		return "", nil, err
	}
	return event.Type, Event(record, metadata), nil
}
