// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package userobject

import (
	"fmt"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// renamed are the fields of an application of v0.6 whose names differ from those of other kinds.
var renamed = map[string]string{
	"nodeselector": "nodeSelector", "bytecode": "byteCode", "globaldata": "globalData",
	"interfaceselector": "interfaceSelector", "interfacesdiscoveryconfig": "interfacesDiscoveryConfig",
	"allowedinterfaces": "allowedInterfaces", "excludeinterfaces": "excludeInterfaces", "func_name": "function",
}

// Field returns the path of a field of an object's spec, for messages. field is its path below spec in most kinds.
func Field(o v1alpha1.UserObject, field string) string {
	if _, is := o.(v1alpha1.LinkedObject); is {
		return "spec." + rename(field)
	}
	return "spec." + field
}

// ProgramField returns the path of a field of the i-th of Programs, for messages. field is its path in a member of a
// BpfApplication.
func ProgramField(o v1alpha1.UserObject, i int, field string) string {
	switch o := o.(type) {
	case v1alpha1.LinkedObject:
		return linkField(o.Linked(), i, field)
	case *v1alpha1.BpfApplication, *v1alpha1.BpfNsApplication:
		return fmt.Sprintf("spec.programs[%d].%s", i, field)
	}
	return "spec." + field
}

// linkField returns the path of the field of a link or, for what all links of a program have in common, of the program.
func linkField(o *v1alpha1.ClusterBpfApplication, i int, field string) string {
	program, link := o.Origin(i)
	path := fmt.Sprintf("spec.programs[%d].", program)
	if field == "bpffunctionname" {
		return path + "name"
	}
	p := o.Spec.Programs[program]
	path += strings.ToLower(string(p.Type)) + "."
	if link >= 0 {
		path += fmt.Sprintf("links[%d].", link)
	}
	if pods, is := strings.CutPrefix(field, "containers."); is && (p.XDP != nil || p.TC != nil || p.TCX != nil) {
		field = "networkNamespaces." + pods
	}
	return path + rename(field)
}

func rename(field string) string {
	parts := strings.Split(field, ".")
	for i, part := range parts {
		if name, is := renamed[part]; is {
			parts[i] = name
		}
	}
	return strings.Join(parts, ".")
}
