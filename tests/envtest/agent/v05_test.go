// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// With a daemon of v0.5, the agent reports the problem on its objects, and then exits with this
// error.
func TestDaemonOfAnotherAPI(t *testing.T) {
	const words = "the daemon in container bpfman has an incompatible API (bpfman v0.5?)"
	n := start(t)
	n.crash()
	n.daemon.NoAttach = true
	n.create(n.tracepoint(n.name, "f", "syscalls/sys_enter_kill"))
	n.startAgent()
	n.says(n.name, v1alpha1.BpfProgCondNotLoaded, words)
	n.crash()
	n.drift = 10 * time.Millisecond
	n.startAgent()
	select {
	case err := <-n.ended:
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("the agent ended: %v", err)
		}
	case <-time.After(envtest.Patience):
		t.Error("the agent goes on")
	}
}

// What a daemon of v0.5 left stays until its replacement is attached. An object that isn't attached
// yet keeps it, and an object for other nodes doesn't. The node's Events report both.
func TestProgramsOfV05GoOnceReplaced(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.crash()
	left := filepath.Join(n.bpffs(), "v05")
	for _, pin := range []string{"prog_31", "prog_31_link", "maps/31/counts"} {
		pin = filepath.Join(left, pin)
		must.Succeed(t, os.MkdirAll(filepath.Dir(pin), 0o750))
		must.Succeed(t, os.WriteFile(pin, nil, 0o600))
	}
	var broken atomic.Bool
	broken.Store(true)
	attempts := make(chan struct{}, 1)
	n.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
		if call != "Attach" || done || !broken.Load() {
			return nil
		}
		select {
		case attempts <- struct{}{}:
		default:
		}
		if _, err := os.Stat(filepath.Join(left, "prog_31_link")); err != nil {
			t.Errorf("gone before its successor is attached: %v", err)
		}
		return status.Error(codes.Aborted, "not yet")
	})
	elsewhere := n.tracepoint(n.name+"-elsewhere", "f", "syscalls/sys_enter_kill")
	elsewhere.Spec.NodeSelector.MatchLabels = map[string]string{"test": "nowhere"}
	n.create(elsewhere)
	n.create(n.tracepoint(n.name, "f", "syscalls/sys_enter_kill"))
	n.startAgent()
	n.event(n.name, "UpstreamProgramsFound", "Found 1 program of bpfman v0.5 (kernel ID 31)")
	for range 5 { // more than two seconds
		<-attempts
	}
	broken.Store(false)
	n.eventually("what v0.5 left to go", func() error {
		if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is still there: %w", left, err)
		}
		return nil
	})
	n.event(n.name, "UpstreamProgramsRemoved", "Detached and removed 1 program of bpfman v0.5 (kernel ID 31): every object is attached on this node")
}
