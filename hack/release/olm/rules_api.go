// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func checkOwned(b *Bundle) []string {
	var p problems
	type api struct{ name, version, kind string }
	var owned, brought []api
	for _, crd := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		owned = append(owned, api{crd.Name, crd.Version, crd.Kind})
	}
	for _, crd := range b.CRDs {
		for _, version := range crd.Spec.Versions {
			brought = append(brought, api{crd.Name, version.Name, crd.Spec.Names.Kind})
		}
	}
	p.unless(len(brought) > 0, "there are none")
	for i, crd := range owned {
		p.unless(slices.Contains(brought, crd), "%v is owned only", crd)
		p.unless(!slices.Contains(owned[:i], crd), "%v is owned twice", crd)
	}
	for i, crd := range brought {
		p.unless(slices.Contains(owned, crd), "%v is in the bundle only", crd)
		p.unless(!slices.Contains(brought[:i], crd), "%v is there twice", crd)
	}
	return p
}

func checkCRDs(b *Bundle) []string {
	var p problems
	for _, crd := range b.CRDs {
		crd = *crd.DeepCopy()
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		// Set the stored versions that a new definition would have after its creation.
		for _, version := range crd.Spec.Versions {
			if version.Storage {
				crd.Status.StoredVersions = []string{version.Name}
			}
		}
		var internal apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil); err != nil {
			p.addf("%s: %v", crd.Name, err)
			continue
		}
		for _, problem := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), &internal) {
			p.addf("%s: %v", crd.Name, problem)
		}
	}
	return p
}

func checkOwnedTexts(b *Bundle) []string {
	var p problems
	for _, owned := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		p.unless(owned.DisplayName != "" && owned.Description != "" && len(owned.Resources) > 0, "%s hasn't all of them", owned.Name)
	}
	return p
}

func checkDescriptors(b *Bundle) []string {
	var p problems
	for _, owned := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		schema := b.schemaOf(owned.Kind)
		if schema == nil {
			p.addf("%s has no schema", owned.Name)
			continue
		}
		for part, described := range map[string][]Descriptor{"spec": owned.SpecDescriptors, "status": owned.StatusDescriptors} {
			_, there := schema.Properties[part]
			p.unless(len(described) > 0 || !there, "none of %s of %s is", part, owned.Name)
			for _, descriptor := range described {
				_, known := schema.Properties[part].Properties[descriptor.Path]
				p.unless(known && descriptor.DisplayName != "" && descriptor.Description != "", "%s.%s of %s isn't", part, descriptor.Path, owned.Name)
			}
		}
	}
	return p
}

// schemaOf returns the schema of a kind's storage version, or nil.
func (b *Bundle) schemaOf(kind string) *apiextensionsv1.JSONSchemaProps {
	for i := range b.CRDs {
		if b.CRDs[i].Spec.Names.Kind == kind {
			if version, err := storedVersion(&b.CRDs[i]); err == nil {
				return version.Schema.OpenAPIV3Schema
			}
		}
	}
	return nil
}

func checkExamples(b *Bundle) []string {
	var p problems
	var examples []map[string]any
	if err := json.Unmarshal([]byte(b.CSV.Annotations[annotationExamples]), &examples); err != nil {
		p.addf("they are no list of objects: %v", err)
	}
	shown := map[string]bool{}
	for _, content := range examples {
		example := unstructured.Unstructured{Object: content}
		shown[example.GetKind()] = true
		for _, problem := range b.checkExample(example) {
			p.addf("%s: %s", describeObject(example), problem)
		}
	}
	internal := b.CSV.Annotations[annotationInternalObjects]
	for _, owned := range b.CSV.Spec.CustomResourceDefinitions.Owned {
		p.unless(shown[owned.Kind] || strings.Contains(internal, `"`+owned.Name+`"`), "%s has none", owned.Kind)
	}
	return p
}

func (b *Bundle) checkExample(example unstructured.Unstructured) []string {
	var p problems
	owned := slices.ContainsFunc(b.CSV.Spec.CustomResourceDefinitions.Owned, func(owned OwnedCRD) bool {
		_, group, _ := strings.Cut(owned.Name, ".")
		return owned.Kind == example.GetKind() && group+"/"+owned.Version == example.GetAPIVersion()
	})
	schema := b.schemaOf(example.GetKind())
	if !owned || schema == nil {
		return []string{"it isn't of an owned kind"}
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &internal, nil); err != nil {
		return []string{err.Error()}
	}
	validator, _, err := schemavalidation.NewSchemaValidator(&internal)
	if err != nil {
		return []string{err.Error()}
	}
	for _, problem := range validator.Validate(example.Object).Errors {
		p.addf("%v", problem)
	}
	return p
}

// isVersion reports whether a version is major.minor.patch, with optional suffixes.
func isVersion(version string) bool {
	return semver.IsValid("v"+version) && strings.Count(strings.SplitN(version, "-", 2)[0], ".") == 2
}

func isBefore(version, other string) bool {
	return isVersion(version) && semver.Compare("v"+version, "v"+other) < 0
}
