// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Health is what the inspector of a node says about the programs of user objects. It is the
// value of [v1alpha1.AnnotationObjectHealth], as JSON.
type Health struct {
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// RunTimes contains the programs whose runs the inspector measures.
	RunTimes []RunTime `json:"runTimes,omitempty"`
}

// Conflict is a conflict of an object.
type Conflict struct {
	v1alpha1.BpfNodeOwner

	// Since is when the inspector first reported the conflict.
	Since   metav1.Time `json:"since"`
	Message string      `json:"message"`
}

// RunTime is how long the runs of a program take.
type RunTime struct {
	// Program is the kernel's id of the program.
	Program uint32      `json:"program"`
	Loaded  metav1.Time `json:"loaded"`
	// Average is the average in nanoseconds, or 0 until there is one. Previous is that of the program that this one
	// replaced, or 0.
	Average  int64 `json:"average,omitempty"`
	Previous int64 `json:"previous,omitempty"`
}

// The annotations of an object can have 256 KiB.
const (
	maxConflicts       = 100
	maxConflictMessage = 256
	// maxRunTimes are the newest programs.
	maxRunTimes = 1000
)

// HealthOf returns the part of a BpfNode's status that is about the health of objects.
func HealthOf(status *v1alpha1.BpfNodeStatus) Health {
	var h Health
	for _, c := range status.Conflicts {
		if c.Type == v1alpha1.BpfNodeNamespacedEarlier {
			continue // a tenant can cause it, and must not halt a rollout
		}
		if c.Owner != nil && c.Since != nil && len(h.Conflicts) < maxConflicts {
			h.Conflicts = append(h.Conflicts, Conflict{*c.Owner, *c.Since, shorten.Middle(c.Message, maxConflictMessage)})
		}
	}
	for i := range status.Programs {
		if p := &status.Programs[i]; p.RunTime != nil && p.LoadedAt != nil {
			h.RunTimes = append(h.RunTimes, RunTime{p.ID, *p.LoadedAt, p.RunTime.AverageNanoseconds, p.RunTime.PreviousNanoseconds})
		}
	}
	h.RunTimes = h.RunTimes[max(0, len(h.RunTimes)-maxRunTimes):]
	return h
}

// String returns the health as JSON, or "" if there is nothing to say.
func (h Health) String() string {
	if len(h.Conflicts)+len(h.RunTimes) == 0 {
		return ""
	}
	encoded, err := json.Marshal(h)
	if err != nil {
		return "" // encoding structs of strings and numbers never fails
	}
	return string(encoded)
}

// ParseHealth parses the value of the annotation.
func ParseHealth(text string) (Health, error) {
	var h Health
	if text == "" {
		return h, nil
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&h); err != nil {
		return Health{}, fmt.Errorf("parse the annotation %s: %w", v1alpha1.AnnotationObjectHealth, err)
	}
	return h, nil
}
