// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Each part of a match has to apply. What isn't valid applies to everything, because a rollout in steps is safer.
func TestRolloutMatches(t *testing.T) {
	shared := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"tier": "edge"}}}
	shared.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "quay.io/acme/flows:v1"}
	tenants := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "acme"}}
	tenants.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "not a reference"}
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}
	for name, test := range map[string]struct {
		match                  v1alpha1.RolloutPolicyMatch
		shared, tenants, valid bool
	}{
		"everything":          {v1alpha1.RolloutPolicyMatch{}, true, true, true},
		"the kind":            {v1alpha1.RolloutPolicyMatch{Kinds: []string{"XdpProgram", "TcxProgram"}}, true, false, true},
		"labels":              {v1alpha1.RolloutPolicyMatch{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "edge"}}}, true, false, true},
		"an invalid selector": {v1alpha1.RolloutPolicyMatch{ObjectSelector: invalid}, true, true, false},
		"the namespace":       {v1alpha1.RolloutPolicyMatch{Namespaces: []string{"ac*"}}, false, true, true},
		"another namespace":   {v1alpha1.RolloutPolicyMatch{Namespaces: []string{"other"}}, false, false, true},
		"the image":           {v1alpha1.RolloutPolicyMatch{Images: []string{"quay.io/acme/*"}}, true, true, true},
		"another image":       {v1alpha1.RolloutPolicyMatch{Images: []string{"quay.io/other/*"}}, false, true, true},
		"the type":            {v1alpha1.RolloutPolicyMatch{ProgramTypes: []v1alpha1.EBPFProgType{v1alpha1.ProgTypeTCX}}, true, true, true},
		"another type":        {v1alpha1.RolloutPolicyMatch{ProgramTypes: []v1alpha1.EBPFProgType{v1alpha1.ProgTypeXDP}}, false, false, true},
		"one part of two":     {v1alpha1.RolloutPolicyMatch{Kinds: []string{"TcxProgram"}, Namespaces: []string{"acme"}}, false, false, true},
	} {
		p := CompileRollout(&v1alpha1.RolloutPolicy{Spec: v1alpha1.RolloutPolicySpec{Match: test.match}})
		if got := p.Matches("TcxProgram", shared); got != test.shared {
			t.Errorf("%s matches the cluster-scoped object: %v", name, got)
		}
		if got := p.Matches("TcxNsProgram", tenants); got != test.tenants {
			t.Errorf("%s matches the namespaced object: %v", name, got)
		}
		if got := len(p.Problems()) == 0; got != test.valid {
			t.Errorf("%s is valid: %v", name, got)
		}
	}
}
