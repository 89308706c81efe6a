// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Users and scripts of upstream know these reasons from the STATUS column.
func TestConditionReasons(t *testing.T) {
	user := map[ProgramConditionType]string{
		"NotYetLoaded": "ProgramsNotYetLoaded", "ReconcileError": "ReconcileError",
		"ReconcileSuccess": "ReconcileSuccess", "DeleteError": "DeleteError",
	}
	for conditionType, reason := range user {
		checkCondition(t, conditionType.Condition(""), string(conditionType), reason)
	}
	if len(user) != len(programTexts) {
		t.Errorf("%d types, want %d", len(programTexts), len(user))
	}

	program := map[BpfProgramConditionType]string{
		"Loaded": "bpfmanLoaded", "NotLoaded": "bpfmanNotLoaded", "NotUnLoaded": "bpfmanNotUnloaded",
		"NotSelected": "nodeNotSelected", "Unloaded": "bpfmanUnloaded",
		"MapOwnerNotFound": "mapOwnerNotFound", "MapOwnerNotLoaded": "mapOwnerNotLoaded",
		"BytecodeSelectorError": "bytecodeSelectorError", "NoContainersOnNode": "noContainersOnNode", "None": "None",
		"PolicyDenied": "policyDenied", "PolicyViolated": "policyViolated", "NoInterfacesOnNode": "noInterfacesOnNode",
	}
	for conditionType, reason := range program {
		checkCondition(t, conditionType.Condition(), string(conditionType), reason)
	}
	if len(program) != len(bpfProgramTexts) {
		t.Errorf("%d types, want %d", len(bpfProgramTexts), len(program))
	}
}

func checkCondition(t *testing.T, got metav1.Condition, conditionType, reason string) {
	t.Helper()
	if got.Type != conditionType || got.Reason != reason || got.Status != metav1.ConditionTrue || got.Message == "" {
		t.Errorf("got %+v, want type %s, reason %s, status True and a message", got, conditionType, reason)
	}
}

func TestConditionMessage(t *testing.T) {
	if got := BpfProgCondNotLoaded.Condition("node-1: no such function").Message; got != "node-1: no such function" {
		t.Errorf("message %q", got)
	}
	// The end of a long error contains the verdict.
	got := ProgramReconcileError.Condition("load f: " + strings.Repeat("é", maxMessage) + " keeps running").Message
	if len(got) > maxMessage || !strings.HasPrefix(got, "load f: ") || !strings.HasSuffix(got, " keeps running") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestFailed(t *testing.T) {
	want := map[BpfProgramConditionType]bool{
		BpfProgCondNotLoaded: true, BpfProgCondNotUnloaded: true, BpfProgCondMapOwnerNotFound: true,
		BpfProgCondMapOwnerNotLoaded: true, BpfProgCondBytecodeSelectorError: true,
		BpfProgCondPolicyDenied: true, BpfProgCondPolicyViolated: true,
	}
	for conditionType := range bpfProgramTexts {
		if conditionType.Failed() != want[conditionType] {
			t.Errorf("%s: Failed() = %v", conditionType, conditionType.Failed())
		}
	}
}

func TestSetCondition(t *testing.T) {
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	loaded := BpfProgCondLoaded.Condition("")
	old := loaded
	old.LastTransitionTime = past

	for _, test := range []struct {
		name        string
		have        []metav1.Condition
		set         metav1.Condition
		wantChanged bool
		wantOldTime bool
	}{
		{"first", nil, loaded, true, false},
		{"same again", []metav1.Condition{old}, loaded, false, true},
		{"other message", []metav1.Condition{old}, BpfProgCondLoaded.Condition("twice"), true, true},
		{"other type", []metav1.Condition{old}, BpfProgCondNotLoaded.Condition(), true, false},
		{"several", []metav1.Condition{BpfProgCondNotLoaded.Condition(), old}, loaded, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			conditions := test.have
			if changed := SetCondition(&conditions, test.set); changed != test.wantChanged {
				t.Errorf("changed = %v", changed)
			}
			if len(conditions) != 1 || conditions[0].Type != test.set.Type || conditions[0].Message != test.set.Message {
				t.Fatalf("conditions = %+v", conditions)
			}
			if conditions[0].LastTransitionTime.Equal(&past) != test.wantOldTime {
				t.Errorf("last transition at %v", conditions[0].LastTransitionTime)
			}
		})
	}
}
