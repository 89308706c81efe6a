// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// heldBack returns why a node doesn't run the newest revision of an object on purpose. It returns an empty string if it
// should.
func heldBack(f Facts, name string) string {
	s := f.Object.GetStatus().Rollout
	if s == nil {
		return ""
	}
	if now, err := rollout.RevisionOf(f.Object); err != nil || s.Hash != now.Hash() {
		return "the node keeps what it runs until the operator has decided how to roll out the last change"
	}
	var labels map[string]string
	if i := slices.IndexFunc(f.Nodes, func(n corev1.Node) bool { return n.Name == name }); i >= 0 {
		labels = f.Nodes[i].Labels
	}
	if rollout.Changes(s, rollout.Position(f.Object.GetUID(), name, labels, rollout.Canaries(s.Canaries))) {
		return ""
	}
	runs := "runs nothing"
	if s.Previous != nil {
		runs = fmt.Sprintf("keeps revision %d", s.Previous.Revision)
	}
	return fmt.Sprintf("the node %s, because the rollout of revision %d %s", runs, s.Revision, howItGoes[s.State])
}

// howItGoes says why a rollout hasn't reached a node.
var howItGoes = map[v1alpha1.RolloutState]string{
	v1alpha1.RolloutProgressing: "hasn't reached it yet",
	v1alpha1.RolloutPaused:      "is paused",
	v1alpha1.RolloutHalted:      "was halted",
	v1alpha1.RolloutUndone:      "was undone",
	v1alpha1.RolloutContested:   "waits for what the object's status names",
}
