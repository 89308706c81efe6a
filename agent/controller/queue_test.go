// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// A panic for one owner doesn't stop the worker. The owner is retried.
func TestAPanicIsAFailureOfOneOwner(t *testing.T) {
	q := newQueue(nil)
	t.Cleanup(q.ShutDown)
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	q.Add(key)
	taken, _ := q.Get()
	q.process(t.Context(), taken, func(context.Context, program.Key) (time.Duration, error) { panic("of one owner") })
	if got := q.NumRequeues(key); got != 1 {
		t.Errorf("it is requeued %d times", got)
	}
}
