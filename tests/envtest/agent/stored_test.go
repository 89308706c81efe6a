// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// valid returns the spec of an object of a kind, for this node. An application has one
// member with the type. Other kinds ignore the type.
func (n *node) valid(kind v1alpha1.Kind[v1alpha1.UserObject], memberType string) map[string]any {
	n.t.Helper()
	var types []string
	if strings.HasSuffix(kind.Name, "Application") {
		types = []string{memberType}
	}
	var spec map[string]any
	must.Succeed(n.t, json.Unmarshal([]byte(envtest.Spec(kind.Name, types...)), &spec))
	selector, bytecode := "nodeselector", "bytecode"
	if kind.Name == "ClusterBpfApplication" {
		selector, bytecode = "nodeSelector", "byteCode"
	}
	spec[selector] = map[string]any{"matchLabels": map[string]any{"test": n.name}}
	spec[bytecode] = map[string]any{"path": "/object.o"}
	return spec
}

func object(kind v1alpha1.Kind[v1alpha1.UserObject], name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind.GroupVersionKind())
	o.SetName(name)
	if kind.Namespaced {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

// field is a field of a schema, with an invalid value for it.
type field struct {
	path  []string
	wrong any
}

// fields returns each field of a schema, at any depth.
func fields(schema apiextensionsv1.JSONSchemaProps, path []string) []field {
	var out []field
	for name, property := range schema.Properties {
		own := append(slices.Clone(path), name)
		wrong := any(map[string]any{"a": "b"})
		if property.Type == "object" {
			wrong = "text"
		}
		out = append(out, field{own, wrong})
		out = append(out, fields(property, own)...)
		if name == "matchExpressions" {
			continue // defined by Kubernetes
		}
		if property.Items != nil && property.Items.Schema != nil {
			out = append(out, fields(*property.Items.Schema, append(slices.Clone(own), "0"))...)
		}
	}
	return out
}

// spoil sets a wrong value at a path.
func spoil(value any, path []string, wrong any) any {
	if len(path) == 0 {
		return wrong
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := value.([]any)
		if len(list) <= i {
			list = append(list, map[string]any{})
		}
		list[i] = spoil(list[i], path[1:], wrong)
		return list
	}
	fields, _ := value.(map[string]any)
	if fields == nil {
		fields = map[string]any{}
	}
	fields[path[0]] = spoil(fields[path[0]], path[1:], wrong)
	return fields
}

// odd creates an object for each field of a kind. That field prevents the object from
// being decoded.
func (n *node) odd(kind v1alpha1.Kind[v1alpha1.UserObject], schema apiextensionsv1.JSONSchemaProps) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	for i, f := range fields(schema, nil) {
		path, memberType := f.path, "XDP"
		if len(path) > 2 && path[0] == "programs" && envtest.Program(path[2]) != "" {
			memberType = path[2]
		}
		spoiled, _ := spoil(n.valid(kind, memberType), path, f.wrong).(map[string]any)
		name := fmt.Sprintf("odd-%s-%d", strings.ToLower(kind.Name), i)
		o := object(kind, name, spoiled)
		o.SetAnnotations(map[string]string{"path": strings.Join(path, ".")})
		out[strings.Join(path, ".")] = o
	}
	return out
}

// status waits until the condition of a user object has a type, and contains words.
func (n *node) status(o *unstructured.Unstructured, conditionType v1alpha1.ProgramConditionType, words ...string) {
	n.t.Helper()
	n.eventually("the status of "+o.GetKind()+" "+o.GetName(), func() error { return n.checkStatus(o, conditionType, words...) })
}

func (n *node) checkStatus(o *unstructured.Unstructured, conditionType v1alpha1.ProgramConditionType, words ...string) error {
	read := o.DeepCopy()
	if err := n.client.Get(context.Background(), client.ObjectKeyFromObject(o), read); err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(read.Object, "status", "conditions")
	if err != nil {
		return err
	}
	if len(conditions) == 0 {
		return fmt.Errorf("conditions %v", conditions)
	}
	condition, _ := conditions[0].(map[string]any)
	message, _ := condition["message"].(string)
	if is, _ := condition["type"].(string); v1alpha1.ProgramConditionTypeOf(is) != conditionType {
		return fmt.Errorf("condition %v", condition)
	}
	for _, w := range words {
		if !strings.Contains(message, w) {
			return fmt.Errorf("message %q without %q", message, w)
		}
	}
	return nil
}

