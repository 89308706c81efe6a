// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// The PID of a pod's process that has ended can be that of another pod's process, or of the node's. Nothing stays attached
// to what the kernel finds by it then.
func TestProcessesThatHaveEnded(t *testing.T) {
	of := program.Process{PID: 4711, Of: "sandbox1"}
	for name, c := range map[string]struct {
		process *program.Process
		ends    string // the call during which the process ends
		detach  error
		calls   string
		links   int
	}{
		"none":                                  {nil, "before", nil, "Attach", 1},
		"runs":                                  {&of, "", nil, "Attach", 1},
		"ended before":                          {&of, "before", nil, "", 0},
		"ends meanwhile":                        {&of, "Attach", nil, "Attach, Detach", 0},
		"ends meanwhile, and can't be detached": {&of, "Attach", status.Error(codes.Aborted, "busy"), "Attach, Detach", 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.New(t.TempDir())
			i := known(t, d, d.Root)
			loaded := load(t, i, owner)
			ended := c.ends == "before"
			i.Check = func(p program.Process) error {
				if p != of {
					t.Errorf("%v was checked", p)
				}
				if ended {
					return problem.Errorf(problem.ProcessEnded, "process 4711 has ended")
				}
				return nil
			}
			d.SetFault(func(call string, _ proto.Message, done bool) error {
				ended = ended || call == c.ends && done
				if call == "Detach" {
					return c.detach
				}
				return nil
			})
			d.Calls()
			at := point("eth0 in pod")
			at.Process = c.process
			err := i.Attach(t.Context(), loaded.ID, at)
			if refused := c.process != nil && ended; (err != nil) != refused || refused && !strings.Contains(err.Error(), "process 4711 has ended") {
				t.Errorf("%v", err)
			}
			if reason := problem.Of(err); err != nil && reason != problem.ProcessEnded {
				t.Errorf("the problem is %q", reason)
			}
			if calls := strings.Join(d.Calls(), ", "); calls != c.calls {
				t.Errorf("the daemon was called to %q, want %q", calls, c.calls)
			}
			if c.detach != nil {
				if i.Known() {
					t.Error("the link isn't known, and nobody looks for it")
				}
				refresh(t, i)
			}
			links := i.Of(owner)[0].Links
			if len(links) != c.links {
				t.Fatalf("links %v", links)
			}
			for _, link := range links {
				if (link == Link{}) != (c.detach != nil) {
					t.Errorf("it has the link %v", link)
				}
			}
		})
	}
}
