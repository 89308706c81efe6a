// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// A failing program is loaded as often as the backoff allows, although the watch delivers each write before its
// response. If it fails for the same reason, it is written and reported once, although the daemon's error differs
// each time.
//
//nolint:tparallel // the subtests share a node
func TestAFailureThatRepeatsCostsItsRetriesAlone(t *testing.T) {
	t.Parallel()
	const loads = 6
	other := 0
	for name, words := range map[string]func() string{
		"another reason": func() string {
			other++
			return fmt.Sprintf("reason %d", other)
		},
		"address and time": func() string {
			return fmt.Sprintf("Permission denied, verifier_log: 4: (18) r1 = 0xffff%012x\n%soff=98\nverification time %d usec", rand.Uint64N(1<<48), strings.Repeat("5: (bf) r2 = r10\n", 3000), rand.IntN(100000))
		},
		"unknown globals": func() string {
			return fmt.Sprintf("error parsing BPF object: symbol with name %c not found in the symbols table", 'A'+rand.IntN(26))
		},
		"order of names": func() string {
			names := strings.Split("abcdefgh", "")
			rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			return `Program f not found in bytecode image x with program names ["` + strings.Join(names, `", "`) + `"]`
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			n := startNamed(t, strings.ReplaceAll(name, " ", "-"), map[string]string{"test": strings.ReplaceAll(name, " ", "-")})
			n.mu.Lock()
			n.writes = func(request string, done bool) error {
				if done && strings.Contains(request, "/bpfprograms") {
					<-time.After(100 * time.Millisecond) // the latency of the network
				}
				return nil
			}
			n.mu.Unlock()
			at := make(chan time.Time, 100*loads)
			n.daemon.SetFault(func(call string, _ proto.Message, _ bool) error {
				if call != "Load" {
					return nil
				}
				at <- time.Now()
				return status.Error(codes.Aborted, words())
			})
			n.eventually("the agent to have read everything, each of which starts work", func() error {
				if problems, ready := n.kinds.State(); !ready {
					return fmt.Errorf("it isn't ready: %q", problems)
				}
				return nil
			})
			o := n.tracepoint(n.name, "f", "a/x")
			n.create(o)
			if name == "unknown globals" {
				n.backsOff(at, loads-2, time.Second) // stays until something changes
			} else {
				n.backsOff(at, loads, 200*time.Millisecond)
			}
			if name == "another reason" {
				return
			}
			var writes []string
			for _, w := range n.writesOf() {
				if strings.Contains(w, "/bpfprograms") {
					writes = append(writes, w)
				}
			}
			if len(writes) != 2 {
				t.Errorf("it is written by %q, want its creation and its status", writes)
			}
			var events eventsv1.EventList
			must.Succeed(t, n.client.List(context.Background(), &events))
			told := 0
			for _, e := range events.Items {
				if e.Regarding.UID == o.UID {
					told++
					if e.Series != nil {
						told += int(e.Series.Count)
					}
				}
			}
			if told != 1 {
				t.Errorf("it is told of %d times", told)
			}
		})
	}
}

// If the API server refuses a report, for example because of a ResourceQuota, an Event on the object says so.
func TestRefusedReportsAreTold(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.mu.Lock()
	n.writes = func(request string, done bool) error {
		if !done && strings.HasPrefix(request, "POST ") && strings.Contains(request, "/bpfprograms") {
			return apierrors.NewForbidden(v1alpha1.Resource("bpfprograms"), "x", errors.New("exceeded quota: reports"))
		}
		return nil
	}
	n.mu.Unlock()
	o := n.tracepoint(n.name, "f", "a/x")
	n.create(o)
	n.eventually("an Event", func() error {
		var events eventsv1.EventList
		if err := n.client.List(context.Background(), &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.UID == o.UID && e.Reason == "NotReported" && strings.Contains(e.Note, "node "+n.name) && strings.Contains(e.Note, "exceeded quota: reports") {
				return nil
			}
		}
		return fmt.Errorf("none in %d Events", len(events.Items))
	})
}

// backsOff waits for attempts, whose times it receives, and checks that each interval is at
// least twice the one before, beginning with delay.
func (n *node) backsOff(at <-chan time.Time, attempts int, delay time.Duration) {
	n.t.Helper()
	n.eventually("retries", func() error {
		if len(at) < attempts {
			return fmt.Errorf("%d attempts", len(at))
		}
		return nil
	})
	for last := <-at; len(at) > 0; delay *= 2 {
		next := <-at
		// Reads start in goroutines, so the time between two of them can be a bit shorter.
		if waited := next.Sub(last); waited < delay*9/10 {
			n.t.Errorf("a retry after %s, want %s", waited, delay)
		}
		last = next
	}
}
