// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inventory

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// SettingsOf returns the settings in an object of bpfman for its program with a function. For an
// application, these are the settings of the member with that function. If object is nil, the settings are
// empty.
func SettingsOf(object runtime.Object, function string) Settings {
	if object == nil {
		return Settings{}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return Settings{}
	}
	spec, _, _ := unstructured.NestedMap(content, "spec") // absent if it isn't a map
	members, isApplication, _ := unstructured.NestedSlice(spec, "programs")
	if !isApplication {
		return settingsIn(spec)
	}
	for _, m := range members {
		member, ok := m.(map[string]any)
		if !ok {
			continue
		}
		// The settings of a member are in the field for its type.
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
	out.ProceedOn, _, _ = unstructured.NestedStringSlice(asked, "proceedon") // absent if it isn't a list
	return out
}
