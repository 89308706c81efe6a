// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
)

// An owner counts as not reported until a write of its reports succeeds.
func TestUnwritten(t *testing.T) {
	r := &reporter{queue: newQueue("", nil, nil), reports: &record.Reports{}, wanted: map[program.Key]*writing{}}
	defer r.ShutDown()
	key := program.Key{Kind: "TcxProgram", Name: "stats"}
	refused := errors.New("the API server refuses it")
	for _, c := range []struct {
		outcome error
		want    int
	}{{refused, 1}, {refused, 1}, {nil, 0}, {refused, 1}} {
		r.put(key, func(context.Context) error { return c.outcome })
		if _, err := r.report(t.Context(), key); (err == nil) != (c.outcome == nil) || r.unwritten() != c.want {
			t.Errorf("after %v: %v, %d not written", c.outcome, err, r.unwritten())
		}
	}
}
