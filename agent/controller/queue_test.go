// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// A panic for one owner doesn't stop the worker. The owner is retried.
func TestAPanicIsAFailureOfOneOwner(t *testing.T) {
	q := newQueue("programs", nil, nil)
	t.Cleanup(q.ShutDown)
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	q.Add(key)
	taken, _ := q.Get()
	q.process(t.Context(), taken, func(context.Context, program.Key) (time.Duration, error) { panic("of one owner") })
	if got := q.NumRequeues(key); got != 1 {
		t.Errorf("it is requeued %d times", got)
	}
}

// A namespace whose objects take all the time that they get doesn't delay the objects of another one.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue("programs", nil, nil)
		var attacker, victim atomic.Int32
		key := func(namespace string, n int) program.Key {
			return program.Key{Kind: "TcxNsProgram", Namespace: namespace, Name: strconv.Itoa(n)}
		}
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				q.work(ctx, func(ctx context.Context, key program.Key) (time.Duration, error) {
					if key.Namespace == "victim" {
						victim.Add(1)
						return 0, nil
					}
					attacker.Add(1)
					defer attacker.Add(-1)
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
					}
					return 0, errors.New("one attach point of thousands")
				})
			})
		}
		for n := range 10 * workers {
			q.Add(key("attacker", n))
		}
		synctest.Wait()
		for n := range 10 * workers {
			q.Add(key("victim", n))
		}
		synctest.Wait()
		if got := attacker.Load(); got != workersOfNamespace {
			t.Errorf("one namespace has %d workers", got)
		}
		if got := victim.Load(); got != 10*workers {
			t.Errorf("%d of %d objects of the other namespace were reconciled at once", got, 10*workers)
		}
		cancel()
		q.ShutDown()
		group.Wait()
	})
}

// Each owner is taken once, and the owners of a namespace in the order in which they came.
func TestTurns(t *testing.T) {
	turns := newTurns(2)
	for _, text := range []string{"a/1", "a/2", "a/3", "/1", "b/1"} {
		namespace, name, _ := strings.Cut(text, "/")
		turns.Push(program.Key{Namespace: namespace, Name: name})
	}
	var order []string
	pop := func() program.Key {
		key := turns.Pop()
		order = append(order, key.Namespace+"/"+key.Name)
		return key
	}
	first := pop()
	for turns.Len() > 0 {
		pop()
	}
	if want := []string{"a/1", "/1", "b/1", "a/2"}; !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	turns.end(first)
	if turns.Len() != 1 || pop().Name != "3" || turns.Len() != 0 {
		t.Errorf("order after a worker has ended: %q", order)
	}
	if len(turns.waiting) > 0 || len(turns.order) > 0 {
		t.Errorf("namespaces without waiting owners take memory: %v", turns.waiting)
	}
}
