// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package contest

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestDriftIsRepairedAtOnceAndAContestSlowsDown(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	l := &Ledger[string]{Clock: clock}
	advance := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	for n := range tolerated {
		if wait := l.Wait("a"); wait != 0 {
			t.Fatalf("repetition %d waits %v", n, wait)
		}
		if l.Repeated("a") {
			t.Fatalf("repetition %d is a contest", n)
		}
		advance(time.Second)
	}
	want := shortest
	for range 20 {
		if !l.Repeated("a") {
			t.Fatal("no contest")
		}
		if wait := l.Wait("a"); wait != want {
			t.Fatalf("waits %v, want %v", wait, want)
		}
		if wait := l.Wait("b"); wait != 0 {
			t.Fatalf("another key waits %v", wait)
		}
		advance(want)
		if wait := l.Wait("a"); wait != 0 {
			t.Fatalf("%v is left after %v", wait, want)
		}
		want = min(2*want, longest)
	}
	// Nobody reverts it anymore, so the next difference is normal drift.
	advance(window + time.Second)
	if l.Repeated("a") {
		t.Error("the contest isn't forgotten")
	}
	if len(l.records) != 1 {
		t.Errorf("%d records", len(l.records))
	}
}
