// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

var request = reconcile.Request{NamespacedName: types.NamespacedName{Name: "p"}}

func cluster(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.BytecodePolicy{}, &v1alpha1.RolloutPolicy{}).Build()
}

func bytecodePolicies(c client.Client) *Reconciler {
	return &Reconciler{
		Client: c, Live: c, Reports: reports.NewStore(&kinds.Kinds{}, v1alpha1.StateKinds), Namespace: "bpfman", Clock: testingclock.NewFakePassiveClock(time.Unix(5000, 0)),
		tally: newTally(), notes: map[string]note{},
	}
}

// An event can arrive before its kind is listed. No other event follows.
func TestPolicyThatIsNotListedYet(t *testing.T) {
	c := interceptor.NewClient(cluster(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return &kinds.UnreadError{Kind: "BytecodePolicy"}
		},
	})
	for _, r := range []reconcile.Reconciler{bytecodePolicies(c), &Rollouts{Client: c}} {
		if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter == 0 {
			t.Errorf("%T: %+v, %v", r, result, err)
		}
	}
}

func TestPolicyThatIsDeleted(t *testing.T) {
	c := cluster(t)
	for _, r := range []reconcile.Reconciler{bytecodePolicies(c), &Rollouts{Client: c}} {
		if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != 0 {
			t.Errorf("%T: %+v, %v", r, result, err)
		}
	}
}

func TestStatusOfBytecodePolicies(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "key"}, Data: map[string][]byte{"cosign.pub": []byte("nonsense")}}
	authority := func(name string) v1alpha1.BytecodeAuthority {
		return v1alpha1.BytecodeAuthority{Name: "us", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: name}}}
	}
	for name, test := range map[string]struct {
		spec    v1alpha1.BytecodePolicySpec
		ready   metav1.ConditionStatus
		words   string
		rereads bool
	}{
		"valid":        {spec: v1alpha1.BytecodePolicySpec{Rules: []v1alpha1.BytecodeRule{{Name: "all", Images: []string{"*"}}}}, ready: metav1.ConditionTrue, words: readyMessage},
		"no such key":  {spec: v1alpha1.BytecodePolicySpec{Authorities: []v1alpha1.BytecodeAuthority{authority("absent")}}, ready: metav1.ConditionFalse, words: `authority "us": `, rereads: true},
		"not a key":    {spec: v1alpha1.BytecodePolicySpec{Authorities: []v1alpha1.BytecodeAuthority{authority("key")}}, ready: metav1.ConditionFalse, words: `authority "us": `, rereads: true},
		"no authority": {spec: v1alpha1.BytecodePolicySpec{Rules: []v1alpha1.BytecodeRule{{Name: "all", SignedBy: []string{"us"}}}}, ready: metav1.ConditionFalse, words: `rule all: authority "us" doesn't exist`},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 3}, Spec: test.spec}
			policy.Status.Allowed, policy.Status.Denied = 7, 2
			c := cluster(t, policy, secret)
			result, err := bytecodePolicies(c).Reconcile(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), request.NamespacedName, policy); err != nil {
				t.Fatal(err)
			}
			s := policy.Status
			ready := meta.FindStatusCondition(s.Conditions, string(v1alpha1.Ready))
			if (s.Problem == "") != (test.ready == metav1.ConditionTrue) {
				t.Errorf("%q names the problem %q", ready.Message, s.Problem)
			}
			if ready == nil || ready.Status != test.ready || !strings.Contains(ready.Message, test.words) || s.ObservedGeneration != 3 {
				t.Errorf("the status is %+v", s)
			}
			// Reports aren't listed, so what was counted stays, and is counted soon.
			if s.Allowed != 7 || s.Denied != 2 || result.RequeueAfter == 0 || result.RequeueAfter > unlistedRetry {
				t.Errorf("%d allowed, %d denied, again after %s", s.Allowed, s.Denied, result.RequeueAfter)
			}
		})
	}
}

const publicKey = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3RMezxXWgdLjKwXbfi5UBWNRQ5Bg
PNmALWTcaGLhNTlHiGwCtYZA1VMtWmquGxj0bb9lC4gdf8/WbcLE/ucs6A==
-----END PUBLIC KEY-----
`

// A key that the API server doesn't return stays in the status, which agents compare with what they have read. That also holds
// for an operator that has just started. A key that doesn't exist doesn't stay.
func TestStatusOfKeysThatAreNotReturned(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kept bool
	}{
		"etcd fails":        {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}, true},
		"too many requests": {apierrors.NewTooManyRequests("", 1), true},
		"no response":       {context.DeadlineExceeded, true},
		"deleted":           {apierrors.NewNotFound(corev1.Resource("secrets"), "key"), false},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(name, restarts), func(t *testing.T) {
				policy := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 3}}
				policy.Spec.Authorities = []v1alpha1.BytecodeAuthority{{Name: "us", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "key"}}}}
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "key"}, Data: map[string][]byte{"cosign.pub": []byte(publicKey)}}
				server, fails := cluster(t, policy, secret), error(nil)
				live := interceptor.NewClient(server, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
						if fails != nil {
							return fails
						}
						return c.Get(ctx, key, o, options...)
					},
				})
				clock := testingclock.NewFakePassiveClock(time.Unix(5000, 0))
				operator := func() *Reconciler {
					r := bytecodePolicies(server)
					r.Live, r.Clock = live, clock
					return r
				}
				r := operator()
				digest := func() string {
					clock.SetTime(clock.Now().Add(2 * materialEvery))
					if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter == 0 {
						t.Errorf("%+v, %v", result, err)
					}
					if err := server.Get(t.Context(), request.NamespacedName, policy); err != nil {
						t.Fatal(err)
					}
					if ready := meta.IsStatusConditionTrue(policy.Status.Conditions, string(v1alpha1.Ready)); ready != (policy.Status.Authorities[0].Digest != "") {
						t.Errorf("the status is %+v", policy.Status)
					}
					return policy.Status.Authorities[0].Digest
				}
				before := digest()
				fails = c.err
				if restarts {
					r = operator()
				}
				if kept := digest() == before; before == "" || kept != c.kept {
					t.Errorf("the digest of the key was %q, and is kept: %v", before, kept)
				}
				fails = nil
				if digest() != before {
					t.Errorf("the status is %+v", policy.Status)
				}
			})
		}
	}
}

func TestStatusOfRolloutPolicies(t *testing.T) {
	for name, test := range map[string]struct {
		selector *metav1.LabelSelector
		ready    metav1.ConditionStatus
		words    string
	}{
		"valid":   {nil, metav1.ConditionTrue, "Changes of matching objects are rolled out in steps"},
		"invalid": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}, metav1.ConditionFalse, "canaries: "},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Generation: 3}, Spec: v1alpha1.RolloutPolicySpec{Canaries: test.selector}}
			writes := 0
			c := interceptor.NewClient(cluster(t, policy), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
					writes++
					return c.SubResource(sub).Patch(ctx, o, p, options...)
				},
			})
			for range 2 { // the second one changes nothing
				if _, err := (&Rollouts{Client: c}).Reconcile(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Get(t.Context(), request.NamespacedName, policy); err != nil {
				t.Fatal(err)
			}
			ready := meta.FindStatusCondition(policy.Status.Conditions, string(v1alpha1.Ready))
			if ready == nil || ready.Status != test.ready || !strings.Contains(ready.Message, test.words) || policy.Status.ObservedGeneration != 3 || writes != 1 {
				t.Errorf("%d writes, and the status is %+v", writes, policy.Status)
			}
		})
	}
}
