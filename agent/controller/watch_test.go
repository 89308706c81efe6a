// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// A deletion that the watch missed is handled after the next list.
func TestDeletionsAreHandled(t *testing.T) {
	var deleted []string
	h := handler[*corev1.Pod]{deleted: func(last *corev1.Pod) { deleted = append(deleted, last.Name) }}
	h.OnDelete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "seen"}})
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "unseen"}}})
	h.OnAdd(&corev1.Pod{}, true)                      // handler has no function for it
	h.OnUpdate(&corev1.Pod{}, &corev1.Pod{})          // see above
	h.OnDelete(toolscache.DeletedFinalStateUnknown{}) // without the object
	if len(deleted) != 2 || deleted[0] != "seen" || deleted[1] != "unseen" {
		t.Errorf("deleted are %q", deleted)
	}
}
