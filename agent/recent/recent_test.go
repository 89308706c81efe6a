// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package recent

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestValuesOfANamespaceAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, hold = 10, time.Minute
		r := New[int, string](most, hold)
		r.Put("other", 1, "kept")
		for n := range 5 * most {
			r.Put("tenant", n, "value")
			r.Get("tenant", 0)
		}
		if r.Get("other", 1) != "kept" || r.Get("other", 2) != "" || r.Get("absent", 1) != "" {
			t.Error("a value of another namespace was displaced, or there is one that wasn't put")
		}
		if got := r.namespaces["tenant"].kept.Len(); got != most || r.Get("tenant", 0) != "value" || r.Get("tenant", 1) != "" {
			t.Errorf("%d values are kept, and not the last ones that were used", got)
		}
		<-time.After(2 * hold)
		r.Put("other", 2, "new")
		if len(r.namespaces) != 1 || r.Get("other", 2) != "new" {
			t.Errorf("%d namespaces are kept", len(r.namespaces))
		}
		r.Remove("other", 2)
		r.Remove("absent", 2)
		if r.Get("other", 2) != "" {
			t.Error("a value was not removed")
		}
		r.Put("other", 3, "x")
		if r.Clear(); r.Get("other", 3) != "" {
			t.Error("a value was not cleared")
		}
	})
}
