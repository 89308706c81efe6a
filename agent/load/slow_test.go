// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
)

// A Load that takes too long each time, so that the daemon is restarted, is tried less and less often. Other errors in between
// don't end that, and an answer does.
func TestSlowLoadsAreDelayed(t *testing.T) {
	silent := &daemon.Error{Op: "load f", Cause: status.Error(codes.DeadlineExceeded, "context deadline exceeded"), Took: bpfman.MaxLoad}
	unasked := &daemon.Error{Op: "load f", Cause: status.Error(codes.DeadlineExceeded, "the daemon didn't answer an earlier call")}
	absent := &daemon.Error{Op: "load f", Cause: status.Error(codes.Unavailable, "no socket")}
	synctest.Test(t, func(t *testing.T) {
		l := &Loader{refusals: newRefusals()}
		loads := 0
		load := func(took time.Duration, answer error) (delayed bool, err error) {
			before := loads
			one := newLoading()
			err = l.refusals.try(one.owner, one.request, func() error {
				loads++
				<-time.After(took)
				return answer
			})
			return loads == before, err
		}
		for range 3 * slowAgain { // it waited for others, of which one was slow
			if delayed, err := load(2*bpfman.MaxLoad, unasked); delayed || !errors.Is(err, unasked) {
				t.Errorf("delayed: %v, %v", delayed, err)
			}
		}
		for n, want := range []time.Duration{0, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
			if delayed, err := load(bpfman.MaxLoad, silent); delayed || !errors.Is(err, silent) {
				t.Errorf("time %d: delayed: %v, %v", n, delayed, err)
			}
			l.Retry() // the daemon was restarted
			if delayed, _ := load(0, absent); delayed != (want > 0) {
				t.Errorf("time %d: delayed: %v", n, delayed)
			}
			<-time.After(max(0, want-time.Second))
			if delayed, err := load(0, absent); delayed != (want > 0) || delayed && !errors.Is(err, silent) {
				t.Errorf("time %d: delayed after %s: %v, %v", n, want-time.Second, delayed, err)
			}
			<-time.After(time.Second)
		}
		if delayed, err := load(bpfman.MaxLoad/2, nil); delayed || err != nil {
			t.Errorf("delayed: %v, %v", delayed, err)
		}
		for range slowAgain - 1 {
			if delayed, _ := load(bpfman.MaxLoad, silent); delayed {
				t.Error("delayed after a success")
			}
		}
	})
}
