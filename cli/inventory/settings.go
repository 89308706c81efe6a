// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// SettingsOf returns what an object of bpfman asks for its program of a function: that of its spec, or, of an
// application, of the member with that function. An object that is nil asks for nothing.
func SettingsOf(object runtime.Object, function string) Settings {
	if object == nil {
		return Settings{}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return Settings{}
	}
	spec, _, _ := unstructured.NestedMap(content, "spec") // absent where it isn't a map
	members, isApplication, _ := unstructured.NestedSlice(spec, "programs")
	if !isApplication {
		return settingsIn(spec)
	}
	for _, m := range members {
		member, ok := m.(map[string]any)
		if !ok {
			continue
		}
		// What a member asks for is in the field of its type.
		for _, value := range member {
			asked, ok := value.(map[string]any)
			if ok && asked["bpffunctionname"] == function {
				return settingsIn(asked)
			}
		}
	}
	return Settings{}
}

func settingsIn(asked map[string]any) Settings {
	var out Settings
	if priority, found, err := unstructured.NestedInt64(asked, "priority"); found && err == nil {
		out.Priority = &priority
	}
	out.ProceedOn, _, _ = unstructured.NestedStringSlice(asked, "proceedon") // absent where it isn't a list
	return out
}
