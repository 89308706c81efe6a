// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspect

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/daemon"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
)

// While the daemon doesn't answer, or answers with an error, the owners that it told before stay known. A round waits for it for
// a second, and only one call waits at a time.
func TestOwnersOfASilentDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, failure, calls := time.Duration(0), error(nil), 0
		first := &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "first"}
		o := owners{ask: func(ctx context.Context) (daemon.Answer, error) {
			calls++
			select {
			case <-time.After(takes):
				return daemon.Answer{Name: "bpfman", Owners: map[uint32]*v1alpha1.BpfNodeOwner{1: first}}, failure
			case <-ctx.Done():
				return daemon.Answer{}, ctx.Err()
			}
		}}
		round := func(ids ...uint32) (took time.Duration) {
			programs := make([]kernel.Program, len(ids))
			for n, id := range ids {
				programs[n].ID = id
			}
			start := time.Now()
			o.want(t.Context(), programs)
			return time.Since(start)
		}
		expect := func(what string, asked int, failed bool) {
			t.Helper()
			synctest.Wait()
			if known, err := o.known(); (err != nil) != failed || known.Owners[1] != first || known.Name != "bpfman" || calls != asked {
				t.Errorf("%s: %v is known, %v, after %d calls", what, known, err, calls)
			}
		}
		round(1)
		expect("it answers", 1, false)
		round(1)
		expect("nothing has changed", 1, false)

		failure = errors.New("connection refused")
		round(1, 2)
		expect("it refuses", 2, true)
		failure, takes = nil, time.Hour
		for range 10 {
			if took := round(1, 2); took != patience {
				t.Errorf("a round waited for %s", took)
			}
		}
		expect("it is silent", 3, true)
		<-time.After(ownersDeadline)
		expect("it was silent", 3, true)
		takes = 2 * patience
		round(1, 2)
		<-time.After(patience)
		expect("it answers after a round", 4, false)
		if !o.changed() || o.changed() {
			t.Error("the answer isn't used by the next round")
		}
	})
}
