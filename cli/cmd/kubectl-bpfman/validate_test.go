// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bpfman/bpfman-operator/cli/cluster"
)

// validating returns a cluster that answers dry runs with a refusal, or accepts them.
func validating(t *testing.T, refusal error, objects ...client.Object) cluster.Connect {
	t.Helper()
	read := clusterOf(objects...)
	writer := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, options ...client.PatchOption) error {
			o := client.PatchOptions{}
			if o.ApplyOptions(options); len(o.DryRun) != 1 || o.DryRun[0] != metav1.DryRunAll {
				t.Errorf("it is written: %+v", o)
			}
			return refusal
		},
	}).Build()
	return func() (*cluster.Cluster, error) {
		c, err := read()
		c.Writer, c.Namespace = writer, "team"
		return c, err
	}
}

func TestValidate(t *testing.T) {
	const dir = "testdata/validate/manifests/"
	objects := append(namespaced(), node("three", map[string]string{"zone": "a"}))
	refusal := apierrors.NewInvalid(schema.GroupKind{Group: "bpfman.io", Kind: "TcxProgram"}, "counter", field.ErrorList{field.Forbidden(nil, "ValidatingAdmissionPolicy 'x' denied request")})
	for file, test := range map[string]struct {
		connect cluster.Connect
		args    []string
		fails   bool
	}{
		"fine.txt":        {validating(t, nil, objects...), []string{"-f", dir + "fine.yaml"}, false},
		"offline.txt":     {nil, []string{"--offline", "-f", dir + "fine.yaml"}, false},
		"typos.txt":       {nil, []string{"--offline", "-f", dir + "typos.yaml"}, true},
		"nothing.txt":     {validating(t, nil, objects...), []string{"-f", dir + "nothing.yaml"}, false},
		"strict.txt":      {validating(t, nil, objects...), []string{"-f", dir + "nothing.yaml", "--strict"}, true},
		"refused.txt":     {validating(t, refusal, objects...), []string{"-f", dir + "fine.yaml"}, true},
		"unreachable.txt": {func() (*cluster.Cluster, error) { return nil, errors.New("read kubeconfig: no such file") }, []string{"-f", dir + "fine.yaml"}, false},
		"directory.json":  {nil, []string{"--offline", "-f", dir, "-o", "json"}, true},
	} {
		t.Run(file, func(t *testing.T) {
			out, messages, err := execute(t, test.connect, append([]string{"validate"}, test.args...)...)
			if errors.Is(err, errInvalid) != test.fails || err != nil && !test.fails || messages != "" {
				t.Errorf("said %q, error %v", messages, err)
			}
			golden.Assert(t, out, "validate/"+file)
		})
	}
	if _, _, err := execute(t, nil, "validate", "-f", dir+"absent.yaml"); err == nil || errors.Is(err, errInvalid) || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("a file that doesn't exist: %v", err)
	}
}

// The cluster refuses what a webhook or a policy denies, with any code. The rights of the user aren't about the object.
func TestValidateWhatAdmissionDenies(t *testing.T) {
	xdp := schema.GroupResource{Group: "bpfman.io", Resource: "xdpprograms"}
	policy := apierrors.NewForbidden(xdp, "counter", errors.New("ValidatingAdmissionPolicy 'x' with binding 'y' denied request: not here"))
	policy.ErrStatus.Reason, policy.ErrStatus.Code = metav1.StatusReasonRequestEntityTooLarge, 413
	ending := apierrors.NewForbidden(xdp, "counter", errors.New("the namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	webhook := func(code int32, reason metav1.StatusReason) error {
		return webhookerrors.ToStatusErr("policy.example.com", &metav1.Status{Code: code, Reason: reason, Message: "not here"})
	}
	for name, test := range map[string]struct {
		answer  error
		refuses bool
	}{
		"a webhook of controller-runtime": {webhook(403, metav1.StatusReasonForbidden), true},
		"a webhook without a reason":      {webhook(403, ""), true},
		"a webhook without a code":        {webhook(0, ""), true},
		"a webhook with another code":     {webhook(409, ""), true},
		"a policy":                        {policy, true},
		"the namespace":                   {ending, true},
		"the user's rights":               {apierrors.NewForbidden(xdp, "counter", errors.New("User \"a\" cannot patch resource")), false},
		"a webhook that fails":            {apierrors.NewInternalError(errors.New("failed calling webhook \"policy.example.com\"")), false},
	} {
		out, _, err := execute(t, validating(t, test.answer), "validate", "-f", "testdata/validate/manifests/fine.yaml")
		if errors.Is(err, errInvalid) != test.refuses || strings.Contains(out, "the cluster refuses it") != test.refuses || strings.Contains(out, "whether the cluster accepts it") == test.refuses {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