// checkEvent looks for an Event about an object.
func (n *node) checkEvent(o *unstructured.Unstructured, words string) error {
	var list eventsv1.EventList
	if err := n.client.List(context.Background(), &list); err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.Regarding.UID == o.GetUID() && strings.Contains(e.Note, words) {
			return nil
		}
	}
	return fmt.Errorf("no Event of %s says %q", o.GetName(), words)
}

// loaded waits until the daemon has exactly the programs of these objects.
func (n *node) loaded(objects ...*unstructured.Unstructured) {
	n.t.Helper()
	want := map[string]bool{}
	for _, o := range objects {
		want[o.GetKind()+"/"+o.GetName()] = true
	}
	n.eventually("the daemon's programs", func() error {
		got := map[string]bool{}
		for _, p := range n.daemon.Programs() {
			got[p.Metadata[v1alpha1.MetadataKind]+"/"+p.Metadata[v1alpha1.MetadataProgramName]] = true
		}
		var errs []error
		for key := range want {
			if !got[key] {
				errs = append(errs, errors.New(key+" isn't loaded"))
			}
		}
		for key := range got {
			if !want[key] {
				errs = append(errs, errors.New(key+" is loaded"))
			}
		}
		return errors.Join(errs...)
	})
}

// schemas replaces the schemas of all specs, and returns the previous ones.
func (n *node) schemas(by func(kind string) apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
	n.t.Helper()
	c, before := envtest.Client(n.t, envtest.Config(n.t)), map[string]apiextensionsv1.JSONSchemaProps{}
	for _, kind := range v1alpha1.UserKinds {
		n.eventually("the definition of "+kind.Name, func() error {
			var d apiextensionsv1.CustomResourceDefinition
			if err := c.Get(context.Background(), client.ObjectKey{Name: kind.Resource() + ".bpfman.io"}, &d); err != nil {
				return err
			}
			schema := d.Spec.Versions[0].Schema.OpenAPIV3Schema
			before[kind.Name] = *schema.DeepCopy()
			*schema = by(kind.Name)
			return c.Update(context.Background(), &d)
		})
	}
	return before
}

func anything(string) apiextensionsv1.JSONSchemaProps {
	all := true
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &all}
	return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {XPreserveUnknownFields: &all}, "status": open}}
}

