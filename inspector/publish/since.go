// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package publish

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
)

// returning is how long after its end a conflict can return as the same one. That it isn't
// found for a moment can be because something couldn't be read. The inspector reads everything
// again each minute.
const returning = 2 * time.Minute

// dates remembers since when there are conflicts. A rollout is only about those that are new.
type dates map[string]dated

type dated struct {
	since metav1.Time
	// last is when the conflict was still reported.
	last time.Time
}

// set sets since when there are conflicts. before are those that are reported at the moment.
func (d dates) set(conflicts, before []v1alpha1.BpfNodeConflict, now time.Time) {
	for _, c := range before {
		if c.Since != nil {
			d[conflict.Key(c)] = dated{*c.Since, now}
		}
	}
	for key, known := range d {
		if now.Sub(known.last) > returning {
			delete(d, key)
		}
	}
	for i := range conflicts {
		key := conflict.Key(conflicts[i])
		if _, known := d[key]; !known {
			d[key] = dated{metav1.NewTime(now).Rfc3339Copy(), now}
		}
		conflicts[i].Since = new(d[key].since)
	}
}
