// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// fieldNames are the titles of fields whose names consist of several words.
var fieldNames = map[string]string{
	"bootid":             "Boot ID",
	"bpffunctionname":    "BPF function",
	"bpfmancount":        "Programs of bpfman",
	"conflictcount":      "Conflict count",
	"func_name":          "Function",
	"globaldata":         "Global data",
	"globals":            "Globals",
	"interfaceselector":  "Interface selector",
	"kernelversion":      "Kernel version",
	"linkcount":          "Link count",
	"loadedat":           "Loaded at",
	"mapcount":           "Map count",
	"mapids":             "Map IDs",
	"mapownerid":         "Map owner ID",
	"mapownerselector":   "Map owner selector",
	"mapusedby":          "Map used by",
	"nodeselector":       "Node selector",
	"observedGeneration": "Observed generation",
	"othercount":         "Programs of others",
	"ownergeneration":    "Owner generation",
	"pid":                "PID",
	"proceedon":          "Proceed on",
	"programcount":       "Program count",
	"programid":          "Program ID",
	"retprobe":           "Return probe",
}

// widgets are the descriptors that select how a console shows fields other than plain text.
var widgets = map[string]string{
	"conditions":   "urn:alm:descriptor:io.kubernetes.conditions",
	"nodeselector": "urn:alm:descriptor:com.tectonic.ui:selector:core:v1:Node",
	"priority":     "urn:alm:descriptor:com.tectonic.ui:number",
	"retprobe":     "urn:alm:descriptor:com.tectonic.ui:booleanSwitch",
}

// acronyms maps words in kinds to the spelling in titles.
var acronyms = map[string]string{"Bpf": "BPF", "Tc": "TC", "Tcx": "TCX", "Xdp": "XDP"}

// Describe describes the API of a CustomResourceDefinition for users, with the texts of its
// schema.
func Describe(crd *apiextensionsv1.CustomResourceDefinition) (v1alpha1.CRDDescription, error) {
	version, err := storedVersion(crd)
	if err != nil {
		return v1alpha1.CRDDescription{}, err
	}
	schema := version.Schema.OpenAPIV3Schema
	described := v1alpha1.CRDDescription{
		Name:            crd.Name,
		Kind:            crd.Spec.Names.Kind,
		Version:         version.Name,
		DisplayName:     kindTitle(crd.Spec.Names.Kind),
		Description:     firstParagraph(schema.Description),
		Resources:       []v1alpha1.APIResourceReference{leadsTo(crd.Spec.Names.Kind, crd.Spec.Scope, version.Name)},
		SpecDescriptors: descriptors(schema.Properties["spec"]),
	}
	for _, field := range descriptors(schema.Properties["status"]) {
		described.StatusDescriptors = append(described.StatusDescriptors, v1alpha1.StatusDescriptor(field))
	}
	return described, nil
}

// storedVersion returns the storage version.
func storedVersion(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
	for i, version := range crd.Spec.Versions {
		if version.Storage && version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
			return &crd.Spec.Versions[i], nil
		}
	}
	return nil, fmt.Errorf("CustomResourceDefinition %s has no stored version with a schema", crd.Name)
}

// leadsTo returns the kind with more information about an object. Objects that users write are
// reported in BpfPrograms. These and BpfNodes are about a node.
func leadsTo(kind string, scope apiextensionsv1.ResourceScope, version string) v1alpha1.APIResourceReference {
	switch {
	case isReport(kind):
		return v1alpha1.APIResourceReference{Kind: "Node", Version: "v1"}
	case scope == apiextensionsv1.NamespaceScoped:
		return v1alpha1.APIResourceReference{Kind: "BpfNsProgram", Version: version}
	default:
		return v1alpha1.APIResourceReference{Kind: "BpfProgram", Version: version}
	}
}

// isReport reports whether the agent or the inspector writes objects of the kind.
func isReport(kind string) bool {
	return kind == "BpfProgram" || kind == "BpfNsProgram" || kind == "BpfNode"
}

func descriptors(schema apiextensionsv1.JSONSchemaProps) []v1alpha1.SpecDescriptor {
	var described []v1alpha1.SpecDescriptor
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		title := fieldNames[name]
		if title == "" {
			title = strings.ToUpper(name[:1]) + name[1:]
		}
		d := v1alpha1.SpecDescriptor{Path: name, DisplayName: title, Description: firstParagraph(schema.Properties[name].Description)}
		if widget := widgets[name]; widget != "" {
			d.XDescriptors = []string{widget}
		}
		described = append(described, d)
	}
	return described
}

func firstParagraph(text string) string {
	paragraph, _, _ := strings.Cut(text, "\n\n")
	return strings.Join(strings.Fields(paragraph), " ")
}

// kindTitle returns a kind in words: XdpNsProgram becomes namespaced XDP Program.
func kindTitle(kind string) string {
	var words []string
	for i, r := range kind {
		if i == 0 || unicode.IsUpper(r) {
			words = append(words, "")
		}
		words[len(words)-1] += string(r)
	}
	title := ""
	if namespaced := slices.Index(words, "Ns"); namespaced >= 0 {
		words = slices.Delete(words, namespaced, namespaced+1)
		title = "Namespaced "
	}
	for i, word := range words {
		if acronym := acronyms[word]; acronym != "" {
			words[i] = acronym
		}
	}
	return title + strings.Join(words, " ")
}