// Objects that were stored with another schema, one for each field of each kind, only
// affect themselves, when they are created and after a restart.
func TestStoredObjectsStopNothingButThemselves(t *testing.T) {
	n := start(t)
	schemas := n.schemas(anything)
	restored := false
	restore := func() {
		if !restored {
			n.schemas(func(kind string) apiextensionsv1.JSONSchemaProps { return schemas[kind] })
			restored = true
		}
	}
	t.Cleanup(restore)

	var odd, good []*unstructured.Unstructured
	for _, kind := range v1alpha1.UserKinds {
		for path, o := range n.odd(kind, schemas[kind.Name].Properties["spec"]) {
			n.eventually("an object with an odd "+path, func() error { return n.client.Create(context.Background(), o) })
			t.Cleanup(func() { _ = n.client.Delete(context.Background(), o) })
			odd = append(odd, o)
		}
	}
	if len(odd) < 250 {
		t.Errorf("only %d odd objects", len(odd))
	}
	for _, kind := range v1alpha1.UserKinds {
		if kind.Name == "LsmProgram" {
			continue // it needs the daemon in Go
		}
		o := object(kind, "good-"+strings.ToLower(kind.Name), n.valid(kind, "XDP"))
		n.create(o)
		good = append(good, o)
	}
	n.loaded(good...)
	// An object that is loaded and then becomes invalid stays loaded.
	spoilt := good[len(good)-1]
	must.Succeed(t, n.client.Patch(context.Background(), spoilt.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"priority":"text"}}`))))

	restore()
	n.crash()
	n.startAgent()
	n.startOperator()
	for _, o := range good[:len(good)-1] {
		n.status(o, v1alpha1.ProgramReconcileSuccess, "")
	}
	n.status(spoilt, v1alpha1.ProgramReconcileError, "The object can't be read", "priority")
	n.eventually("what is said of odd objects", func() error {
		var errs []error
		for _, o := range odd {
			const unread = "The object can't be read"
			path := o.GetAnnotations()["path"]
			err := n.checkStatus(o, v1alpha1.ProgramReconcileError, unread)
			member := strings.HasPrefix(path, "programs.0.") && strings.Count(path, ".") == 2 && path != "programs.0.name"
			if member || slices.Contains([]string{"containers", "networkNamespaces", "failurePolicy"}, path[strings.LastIndex(path, ".")+1:]) {
				// The rules about type and members, and about failurePolicy, can't be
				// evaluated, so the API server rejects the status.
				err = n.checkEvent(o, unread)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", o.GetKind(), path, err))
			}
		}
		return errors.Join(errs...)
	})
	n.loaded(good...)
	later := object(v1alpha1.UserKinds[4], "later", n.valid(v1alpha1.UserKinds[4], ""))
	n.create(later)
	n.status(later, v1alpha1.ProgramReconcileSuccess, "Attached on 1 of 1")
	n.readiness(true, "")

	for _, o := range odd {
		n.delete(o)
	}
	n.delete(spoilt)
	for _, o := range append(slices.Clone(odd), spoilt) {
		if err := n.client.Get(context.Background(), client.ObjectKeyFromObject(o), o.DeepCopy()); !apierrors.IsNotFound(err) {
			t.Errorf("%s is still there: %v", o.GetName(), err)
		}
	}
	n.loaded(append(good[:len(good)-1], later)...)
	n.upstreams(append(good[:len(good)-1], later))
}

// upstreams creates objects that upstream's definitions accept, with this project's
// definitions. The status of each object describes the problem, and each object can be
// deleted.
func (n *node) upstreams(others []*unstructured.Unstructured) {
	n.t.Helper()
	kinds := map[string]v1alpha1.Kind[v1alpha1.UserObject]{}
	for _, k := range v1alpha1.UserKinds {
		kinds[k.Name] = k
	}
	failed := v1alpha1.ProgramReconcileError
	var all []*unstructured.Unstructured
	for i, c := range []struct {
		kind, member, change string
		condition            v1alpha1.ProgramConditionType
		words                string
	}{
		{"XdpProgram", "", `{"bytecode":{"path":null}}`, failed, "bytecode has neither an image nor a path"},
		{"XdpProgram", "", `{"bytecode":{"path":""}}`, failed, "bytecode.path is empty"},
		{"XdpProgram", "", `{"bytecode":{"path":null,"image":{"url":""}}}`, failed, "bytecode.image.url is empty"},
		{"XdpProgram", "", `{"bpffunctionname":""}`, failed, "bpffunctionname is empty"},
		{"KprobeProgram", "", `{"func_name":""}`, failed, "func_name is empty"},
		{"FentryProgram", "", `{"func_name":""}`, failed, "func_name is empty"},
		{"FexitProgram", "", `{"func_name":""}`, failed, "func_name is empty"},
		{"UprobeProgram", "", `{"target":""}`, failed, "target is empty"},
		{"TcxProgram", "", `{"interfaceselector":{"interfaces":null,"primarynodeinterface":false}}`, failed, "has one of its internal addresses"},
		{"BpfApplication", "XDP", `{"programs":[{}]}`, failed, "spec.programs[0] has no type"},
		{"BpfNsApplication", "XDP", `{"programs":[{}]}`, failed, "spec.programs[0] has no type"},
		{"BpfApplication", "Kretprobe", `{"programs":[{"type":"Kretprobe","kretprobe":{"bpffunctionname":"f","func_name":"g","offset":4}}]}`, v1alpha1.ProgramReconcileSuccess, "Attached on 1 of 1"},
		{"BpfApplication", "Kprobe", `{"programs":[{"type":"Kprobe","kprobe":{"bpffunctionname":"f","func_name":"g","offset":4,"retprobe":true}}]}`, v1alpha1.ProgramReconcileSuccess, "Attached on 1 of 1"},
	} {
		o := object(kinds[c.kind], fmt.Sprintf("upstreams-%d", i), n.valid(kinds[c.kind], c.member))
		n.create(o)
		if err := n.client.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+c.change+`}`))); err != nil {
			n.t.Errorf("%s with %s: %v", c.kind, c.change, err)
			continue
		}
		n.status(o, c.condition, c.words)
		all = append(all, o)
	}
	for _, o := range all {
		n.delete(o)
	}
	n.loaded(others...)
}

// startOperator starts the operator, and creates the pod by which it finds the agent.
func (n *node) startOperator() {
	n.t.Helper()
	const namespace = "bpfman"
	if err := n.client.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); client.IgnoreAlreadyExists(err) != nil {
		n.t.Fatal(err)
	}
	n.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + n.name, Namespace: namespace, Labels: deploy.PodLabels()},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	})
	mgr, err := operator.New(envtest.Config(n.t), operator.Options{Namespace: namespace, MetricsAddr: "0", HealthAddr: "0"})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Errorf("the operator ended: %v", err)
		}
	})
}
