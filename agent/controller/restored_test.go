// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/program"
)

// After etcd was restored from a backup, objects have lower generations than the node's record. A lower one that cuts off the node
// is rolled back to the recorded version, and another one isn't taken for either.
func TestGenerationsThatGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, confirmLimit)
		before, bad := tcx("good", named("eth0")), tcx("bad", everywhere)
		before.Generation = 7
		v.rollBack(before, bad, 0, 2*confirmLimit)
		fixed := tcx("bad", named("eth0"))
		fixed.Generation = bad.Generation
		v.run(t.Context(), kind, fixed)
		v.await("confirmed", 2*confirmLimit, func() bool { return v.reconciler.changes.Unconfirmed() == 0 })
		key := program.OwnerOf(kind, fixed).Key
		version, err := confirm.VersionOf(kind, fixed)
		if err != nil {
			t.Fatal(err)
		}
		if is := v.reconciler.changes.Confirmed(key, fixed.UID); is == nil || is.Generation() != fixed.Generation || v.reconciler.changes.Rollback(key, version) != nil {
			t.Errorf("%+v is recorded", is)
		}
		if got := v.attached("bad"); !slices.Equal(got, []string{"eth0"}) || len(v.attached("good")) > 0 {
			t.Errorf("attached to %q, and the recorded version to %q", got, v.attached("good"))
		}
	})
}
