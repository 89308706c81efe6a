// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/interrupt"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// hanging is a daemon that can hang: then it answers no call.
type hanging struct {
	*daemontest.Daemon
	hangs atomic.Bool
	asked atomic.Int32 // calls while it hangs
	loads atomic.Int32
}

func (h *hanging) wait(ctx context.Context) error {
	if !h.hangs.Load() {
		return nil
	}
	h.asked.Add(1)
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func (h *hanging) List(ctx context.Context, in *gobpfman.ListRequest, opts ...grpc.CallOption) (*gobpfman.ListResponse, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Daemon.List(ctx, in, opts...)
}

func (h *hanging) Load(ctx context.Context, in *gobpfman.LoadRequest, opts ...grpc.CallOption) (*gobpfman.LoadResponse, error) {
	if h.hangs.Load() {
		h.loads.Add(1)
	}
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Daemon.Load(ctx, in, opts...)
}

func (h *hanging) Attach(ctx context.Context, in *gobpfman.AttachRequest, opts ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.Daemon.Attach(ctx, in, opts...)
}

// opening is a daemon that doesn't answer while a file keeps it from opening its database.
type opening struct {
	*daemontest.Daemon
	file string
}

func (o *opening) List(ctx context.Context, in *gobpfman.ListRequest, opts ...grpc.CallOption) (*gobpfman.ListResponse, error) {
	if _, err := os.Stat(o.file); err == nil {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return o.Daemon.List(ctx, in, opts...)
}

// With the default configuration, the daemon tries to open its database for longer than the agent waits for an answer.
func TestUnfinishedSnapshotOfADaemonThatTries(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, databaseDir, "snap.02.generating")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		long := time.Now().Add(-time.Hour)
		if err := os.Chtimes(file, long, long); err != nil {
			t.Fatal(err)
		}
		i := NewInventory(&opening{daemontest.New(root), file}, root)
		refresh(t, i)
		if err := i.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// Callers of a daemon that hangs don't wait for a deadline one after another. One of them finds out when the daemon is
// back, and gets what it wants. The others are free to do something else.
func TestDaemonThatHangs(t *testing.T) {
	const callers = 16
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &hanging{Daemon: daemontest.New(root)}
		i := known(t, d, "")
		p := load(t, i, owner)
		if err := i.Ready(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		d.hangs.Store(true)
		var tasks sync.WaitGroup
		for range callers {
			tasks.Go(func() {
				err := i.Attach(t.Context(), p.ID, program.AttachPoint{Name: "lo", Info: &gobpfman.AttachInfo{}})
				if failed := (*Error)(nil); !errors.As(err, &failed) || failed.Error() != "attach to lo: the bpfman daemon didn't answer in time" {
					t.Errorf("attach: %v", err)
				}
			})
		}
		tasks.Wait()
		// The waiters leave when the first one does, but for one that gets its turn at the same moment, and asks again.
		if took, asked := time.Since(began), d.asked.Load(); took > 2*callDeadline || asked > 2 {
			t.Errorf("%d callers waited for %v, with %d calls", callers, took, asked)
		}
		if i.Ready() == nil || i.Known() {
			t.Error("ready, and known, while the daemon hangs")
		}

		// A Load isn't sent to a daemon that hangs: the daemon might execute it later.
		failed := (*Error)(nil)
		if err := i.Load(t.Context(), request(owner, "g")); !errors.As(err, &failed) || failed.Took != 0 || d.loads.Load() != 0 {
			t.Errorf("loaded with %v, %d calls", err, d.loads.Load())
		}
		gaveUp, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		if err := i.Detach(gaveUp, p.ID, 1); err == nil || i.Ready() == nil {
			t.Errorf("a caller that gives up says nothing about the daemon: %v", err)
		}

		d.hangs.Store(false)
		if err := i.Attach(t.Context(), p.ID, program.AttachPoint{Name: "lo", Info: &gobpfman.AttachInfo{}}); err != nil || i.Ready() != nil {
			t.Errorf("the daemon is back: %v, %v", err, i.Ready())
		}
		// A daemon that hangs again is found out in the same way.
		d.hangs.Store(true)
		if err := i.Attach(t.Context(), p.ID, program.AttachPoint{Name: "lo", Info: &gobpfman.AttachInfo{}}); !errors.As(err, &failed) || failed.Took != callDeadline || i.Ready() == nil {
			t.Errorf("attached: %v", err)
		}
	})
}

// slow is a daemon that hangs, and later needs a few seconds for each list.
type slow struct {
	hanging
}

func (s *slow) List(ctx context.Context, in *gobpfman.ListRequest, opts ...grpc.CallOption) (*gobpfman.ListResponse, error) {
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return s.hanging.List(ctx, in, opts...)
}

// Interruptions don't keep the agent from noticing that the daemon is back, and prevent the call.
func TestInterruptionsOfASilentDaemon(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &slow{hanging{Daemon: daemontest.New(root)}}
		i := known(t, d, "")
		p := load(t, i, owner)
		point := program.AttachPoint{Name: "lo", Info: &gobpfman.AttachInfo{}}
		d.hangs.Store(true)
		if err := i.Attach(t.Context(), p.ID, point); err == nil || i.Ready() == nil {
			t.Fatalf("attached: %v", err)
		}
		d.hangs.Store(false)
		// A rollback interrupts the pass each second until the daemon answers.
		for start := time.Now(); i.Ready() != nil && time.Since(start) < callDeadline; {
			pass, stop := interrupt.With(t.Context())
			timer := time.AfterFunc(time.Second, func() { stop(errors.New("a reason")) })
			if err := i.Attach(pass, p.ID, point); err == nil {
				t.Error("the call was made although it was interrupted")
			}
			timer.Stop()
			stop(nil)
		}
		if err := i.Ready(); err != nil {
			t.Error(err)
		}
	})
}
