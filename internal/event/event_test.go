// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package event

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// recorder records the fields that distinguish Events.
type recorder struct{ actions, notes []string }

func (r *recorder) Eventf(_, _ runtime.Object, _, _, action, _ string, args ...any) {
	r.actions = append(r.actions, action)
	r.notes = append(r.notes, fmt.Sprint(args...))
}

func TestNotesKeepEventsApart(t *testing.T) {
	r := &recorder{}
	for _, note := range []string{"a: no", "b: no", "a: no"} {
		Emit(r, &corev1.ConfigMap{}, corev1.EventTypeWarning, "Failed", "Load", note)
	}
	if r.actions[0] == r.actions[1] || r.actions[0] != r.actions[2] {
		t.Errorf("actions %q", r.actions)
	}
}

func TestNoteFitsTheAPI(t *testing.T) {
	r := &recorder{}
	Emit(r, &corev1.ConfigMap{}, corev1.EventTypeWarning, "Failed", "Load", "node a: "+strings.Repeat("é%d\n", 1000)+"verdict")
	if note := r.notes[0]; len(note) > maxNote || !utf8.ValidString(note) || strings.Contains(note, "\n") ||
		!strings.HasPrefix(note, "node a: ") || !strings.HasSuffix(note, "verdict") {
		t.Errorf("%d bytes: %q", len(note), note)
	}
}
