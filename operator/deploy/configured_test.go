// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
)

// Only updates of the ConfigMap that affect what is deployed start a pass.
func TestConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   bool
	}{
		"the nodes' problems": {func(m *corev1.ConfigMap) {
			m.Annotations = map[string]string{"bpfman.io/problems": "a"}
			m.ResourceVersion = "2"
		}, false},
		"a value":        {func(m *corev1.ConfigMap) { m.Data["bpfman.log.level"] = "debug" }, true},
		"another object": {func(m *corev1.ConfigMap) { m.UID = "2" }, true},
		"a finalizer":    {func(m *corev1.ConfigMap) { m.Finalizers = []string{"f"} }, true},
		"deleted":        {func(m *corev1.ConfigMap) { m.DeletionTimestamp = new(metav1.Now()) }, true},
	} {
		before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1"}, Data: map[string]string{"bpfman.log.level": "info"}}
		after := before.DeepCopy()
		c.change(after)
		if got := configured(ctrlevent.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
