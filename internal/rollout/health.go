// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/conflicts"
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

	// Type and Program are those of the BpfNode's conflict. Inspectors of earlier versions don't write them.
	Type    string `json:"type,omitempty"`
	Program uint32 `json:"program,omitempty"`
	// Since is when the inspector first reported the conflict. Loaded is when the newest of the object's programs was
	// loaded, or zero. Both are by the clock of the node.
	Since   metav1.Time `json:"since"`
	Loaded  metav1.Time `json:"loaded,omitzero"`
	Message string      `json:"message"`
}

// ConflictID identifies a conflict of a node.
type ConflictID struct {
	Owner   v1alpha1.BpfNodeOwner
	Type    string
	Program uint32
	Message string
}

// ID identifies the conflict. It is the same if the conflict ends and returns.
func (c Conflict) ID() ConflictID {
	id := ConflictID{c.BpfNodeOwner, c.Type, c.Program, ""}
	if c.Program == 0 {
		id.Message = c.Message
	}
	return id
}

// AfterLoad reports whether the conflict began after the object's programs were loaded.
func (c Conflict) AfterLoad() bool { return !c.Loaded.IsZero() && !c.Since.Before(&c.Loaded) }

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
	loaded := loadedByOwner(status)
	var counted []v1alpha1.BpfNodeConflict
	for _, c := range status.Conflicts {
		// Tenants can cause these, and must not halt a rollout.
		byTenant := c.Type == v1alpha1.BpfNodeNamespacedEarlier || c.Owner != nil && c.Owner.Namespace == "" && isInPod(status, c.ProgramID)
		if c.Owner != nil && c.Since != nil && !byTenant {
			counted = append(counted, c)
		}
	}
	for _, c := range conflicts.First(counted, maxConflicts, status.Programs) {
		h.Conflicts = append(h.Conflicts, Conflict{
			BpfNodeOwner: *c.Owner, Type: c.Type, Program: c.ProgramID, Since: *c.Since, Loaded: loaded[*c.Owner], Message: shorten.Middle(c.Message, maxConflictMessage),
		})
	}
	for i := range status.Programs {
		if p := &status.Programs[i]; p.RunTime != nil && p.LoadedAt != nil {
			h.RunTimes = append(h.RunTimes, RunTime{p.ID, *p.LoadedAt, p.RunTime.AverageNanoseconds, p.RunTime.PreviousNanoseconds})
		}
	}
	h.RunTimes = h.RunTimes[max(0, len(h.RunTimes)-maxRunTimes):]
	return h
}

// loadedByOwner returns when the newest program of each object was loaded.
func loadedByOwner(status *v1alpha1.BpfNodeStatus) map[v1alpha1.BpfNodeOwner]metav1.Time {
	loaded := map[v1alpha1.BpfNodeOwner]metav1.Time{}
	for i := range status.Programs {
		if p := &status.Programs[i]; p.Owner != nil && p.LoadedAt != nil {
			if newest := loaded[*p.Owner]; newest.Before(p.LoadedAt) {
				loaded[*p.Owner] = *p.LoadedAt
			}
		}
	}
	return loaded
}

// isInPod reports whether a program is only attached in the network namespaces of pods. There, tenants decide what is
// attached beside a cluster-scoped program, and must not decide about its rollout.
func isInPod(status *v1alpha1.BpfNodeStatus, program uint32) bool {
	i := slices.IndexFunc(status.Programs, func(p v1alpha1.BpfNodeProgram) bool { return p.ID == program })
	if program == 0 || i < 0 || len(status.Programs[i].AttachPoints) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Programs[i].AttachPoints, func(p v1alpha1.BpfNodeAttachPoint) bool { return p.NetNs == "" })
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
