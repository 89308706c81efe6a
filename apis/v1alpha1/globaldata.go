// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// GlobalData holds the values of global variables by name.
//
// The API server checks the written form of a string, but lets any list pass.
// One that isn't a list of bytes must not keep anyone from reading the objects
// beside it, so a value that can't be read is nil here; an empty value
// isn't nil.
type GlobalData map[string][]byte

// UnmarshalJSON reads values in base64 and as lists of integers.
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
		var content []byte
		if json.Unmarshal(value, &content) != nil {
			content = nil
		}
		(*g)[name] = content
	}
	return nil
}
