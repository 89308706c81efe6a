// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package validate checks objects before they are applied: whether the API server accepts them, what the agents would refuse,
// and whether they match something in the cluster. It only evaluates facts. Its caller reads files, the cluster, and images.
package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/convert"
	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

// Result is what was found out about an object.
type Result struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Source is the file, and the document in it.
	Source string `json:"source"`
	// Errors are the reasons why the object would be refused, or would fail on each node. Warnings are what is probably not
	// intended, such as a selector that matches nothing.
	Errors   []string `json:"errors,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Unchecked is what couldn't be checked, and why.
	Unchecked []string `json:"unchecked,omitempty"`
	// Foreign means that the object isn't one of bpfman's, and wasn't checked.
	Foreign bool `json:"foreign,omitempty"`

	// Object is the object with defaults. It is nil if it can't be decoded, or isn't one that nodes load.
	Object v1alpha1.UserObject `json:"-"`
	// Content is the object as it was read.
	Content *unstructured.Unstructured `json:"-"`
}

// Check checks an object without a cluster. namespace is the namespace of an object of a namespaced kind that names none.
func Check(ctx context.Context, read convert.Object, namespace string) (*Result, error) {
	content := &unstructured.Unstructured{}
	if err := json.Unmarshal(read.JSON, &content.Object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", read.Source, err)
	}
	r := &Result{Kind: content.GetKind(), Name: content.GetName(), Namespace: content.GetNamespace(), Source: read.Source, Content: content}
	known, err := definitions()
	if err != nil {
		return nil, err
	}
	d, there := known[r.Kind]
	spec, _, _ := unstructured.NestedMap(content.Object, "spec")
	if _, linked := spec["byteCode"]; linked && r.Kind == "BpfApplication" {
		d = known[namespacedApplication]
	}
	switch version := content.GroupVersionKind(); {
	case version.Group != v1alpha1.SchemeGroupVersion.Group:
		r.Foreign = true
		return r, nil
	case version.Version != v1alpha1.SchemeGroupVersion.Version:
		r.fail("apiVersion is %s: the version of bpfman's API is %s", content.GetAPIVersion(), v1alpha1.SchemeGroupVersion)
		return r, nil
	case !there:
		r.fail("bpfman has no kind %s%s", r.Kind, nearest.Question(r.Kind, maps.Keys(known)))
		return r, nil
	}
	if !d.Namespaced {
		r.Namespace = ""
	} else if r.Namespace == "" {
		r.Namespace = namespace
	}
	if err := r.check(ctx, d); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Result) check(ctx context.Context, d definition) error {
	// Decoding JSON leaves numbers as float64, which the schema takes for numbers with a fraction.
	checked, err := integers(r.Content)
	if err != nil {
		return err
	}
	if r.Name == "" && r.Content.GetGenerateName() == "" {
		r.fail("metadata.name is missing")
	} else if invalid := utilvalidation.NameIsDNSSubdomain(r.Name, false); r.Name != "" && len(invalid) > 0 {
		r.fail("metadata.name %q: %s", r.Name, strings.Join(invalid, "; "))
	}
	problems, err := d.check(ctx, checked)
	if err != nil {
		return err
	}
	r.Errors = append(r.Errors, problems...)
	object := namespaced.New(r.Kind, r.Namespace)
	if object == nil || len(problems) > 0 {
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(checked, object); err != nil {
		r.fail("%v", err)
		return nil
	}
	object.SetNamespace(r.Namespace)
	r.Object = object
	r.refused(object)
	return nil
}

// integers returns the content of an object with whole numbers as int64.
func integers(o *unstructured.Unstructured) (map[string]any, error) {
	text, err := o.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	decoded := &unstructured.Unstructured{}
	if err := decoded.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return decoded.Object, nil
}

// refused adds what the schema accepts, as upstream's does, and agents refuse.
func (r *Result) refused(o v1alpha1.UserObject) {
	common := o.GetAppCommon()
	if _, err := metav1.LabelSelectorAsSelector(&common.NodeSelector); err != nil {
		r.fail("%s: %v", userobject.Field(o, "nodeselector"), err)
	}
	switch image := common.ByteCode.Image; {
	case image != nil:
		if _, err := reader.ParseReference(image.Url); err != nil {
			r.fail("%s %q: %v", userobject.Field(o, "bytecode.image.url"), image.Url, err)
		}
	case common.ByteCode.Path == nil || *common.ByteCode.Path == "":
		r.fail("%s has neither an image nor a path", userobject.Field(o, "bytecode"))
	}
	for _, name := range slices.Sorted(maps.Keys(common.GlobalData)) {
		if common.GlobalData[name] == nil {
			r.fail("%s.%s is neither base64 nor a list of bytes: set a number, a string, or a list of numbers in spec.globals instead", userobject.Field(o, "globaldata"), name)
		}
	}
	r.refusedGlobals(o)
	for i, p := range userobject.Programs(o) {
		r.refusedProgram(p, func(field string) string { return userobject.ProgramField(o, i, field) })
	}
}

func (r *Result) refusedGlobals(o v1alpha1.UserObject) {
	common := o.GetAppCommon()
	for _, name := range slices.Sorted(maps.Keys(common.Globals)) {
		if _, twice := common.GlobalData[name]; twice {
			r.fail("spec.globals.%s: %s sets this variable too: remove one of both", name, userobject.Field(o, "globaldata"))
		}
	}
	if len(common.Globals) > 0 && common.ByteCode.Image == nil {
		r.fail("spec.globals need an image, because agents can't read the types of variables in %s: set their bytes in %s", userobject.Field(o, "bytecode.path"), userobject.Field(o, "globaldata"))
	}
}

// refusedProgram adds what is wrong with a program. at returns the path of one of its fields.
func (r *Result) refusedProgram(p userobject.Program, at func(field string) string) {
	info := p.Info()
	if info == nil {
		r.fail("%s is missing, or there is no configuration for the type %q", at("type"), p.Type)
		return
	}
	if info.Common().BpfFunctionName == "" {
		r.fail("%s is empty", at("bpffunctionname"))
	}
	hooks := info.NamedHooks()
	if hooks.Target != nil && *hooks.Target == "" {
		r.fail("%s is empty", at("target"))
	}
	if hooks.Function != nil && hooks.Function.Name == "" {
		r.fail("%s is empty", at("func_name"))
	}
	if _, err := metav1.LabelSelectorAsSelector(&info.Common().MapOwnerSelector); err != nil {
		r.fail("%s: %v", at("mapownerselector"), err)
	}
	if c := info.ContainerSelector(); c != nil {
		if _, err := metav1.LabelSelectorAsSelector(&c.Pods); err != nil {
			r.fail("%s: %v", at("containers.pods"), err)
		}
	}
	r.refusedPatterns(info, at)
}

// refusedPatterns adds the regular expressions of interfaces that can't be compiled.
func (r *Result) refusedPatterns(info v1alpha1.ProgramInfo, at func(field string) string) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(info)
	if err != nil {
		return
	}
	discovery, _, _ := unstructured.NestedMap(fields, "interfaceselector", "interfacesdiscoveryconfig")
	for _, field := range []string{"allowedinterfaces", "excludeinterfaces"} {
		entries, _, _ := unstructured.NestedStringSlice(discovery, field)
		for _, entry := range entries {
			entry = strings.TrimSpace(entry)
			if len(entry) < len("//") || !strings.HasPrefix(entry, "/") || !strings.HasSuffix(entry, "/") {
				continue
			}
			if _, err := regexp.Compile(entry[1 : len(entry)-1]); err != nil {
				r.failOnce("%s: %v", at("interfaceselector.interfacesdiscoveryconfig."+field), err)
			}
		}
	}
}

func (r *Result) fail(format string, args ...any) {
	r.Errors = append(r.Errors, fmt.Sprintf(format, args...))
}

func (r *Result) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Warnings, text) {
		r.Warnings = append(r.Warnings, text)
	}
}
