// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package configuration

import (
	"reflect"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/operator/deploy"
)

// TestKeys checks for each key that a valid value changes the node pods, and that an invalid one is refused.
func TestKeys(t *testing.T) {
	pods := func(t *testing.T, data map[string]string) any {
		t.Helper()
		config, _, err := deploy.ParseConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		object, err := deploy.DaemonSet(config, "bpfman")
		if err != nil {
			t.Fatal(err)
		}
		return object.Object
	}
	initial := func(key, value string) map[string]string {
		data := map[string]string{}
		for _, k := range deploy.Keys() {
			data[k.Name] = k.Initial
		}
		if key != "" {
			data[key] = value
		}
		return data
	}
	for _, k := range deploy.Keys() {
		values, found := Keys[k.Name]
		if !found || len(values.Changes) == 0 || values.Reason == "" {
			t.Errorf("%s isn't tried", k.Name)
			continue
		}
		if reflect.DeepEqual(pods(t, initial("", "")), pods(t, initial(k.Name, values.Good))) {
			t.Errorf("%s: %q changes nothing in the pods", k.Name, values.Good)
		}
		if _, _, err := deploy.ParseConfig(initial(k.Name, values.Refused)); err == nil || !strings.Contains(err.Error(), k.Name+": ") || !strings.Contains(err.Error(), values.Reason) {
			t.Errorf("%s: %q is refused with %v, not %q", k.Name, values.Refused, err, values.Reason)
		}
	}
	if len(Keys) != len(deploy.Keys()) {
		t.Errorf("%d keys are tried, but there are %d", len(Keys), len(deploy.Keys()))
	}
}
