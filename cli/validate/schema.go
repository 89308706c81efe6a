// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package validate

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/bpfman/bpfman-operator/internal/nearest"
)

// definitionsJSON has the schemas of the kinds that users write. `make generate` writes it from config/crd/bases.
//
//go:embed definitions.json
var definitionsJSON []byte

// definition is a kind as the API server knows it.
type definition struct {
	Kind       string                          `json:"kind"`
	Namespaced bool                            `json:"namespaced"`
	Schema     apiextensionsv1.JSONSchemaProps `json:"schema"`
}

// namespacedApplication stands for the BpfApplication of upstream's v0.6, which is namespaced.
const namespacedApplication = "BpfApplication (namespaced)"

// definitions returns the definitions by kind.
var definitions = sync.OnceValues(func() (map[string]definition, error) {
	var all []definition
	if err := json.Unmarshal(definitionsJSON, &all); err != nil {
		return nil, fmt.Errorf("decode the definitions: %w", err)
	}
	of := map[string]definition{}
	for _, d := range all {
		if d.Kind == "BpfApplication" && d.Namespaced {
			d.Kind = namespacedApplication
		}
		of[d.Kind] = d
	}
	return of, nil
})

// check returns what the API server would refuse in an object. It sets the defaults, as the API server does.
func (d definition) check(ctx context.Context, object map[string]any) ([]string, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&d.Schema, &internal, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of %s: %w", d.Kind, err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", d.Kind, err)
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", d.Kind, err)
	}
	var problems []string
	delete(object, "status") // the API server ignores it
	for _, path := range pruning.PruneWithOptions(object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		problems = append(problems, fmt.Sprintf("unknown field %s%s", path, similar(structural, path)))
	}
	defaulting.Default(object, structural)
	found := validation.ValidateCustomResource(nil, object, validator)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	if len(found) == 0 { // rules rely on valid fields
		rules, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		found = append(found, rules...)
	}
	for _, err := range found {
		problems = append(problems, err.Error())
	}
	return problems, nil
}

// index matches the index in a path of fields.
var index = regexp.MustCompile(`\[\d+\]`)

// similar suggests a field instead of an unknown one.
func similar(s *structuralschema.Structural, path string) string {
	parts := strings.Split(index.ReplaceAllString(path, ".[]"), ".")
	for _, part := range parts[:len(parts)-1] {
		switch property, known := s.Properties[part]; {
		case part == "[]" && s.Items != nil:
			s = s.Items
		case known:
			s = &property
		default:
			return ""
		}
	}
	return nearest.Question(parts[len(parts)-1], maps.Keys(s.Properties))
}
