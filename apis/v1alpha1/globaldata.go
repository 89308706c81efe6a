// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// GlobalData contains the values of global variables by name.
//
// The API server validates the format of strings, but accepts any list. A value that
// isn't a list of bytes must not prevent clients from reading the other objects in a
// list, so a value that can't be decoded is nil here. An empty value isn't nil. A value that
// is null is left out, as if it were absent.
type GlobalData map[string][]byte

// UnmarshalJSON decodes values in base64 and lists of integers.
func (g *GlobalData) UnmarshalJSON(b []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(b, &values); err != nil {
		return fmt.Errorf("globaldata: %w", err)
	}
	if values == nil {
		return nil
	}
	*g = make(GlobalData, len(values))
	for name, value := range values {
		if string(value) == "null" {
			continue
		}
		var content []byte
		if json.Unmarshal(value, &content) != nil {
			content = nil
		}
		(*g)[name] = content
	}
	return nil
}

// MarshalJSON encodes values in base64. A value that couldn't be decoded becomes one that can't be
// either, and isn't null, which would mean that it is absent.
func (g GlobalData) MarshalJSON() ([]byte, error) {
	if g == nil {
		return []byte("null"), nil
	}
	values := make(map[string]any, len(g))
	for name, content := range g {
		values[name] = content
		if content == nil {
			values[name] = false
		}
	}
	return json.Marshal(values)
}
