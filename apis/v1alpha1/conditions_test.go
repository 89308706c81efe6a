// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"slices"
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
		"PolicyDenied": "policyDenied", "PolicyViolated": "policyViolated", "RolledBack": "rolledBack", "NoInterfacesOnNode": "noInterfacesOnNode",
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
		BpfProgCondPolicyDenied: true, BpfProgCondPolicyViolated: true, BpfProgCondRolledBack: true,
	}
	for conditionType := range bpfProgramTexts {
		if conditionType.Failed() != want[conditionType] {
			t.Errorf("%s: Failed() = %v", conditionType, conditionType.Failed())
		}
	}
}

func TestSetConditions(t *testing.T) {
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	since := func(conditions []metav1.Condition) []metav1.Condition {
		for i := range conditions {
			conditions[i].LastTransitionTime = past
		}
		return conditions
	}
	loaded, stalled := Ready.Conditions(BpfProgCondLoaded.Condition()), Stalled.Conditions(BpfProgCondNotLoaded.Condition())
	for _, test := range []struct {
		name        string
		have, set   []metav1.Condition
		wantChanged bool
		wantOld     []string
	}{
		{"first", nil, loaded, true, nil},
		{"same again", since(Ready.Conditions(BpfProgCondLoaded.Condition())), loaded, false, []string{"Loaded", "Ready"}},
		{"other message", since(Ready.Conditions(BpfProgCondLoaded.Condition("twice"))), loaded, true, []string{"Loaded", "Ready"}},
		{"other type", since(Ready.Conditions(BpfProgCondLoaded.Condition())), stalled, true, nil},
		{"another failure", since(Stalled.Conditions(BpfProgCondBytecodeSelectorError.Condition())), stalled, true, []string{"Ready", "Stalled"}},
		{"of upstream alone", since([]metav1.Condition{BpfProgCondLoaded.Condition()}), loaded, true, []string{"Loaded"}},
		{"another first", since([]metav1.Condition{loaded[1], loaded[0]}), loaded, true, []string{"Loaded", "Ready"}},
		{"none", since([]metav1.Condition{loaded[0]}), nil, true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			conditions := slices.Clone(test.have)
			if changed := SetConditions(&conditions, test.set...); changed != test.wantChanged {
				t.Errorf("changed = %v", changed)
			}
			var old []string
			for i, c := range conditions {
				if want := test.set[i]; c.Type != want.Type || c.Status != want.Status || c.Message != want.Message {
					t.Errorf("%d: %+v, want %+v", i, c, want)
				}
				if c.LastTransitionTime.Equal(&past) {
					old = append(old, c.Type)
				}
			}
			if len(conditions) != len(test.set) || !slices.Equal(old, test.wantOld) {
				t.Errorf("%d conditions, with the old times: %v", len(conditions), old)
			}
		})
	}
}

// The first condition of each kind has the names of its generation of upstream's API, and the same meaning.
func TestConditionsOfKinds(t *testing.T) {
	for condition, want := range map[ProgramConditionType]string{
		ProgramNotYetLoaded: "Pending", ProgramReconcileSuccess: "Success", ProgramReconcileError: "Error", ProgramDeleteError: "DeleteError",
	} {
		namespaced := Kind[UserObject]{Name: "BpfApplication", Namespaced: true}
		for _, kind := range append(UserKinds, namespaced) {
			c, same := condition.For(kind.Name, kind.Namespaced, "m"), condition.Condition("m")
			if kind.Name == "ClusterBpfApplication" || kind.Name == namespaced.Name && kind.Namespaced {
				same.Type, same.Reason = want, want
			}
			if c != same || ProgramConditionTypeOf(c.Type) != condition {
				t.Errorf("%s: %+v, want %+v", kind.Name, c, same)
			}
		}
	}
	if got := ProgramConditionTypeOf("Other"); got != "Other" {
		t.Errorf("an unknown type is %s", got)
	}
}
