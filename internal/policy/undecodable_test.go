// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/undecodable"
)

// What a policy matches and requires isn't known if it can't be decoded, so it denies everything. An empty policy
// allows everything.
func TestPolicyThatCannotBeDecoded(t *testing.T) {
	o := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, damaged := range []bool{false, true} {
		bytecode, rollouts := &v1alpha1.BytecodePolicy{}, &v1alpha1.RolloutPolicy{}
		if damaged {
			undecodable.Mark(bytecode, errors.New("spec.rules is a string"))
			undecodable.Mark(rollouts, errors.New("spec.steps is a string"))
		}
		verdict, why := Sum(Evaluate([]*Policy{Compile(bytecode, nil)}, SubjectOf("TcxProgram", o)).Decide(nil))
		if Loads(verdict) == damaged || strings.Contains(textOf(why), "spec.rules is a string") != damaged {
			t.Errorf("damaged: %v: %s: %s", damaged, verdict, textOf(why))
		}
		p := CompileRollout(rollouts)
		if !p.Matches("TcxProgram", o) || (p.Undecodable != "") != damaged || (len(p.Problems()) > 0) != damaged {
			t.Errorf("damaged: %v: %+v", damaged, p)
		}
	}
}
