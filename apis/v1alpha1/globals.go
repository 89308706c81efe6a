// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"encoding/json"
	"fmt"
)

// Globals contains the values of global variables by name, as JSON: numbers, strings, booleans, and lists of these. What a
// value means depends on the variable's type, which only the bytecode has, so the API server accepts any value. A value that
// is null is left out, as if it were absent.
type Globals map[string]json.RawMessage

// UnmarshalJSON decodes the values that aren't null.
func (g *Globals) UnmarshalJSON(b []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(b, &values); err != nil {
		return fmt.Errorf("globals: %w", err)
	}
	for name, value := range values {
		if string(value) == "null" {
			delete(values, name)
		}
	}
	*g = values
	return nil
}
