// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// costly is a daemon whose Loads take time, leave something in its database, and fail.
type costly struct {
	*daemontest.Daemon
	takes  time.Duration
	leaves int64 // bytes
	loads  int
}

func (d *costly) Load(context.Context, *gobpfman.LoadRequest, ...grpc.CallOption) (*gobpfman.LoadResponse, error) {
	d.loads++
	<-time.After(d.takes)
	blobs := filepath.Join(d.Root, databaseDir, "blobs")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return nil, err
	}
	blob := filepath.Join(blobs, strconv.Itoa(d.loads))
	if err := os.WriteFile(blob, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(blob, d.leaves); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Aborted, "the verifier refuses it")
}

// The objects of a namespace are loaded again and again, for example because they change all the time. Then they wait,
// and those of other namespaces and cluster-scoped ones don't.
func TestLoadsOfANamespaceAreLimited(t *testing.T) {
	for name, test := range map[string]struct {
		takes        time.Duration
		leaves       int64
		atOnce, hour int
		message      string
	}{
		"large objects":    {time.Millisecond, 32 << 20, 9, 1, "the objects of the namespace have left 256 MiB in the node's /run"},
		"slow objects":     {10 * time.Second, 1, 14, 36, "the objects of the namespace have taken 2 minutes of the daemon's time"},
		"the usual object": {30 * time.Millisecond, 100 << 10, 300, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := t.TempDir()
				daemon := &costly{Daemon: daemontest.New(root), takes: test.takes, leaves: test.leaves}
				i := NewInventory(daemon, root)
				asked := func(owner program.Key) bool {
					before := daemon.loads
					err := i.Load(t.Context(), request(owner, "f"))
					if daemon.loads == before && !strings.Contains(err.Error(), test.message) {
						t.Fatalf("%v, want %s", err, test.message)
					}
					return daemon.loads > before
				}
				n := 0
				for n < 300 && asked(other) {
					n++
				}
				if n != test.atOnce {
					t.Errorf("%d Loads at once, want %d", n, test.atOnce)
				}
				if !asked(owner) || !asked(program.Key{Kind: other.Kind, Namespace: "another", Name: other.Name}) {
					t.Error("cluster-scoped objects, or those of another namespace, wait too")
				}
				if test.message == "" {
					return
				}
				n = 0
				for end := time.Now().Add(time.Hour); time.Now().Before(end); <-time.After(time.Second) {
					if asked(other) {
						n++
					}
				}
				if n != test.hour {
					t.Errorf("%d Loads in the next hour, want %d", n, test.hour)
				}
			})
		})
	}
}

// Programs of a namespace are attached again and again, for example to what takes the daemon long to open. Then they wait, and
// those of other namespaces don't.
func TestAttachesOfANamespaceAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := daemontest.New(t.TempDir())
		i := known(t, d, d.Root)
		tenant, neighbor := load(t, i, other), load(t, i, program.Key{Kind: other.Kind, Namespace: "another", Name: other.Name})
		d.SetFault(func(call string, _ proto.Message, done bool) error {
			if call == "Attach" && done {
				<-time.After(10 * time.Second)
				return status.Error(codes.Aborted, "no such symbol")
			}
			return nil
		})
		attached := func(id uint32) bool {
			began := time.Now()
			err := i.Attach(t.Context(), id, point("a slow file"))
			asked := time.Since(began) > 0
			if !asked && !strings.Contains(err.Error(), "the objects of the namespace have taken 2 minutes of the daemon's time to be loaded and attached") {
				t.Fatal(err)
			}
			return asked
		}
		n := 0
		for n < 100 && attached(tenant.ID) {
			n++
		}
		if n != 14 {
			t.Errorf("%d Attaches at once, want 14", n)
		}
		if !attached(neighbor.ID) {
			t.Error("those of another namespace wait too")
		}
		<-time.After(2 * time.Minute)
		if !attached(tenant.ID) {
			t.Error("they wait forever")
		}
	})
}

// The global data of a namespace leaves space in the daemon's list for that of others.
func TestGlobalDataOfANamespaceIsLimited(t *testing.T) {
	i := known(t, daemontest.New(t.TempDir()), "")
	load := func(owner program.Key, size int, functions ...string) error {
		r := request(owner, functions...)
		r.GlobalData = map[string][]byte{"X": make([]byte, size)}
		return i.Load(t.Context(), r)
	}
	if err := load(other, 3<<20, "f", "g"); err != nil {
		t.Error(err)
	}
	second := program.Key{Kind: other.Kind, Namespace: other.Namespace, Name: "second"}
	if err := load(second, 1<<20, "f", "g", "h"); err == nil || !strings.Contains(err.Error(), "the global data of the namespace on this node would take") {
		t.Errorf("more than a quarter for one namespace: %v", err)
	}
	if err := load(program.Key{Kind: other.Kind, Namespace: "another", Name: "x"}, 7<<20, "f"); err != nil {
		t.Error(err)
	}
	if err := load(owner, 18<<20, "f"); err != nil {
		t.Errorf("a cluster-scoped object: %v", err)
	}
	if err := load(owner, 20<<20, "f"); err == nil || !strings.Contains(err.Error(), "the global data of all objects on this node would take") {
		t.Errorf("more than all: %v", err)
	}
}

// A tenant can create and delete namespaces without a limit.
func TestAllowancesAreBounded(t *testing.T) {
	var a allowances
	first := a.of("first")
	if a.of("first") != first {
		t.Error("the allowance is forgotten")
	}
	for n := range mostAllowances {
		a.of(strconv.Itoa(n))
	}
	if a.of("first") == first || a.left.Len() != mostAllowances {
		t.Errorf("%d allowances are known", a.left.Len())
	}
}
