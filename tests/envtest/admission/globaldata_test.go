// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package admission

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// application returns an application, whose minimal spec has no fields that are specific
// to a type.
func application(name string, globals map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"nodeselector": map[string]any{}, "bytecode": map[string]any{}, "globaldata": globals,
	}}}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("BpfApplication"))
	o.SetName(name)
	return o
}

func TestGlobalDataIsBytes(t *testing.T) {
	admin := privilegedClient(t, "an-administrator")
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "bpfman-globaldata-is-bytes"}}
	must.Succeed(t, client.IgnoreNotFound(admin.Delete(t.Context(), binding)))
	stored := application("stored-before", map[string]any{"wrong": int64(5)})
	envtest.Eventually(t, "store an object with a number without the policy", func(ctx context.Context) error { return admin.Create(ctx, stored) })
	must.Succeed(t, envtest.Apply(t.Context(), admin, "config/admission"))
	refusal := func(err error, name string) bool {
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "neither base64 nor a list of integers from 0 to 255: "+name)
	}
	inForce(t, "the policy for globals", func(ctx context.Context) bool {
		return refusal(admin.Create(ctx, application("probe", map[string]any{"x": int64(5)}), client.DryRunAll), "x")
	})

	list := func(bytes ...any) []any { return bytes }
	for name, test := range map[string]struct {
		value any
		right bool
	}{
		"base64":                          {"DQwLCg==", true},
		"unpadded length":                 {"AQID", true},
		"empty":                           {"", true},
		"a list":                          {list(int64(0), int64(13), int64(255)), true},
		"an empty list":                   {[]any{}, true},
		"a long list":                     {long(1 << 10), true},
		"a longer one, left to the agent": {long(1 << 16), true},
		"a number":                        {int64(1), false},
		"a truth value":                   {true, false},
		"an object":                       {map[string]any{"a": "b"}, false},
		"no base64":                       {"not base64!", false},
		"missing padding":                 {"AQ", false},
		"a byte too large":                {list(int64(256)), false},
		"a negative byte":                 {list(int64(-1)), false},
		"a list of texts":                 {list("AQ=="), false},
		"a list of lists":                 {list(list(int64(1))), false},
		"a byte and a float":              {list(int64(1), 1.5), false},
	} {
		err := admin.Create(t.Context(), application("globals", map[string]any{"right": "AQ==", "value": test.value}), client.DryRunAll)
		if test.right && err != nil || !test.right && !refusal(err, "value") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// An existing invalid object can be changed in other fields, and corrected.
	stored.SetLabels(map[string]string{"a": "b"})
	if err := admin.Update(t.Context(), stored); err != nil {
		t.Errorf("label an object stored before: %v", err)
	}
	change := func(value any) error {
		changed := stored.DeepCopy()
		must.Succeed(t, unstructured.SetNestedField(changed.Object, map[string]any{"wrong": value}, "spec", "globaldata"))
		return admin.Update(t.Context(), changed)
	}
	if err := change(int64(6)); !refusal(err, "wrong") {
		t.Errorf("change it for another number: %v", err)
	}
	if err := change("AQ=="); err != nil {
		t.Errorf("mend it: %v", err)
	}
}

// long returns a list of n bytes, like a table of a user.
func long(n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = int64(i % 256)
	}
	return out
}
