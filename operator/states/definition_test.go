// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"context"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// What waits for a definition notices when it is installed, and when it is removed. A definition with another scope isn't it.
func TestDefinitions(t *testing.T) {
	const kind = "ClusterBpfApplicationState"
	all := metav1.Verbs{"create", "get", "list", "watch"}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &Definitions{Kinds: v1alpha1.StateKinds}
		var seen []bool
		go func() {
			for wanted := true; d.await(ctx, kind, wanted); wanted = !wanted {
				seen = append(seen, wanted)
			}
		}()
		for i, c := range []struct {
			served []metav1.APIResource
			seen   int
		}{
			{nil, 0},
			{[]metav1.APIResource{{Kind: kind, Namespaced: true, Verbs: all}, {Kind: "Other", Verbs: all}}, 0},
			{[]metav1.APIResource{{Kind: kind, Verbs: all}}, 1},
			{[]metav1.APIResource{{Kind: kind, Verbs: all}, {Kind: "Other"}}, 1},
			{[]metav1.APIResource{{Kind: kind, Verbs: all[1:]}}, 2}, // it is being deleted
			{nil, 2},
			{[]metav1.APIResource{{Kind: kind, Verbs: all}}, 3},
		} {
			d.Set(c.served)
			synctest.Wait()
			if len(seen) != c.seen || d.has(kind) != (c.seen%2 == 1) {
				t.Errorf("step %d: saw %v, has it: %v", i, seen, d.has(kind))
			}
		}
		cancel()
		synctest.Wait()
		if d.await(ctx, kind, true) {
			t.Error("it goes on after the end")
		}
	})
}
