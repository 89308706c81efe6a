// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package manifest

import (
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// linkedKind is the kind whose programs have links.
const linkedKind = "ClusterBpfApplication"

// linkedTypes are the types whose names differ in a ClusterBpfApplication.
var linkedTypes = map[string]v1alpha1.ApplicationProgramType{
	"Fentry": v1alpha1.ApplicationFEntry, "Fexit": v1alpha1.ApplicationFExit, "Kprobe": v1alpha1.ApplicationKProbe,
	"Kretprobe": v1alpha1.ApplicationKRetProbe, "Uprobe": v1alpha1.ApplicationUProbe, "Uretprobe": v1alpha1.ApplicationURetProbe,
	"Tracepoint": v1alpha1.ApplicationTracePoint,
}

// linked returns the program of a ClusterBpfApplication with one link, from the fields of a member of other applications. If
// it isn't known where to attach the program, it has no link.
func linked(m *member, fields map[string]any) map[string]any {
	link := map[string]any{}
	for from, to := range map[string]string{"func_name": "function", "target": "target"} {
		if value, has := fields[from]; has {
			link[to] = value
		}
	}
	content := map[string]any{}
	switch m.memberType {
	case "Fentry", "Fexit":
		content["function"], link = fields["func_name"], map[string]any{"mode": "Attach"}
	case "Tracepoint":
		if names, is := fields["names"].([]any); is {
			link["name"] = names[0]
		}
	}
	if at, is := fields["interfaceselector"].(map[string]any); is {
		selector := map[string]any{}
		for name, value := range at {
			selector[strings.Replace(name, "primarynodeinterface", "primaryNodeInterface", 1)] = value
		}
		link["interfaceSelector"] = selector
	}
	if _, has := fields["direction"]; has {
		link["direction"] = "Ingress"
	}
	if _, unattached := fields["attach"]; !unattached {
		content["links"] = []any{link}
	}
	memberType := m.memberType
	if other, differs := linkedTypes[memberType]; differs {
		memberType = string(other)
	}
	return map[string]any{"name": fields["bpffunctionname"], "type": memberType, strings.ToLower(memberType): content}
}

// asLinked changes the fields of a spec, and what notes say of them, to those of a ClusterBpfApplication.
func asLinked(spec map[string]any, notes []string) {
	for from, to := range map[string]string{"nodeselector": "nodeSelector", "bytecode": "byteCode"} {
		spec[to] = spec[from]
		delete(spec, from)
	}
	for i := range notes {
		notes[i] = strings.NewReplacer("Replace the placeholder, and remove attach.", "Add a link.", "spec.globaldata", "spec.globalData").Replace(notes[i])
	}
}
