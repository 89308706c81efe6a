// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package admission

import (
	"bytes"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestHardened applies config/hardened and its policies, as documented in docs/hardening.md.
func TestHardened(t *testing.T) {
	admin := envtest.Client(t, envtest.Config(t))
	for _, overlay := range []string{"config/hardened", "config/hardened/policies"} {
		strict := client.WithFieldValidation(admin, metav1.FieldValidationStrict)
		must.Succeed(t, envtest.Apply(t.Context(), strict, overlay, "Deployment"))
	}
	var data corev1.ConfigMap
	must.Succeed(t, admin.Get(t.Context(), client.ObjectKey{Namespace: "bpfman", Name: "bpfman-config"}, &data))
	config, unknown, err := deploy.ParseConfig(data.Data)
	if err != nil || len(unknown) > 0 || config.CSI.ClusterAccess != deploy.ClusterAccessRBAC {
		t.Errorf("cluster access %q, unknown keys %q, %v", config.CSI.ClusterAccess, unknown, err)
	}

	var policies v1alpha1.BytecodePolicyList
	must.Succeed(t, admin.List(t.Context(), &policies))
	for _, policy := range policies.Items {
		if policy.Spec.Mode != v1alpha1.PolicyEnforce || policy.Spec.OnViolation != v1alpha1.OnViolationKeep {
			t.Errorf("policy %s has mode %s, onViolation %s", policy.Name, policy.Spec.Mode, policy.Spec.OnViolation)
		}
		if err := admin.Delete(t.Context(), &policy); err != nil {
			t.Error(err)
		}
	}
	if len(policies.Items) != 2 {
		t.Fatalf("%d policies", len(policies.Items))
	}
	// Sorted by name.
	allowed, byDigest := policies.Items[0].Spec, policies.Items[1].Spec
	if allowed.UnmatchedImages != v1alpha1.UnmatchedDeny || len(allowed.Rules) != 0 {
		t.Errorf("not all is denied: %+v", allowed)
	}
	if len(byDigest.Rules) != 1 || !byDigest.Rules[0].DigestOnly || len(byDigest.Rules[0].Images) != 1 || byDigest.Rules[0].Images[0] != "**" {
		t.Errorf("not all is by digest: %+v", byDigest)
	}
}

// TestPoliciesOfThePage checks that the API server accepts the BytecodePolicies in
// docs/signed-bytecode.md.
func TestPoliciesOfThePage(t *testing.T) {
	admin := envtest.Client(t, envtest.Config(t))
	page := must.Read(t, "../../../docs/signed-bytecode.md")
	policies := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		if !bytes.Contains(block[1], []byte("kind: BytecodePolicy\n")) {
			continue
		}
		policies++
		var policy v1alpha1.BytecodePolicy
		if err := yaml.UnmarshalStrict(block[1], &policy); err != nil {
			t.Fatalf("%v in:\n%s", err, block[1])
		}
		if err := admin.Create(t.Context(), &policy, client.DryRunAll); err != nil {
			t.Errorf("%v in:\n%s", err, block[1])
		}
	}
	if policies == 0 {
		t.Error("the page has no policy")
	}
}
