// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

func publicKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// A policy's status says whether its key can be read, and identifies the key. It is
// updated within seconds after a rotation, and counts what agents report.
func TestPolicyStatus(t *testing.T) {
	c := cluster(t)
	p := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy-status"}, Spec: v1alpha1.BytecodePolicySpec{
		Rules: []v1alpha1.BytecodeRule{{Name: "signed", Images: []string{"registry.example.com/**"}, SignedBy: []string{"team"}}},
		Authorities: []v1alpha1.BytecodeAuthority{{
			Name: "team", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "policy-status"}},
		}},
	}}
	create(t, c, p)
	status := func(what string, check func(v1alpha1.BytecodePolicyStatus, metav1.Condition) bool) v1alpha1.BytecodePolicyStatus {
		t.Helper()
		envtest.Eventually(t, what, func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if len(p.Status.Conditions) == 0 || !check(p.Status, p.Status.Conditions[0]) {
				return fmt.Errorf("status %+v", p.Status)
			}
			return nil
		})
		return p.Status
	}
	missing := status("a key that is missing", func(_ v1alpha1.BytecodePolicyStatus, ready metav1.Condition) bool {
		return ready.Status == metav1.ConditionFalse && ready.Reason == "Invalid" && strings.Contains(ready.Message, `authority "team": read Secret policy-status`)
	})
	if a := missing.Authorities; len(a) != 1 || a[0].Digest != "" || !strings.Contains(a[0].Error, "not found") {
		t.Errorf("authorities %+v", a)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "policy-status"}, Data: map[string][]byte{"cosign.pub": publicKey(t)}}
	create(t, c, secret)
	first := status("a key", func(s v1alpha1.BytecodePolicyStatus, ready metav1.Condition) bool {
		return ready.Status == metav1.ConditionTrue && s.ObservedGeneration == p.Generation && s.Authorities[0].Digest != "" && s.Authorities[0].Error == ""
	}).Authorities[0].Digest
	secret.Data["cosign.pub"] = publicKey(t)
	must.Succeed(t, c.Update(t.Context(), secret))
	status("another key", func(s v1alpha1.BytecodePolicyStatus, _ metav1.Condition) bool {
		return s.Authorities[0].Digest != "" && s.Authorities[0].Digest != first
	})

	addNode(t, c, "policies-1", map[string]string{"pool": "policies"})
	addNode(t, c, "policies-2", map[string]string{"pool": "policies"})
	owner := tracepoint("policies", "policies")
	create(t, c, owner)
	say := func(node string, verdict v1alpha1.PolicyVerdict) {
		t.Helper()
		o := report(t, c, owner, node, v1alpha1.BpfProgCondLoaded.Condition())
		o.Status.Bytecode = &v1alpha1.BpfProgramBytecode{Policies: []v1alpha1.BpfProgramPolicy{{Name: p.Name, Verdict: verdict}}}
		must.Succeed(t, c.Status().Update(t.Context(), o))
	}
	counts := func(allowed, denied, warned int32) {
		t.Helper()
		status(fmt.Sprint("counts ", allowed, denied, warned), func(s v1alpha1.BytecodePolicyStatus, _ metav1.Condition) bool {
			return s.Allowed == allowed && s.Denied == denied && s.Warned == warned
		})
	}
	say("policies-1", v1alpha1.VerdictAllowed)
	say("policies-2", v1alpha1.VerdictDenied)
	counts(1, 1, 0)
	say("policies-2", v1alpha1.VerdictWarned)
	counts(1, 0, 1)
	must.Succeed(t, c.Delete(t.Context(), programOf(owner, "policies-1")))
	counts(0, 0, 1)
}
