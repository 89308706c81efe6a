// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestGlobalVariables shows global variables by name, and mounts their section.
func TestGlobalVariables(t *testing.T) {
	requireType(t, "Tracepoint")
	o := tracepoint("e2e-globals")
	o.Spec.ByteCode, o.Spec.BpfFunctionName = image("kill_statistics"), "kill_statistics"
	pod := reader("default", "e2e-globals", o.Name, ".bss")
	feature(t,
		step{"the object is loaded, and the pod starts", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			create(ctx, t, pod)
			awaitSuccess(ctx, s, o)
			awaitReady(ctx, s, pod)
		}},
		step{"they are listed as maps", func(ctx context.Context, s *testing.T) {
			await(ctx, s, "the inspector sees the sections", func(ctx context.Context) (bool, string) {
				text := plugin(ctx, s, "maps", "tracepointprogram/"+o.Name)
				return strings.Contains(text, ".bss") && strings.Contains(text, ".rodata"), text
			})
		}},
		step{"they are dumped by name", func(ctx context.Context, s *testing.T) {
			callKill(ctx, s)
			text := plugin(ctx, s, "dump", "tracepointprogram/"+o.Name, ".bss", "-o", "wide")
			for _, words := range []string{`"kills"`, "u64 at 0", "u64[4] at 8", "struct last_kill at 48", `"process":"`} {
				if !strings.Contains(text, words) {
					s.Errorf("no %s in:\n%s", words, text)
				}
			}
			if _, said := failingPlugin(ctx, s, "dump", "tracepointprogram/"+o.Name, ".data.absent"); !strings.Contains(said, "find .data.absent") {
				s.Errorf("of an absent section: %s", said)
			}
		}},
	)
}

// TestPluginDump dumps a map of an object, whose sums grow.
func TestPluginDump(t *testing.T) {
	requireType(t, "Tracepoint")
	o := tracepoint("e2e-plugin-dump")
	var entries struct {
		Items []struct {
			Node   string
			Value  uint64
			PerCPU []json.RawMessage
		}
	}
	total := func(ctx context.Context, s *testing.T) (sum uint64) {
		text := plugin(ctx, s, "dump", "tracepointprogram/"+o.Name, "tracepoint_stats_map", "-o", "json")
		if err := json.Unmarshal([]byte(text), &entries); err != nil {
			s.Fatalf("%v:\n%s", err, text)
		}
		for _, entry := range entries.Items {
			if !slices.Contains(under.nodes(), entry.Node) || len(entry.PerCPU) == 0 {
				s.Errorf("got %+v", entry)
			}
			sum += entry.Value
		}
		return sum
	}
	feature(t,
		step{"the object is loaded", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
		}},
		step{"its map shows what happens", func(ctx context.Context, s *testing.T) {
			before := total(ctx, s)
			callKill(ctx, s)
			if after := total(ctx, s); after <= before {
				s.Errorf("%d calls, then %d", before, after)
			}
			table := plugin(ctx, s, "dump", "tracepointprogram/"+o.Name, "tracepoint_stats_map")
			if !strings.HasPrefix(table, "NODE ") || !strings.Contains(table, under.nodes()[0]) {
				s.Errorf("got:\n%s", table)
			}
		}},
		step{"what isn't there", func(ctx context.Context, s *testing.T) {
			if _, said := failingPlugin(ctx, s, "dump", "tracepointprogram/"+o.Name, "absent"); !strings.Contains(said, "it has tracepoint_stats_map") {
				s.Errorf("of an absent map: %s", said)
			}
			if _, said := failingPlugin(ctx, s, "dump", "--node", under.nodes()[0], "--map-id", "4294967295"); !strings.Contains(said, "map 4294967295 doesn't exist") {
				s.Errorf("of an absent id: %s", said)
			}
		}},
	)
}

// pluginItself returns a command that runs the plugin without kubectl, so that signals and output are the plugin's
// own.
func pluginItself(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := filepath.Abs(pluginDir + "/kubectl-bpfman")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		prerequisite.Missing(t, "run `make kubectl-bpfman` first", prerequisite.Commands)
	}
	command := exec.CommandContext(ctx, path, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+settings.kubeconfig)
	return command
}

// running is a command of the plugin that keeps running.
type running struct {
	command *exec.Cmd
	lines   *bufio.Scanner
}

// start starts a command. It is killed at the end of the test at the latest.
func start(ctx context.Context, t *testing.T, args ...string) *running {
	t.Helper()
	command := pluginItself(ctx, t, args...)
	out, write := io.Pipe() // both outputs
	var mu sync.Mutex
	locked := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return write.Write(p)
	})
	command.Stdout, command.Stderr = locked, locked
	must.Succeed(t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // it is interrupted or killed
		_ = write.Close()
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = out.Close()
		<-ended
	})
	return &running{command, bufio.NewScanner(out)}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// line reads lines until one satisfies the condition.
func (r *running) line(t *testing.T, wanted func(string) bool) string {
	t.Helper()
	var seen []string
	for r.lines.Scan() {
		if seen = append(seen, r.lines.Text()); wanted(r.lines.Text()) {
			return r.lines.Text()
		}
	}
	t.Fatalf("it ended, having said:\n%s", strings.Join(seen, "\n"))
	return ""
}

func failingPlugin(ctx context.Context, t *testing.T, args ...string) (out, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := pluginItself(ctx, t, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err == nil {
		t.Errorf("kubectl bpfman %s doesn't fail:\n%s", strings.Join(args, " "), &stdout)
	}
	return stdout.String(), stderr.String()
}

// counting reports whether processes on a node enable the kernel's statistics about programs.
func counting(ctx context.Context, nodeName string) (bool, string) {
	ids, err := ask[[]int](ctx, nodeName, "statistics")
	return err == nil && len(ids) > 0, fmt.Sprint(ids, " ", err)
}

// TestPluginTop checks that the kernel's statistics are enabled exactly while it runs, even if another one runs
// too, or it is killed.
func TestPluginTop(t *testing.T) {
	requireType(t, "Tracepoint")
	o := tracepoint("e2e-plugin-top")
	nodeName := under.nodes()[0]
	var before bool
	feature(t,
		step{"the object is loaded", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
			before, _ = counting(ctx, nodeName) // bpfman.inspector.statistics, or another process, can enable them
		}},
		step{"it shows what runs, and whose it is", func(ctx context.Context, s *testing.T) {
			first := start(ctx, s, "top", "--interval", "500ms", "--node", nodeName)
			second := start(ctx, s, "top", "--interval", "500ms", "--node", nodeName)
			for _, top := range []*running{first, second} {
				stop := repeatedly(ctx, s, callKill)
				line := top.line(s, func(line string) bool { return strings.Contains(line, "TracepointProgram "+o.Name) })
				stop()
				if !strings.HasPrefix(line, nodeName+" ") || !strings.Contains(line, "%") {
					s.Errorf("got %q", line)
				}
			}
			if on, saw := counting(ctx, nodeName); !on {
				s.Errorf("the kernel doesn't count: %s", saw)
			}
			if err := first.command.Process.Kill(); err != nil {
				s.Error(err)
			}
			stop := repeatedly(ctx, s, callKill)
			defer stop()
			for range 3 { // the other one continues
				second.line(s, func(line string) bool { return strings.Contains(line, "TracepointProgram "+o.Name) })
			}
		}},
		step{"killed, it leaves the kernel not counting", func(ctx context.Context, s *testing.T) {
			if before {
				s.Skip("somebody had it count before")
			}
			await(ctx, s, "the kernel doesn't count", func(ctx context.Context) (bool, string) {
				on, saw := counting(ctx, nodeName)
				return !on, saw
			})
		}},
		step{"once", func(ctx context.Context, s *testing.T) {
			stop := repeatedly(ctx, s, callKill)
			defer stop()
			if out := plugin(ctx, s, "top", "--once", "-o", "json"); !strings.Contains(out, o.Name) {
				s.Errorf("got:\n%s", out)
			}
			out := plugin(ctx, s, "top", o.Name, "--once", "--sort-by=runs")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if len(lines) != 1+len(under.nodes()) || !strings.Contains(lines[1], "TracepointProgram "+o.Name) {
				s.Errorf("the object's programs are\n%s", out)
			}
		}},
	)
}

// repeatedly calls do in the background until it is stopped.
func repeatedly(ctx context.Context, t *testing.T, do func(context.Context, *testing.T)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			do(context.WithoutCancel(ctx), t)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestPluginTrace shows what the program of one object prints, and nothing of other programs.
func TestPluginTrace(t *testing.T) {
	requireType(t, "Tracepoint")
	printing := func(name string) *v1alpha1.TracepointProgram {
		o := tracepoint(name)
		o.Spec.BpfFunctionName = "print_kill"
		o.Spec.BpfAppCommon = of("print")
		return o
	}
	wanted, other := printing("e2e-plugin-trace"), printing("e2e-plugin-trace-other")
	feature(t,
		step{"two objects are loaded", func(ctx context.Context, s *testing.T) {
			create(ctx, t, wanted)
			create(ctx, t, other)
			awaitSuccess(ctx, s, wanted)
			awaitSuccess(ctx, s, other)
		}},
		step{"one is traced", func(ctx context.Context, s *testing.T) {
			programs, err := programsOf(ctx, wanted)
			if err != nil || len(programs) == 0 {
				s.Fatalf("%v, %v", programs, err)
			}
			status := programs[0].GetStatus()
			program := fmt.Sprintf("print_kill[%d]", status.ProgramID)
			trace := start(ctx, s, "trace", "tracepointprogram/"+wanted.Name)
			trace.line(s, func(line string) bool { return strings.HasPrefix(line, "Tracing ") })
			callKill(ctx, s)
			line := trace.line(s, func(line string) bool { return strings.Contains(line, "kill by process") })
			// Both programs have the same instructions: where the kernel hides addresses, the line names both.
			if !strings.HasPrefix(line, status.Node+" ") || !strings.Contains(line, program) {
				s.Errorf("got %q, want it of %s on %s", line, program, status.Node)
			}
		}},
	)
}

// TestPluginTail shows the events in a ring buffer that no application reads.
func TestPluginTail(t *testing.T) {
	requireType(t, "Tracepoint")
	o := tracepoint("e2e-plugin-tail")
	o.Spec.ByteCode, o.Spec.BpfFunctionName = image("kill_events"), "kill_events_sender"
	feature(t,
		step{"the object is loaded", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
		}},
		step{"its events are shown", func(ctx context.Context, s *testing.T) {
			tail := start(ctx, s, "tail", "tracepointprogram/"+o.Name, "kill_events", "-o", "json")
			tail.line(s, func(line string) bool { return strings.HasPrefix(line, "Tailing kill_events ") })
			callKill(ctx, s)
			line := tail.line(s, func(line string) bool { return strings.HasPrefix(line, "{") })
			var event struct {
				Node, Map, Type string
				Length          int
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil || !slices.Contains(under.nodes(), event.Node) || event.Map != "kill_events" || event.Length != 28 || event.Type != "kill_event" {
				s.Errorf("got %s, %v", line, err)
			}
		}},
		step{"other maps have no events", func(ctx context.Context, s *testing.T) {
			if _, said := failingPlugin(ctx, s, "tail", "tracepointprogram/"+o.Name, "kill_events_lost"); !strings.Contains(said, "it has no events; to show its content, use kubectl bpfman dump") {
				s.Errorf("it said %q", said)
			}
		}},
	)
}

// TestPluginRights checks that users who can only view objects can't query inspectors.
func TestPluginRights(t *testing.T) {
	viewer := []string{"--as", "e2e-viewer", "--as-group", "system:authenticated"}
	feature(t,
		step{"the right to look", func(ctx context.Context, _ *testing.T) {
			create(ctx, t, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "e2e-viewer"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "e2e-viewer"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bpfman-bpfnode-viewer-role"},
			})
		}},
		step{"shows what the inspectors reported", func(ctx context.Context, s *testing.T) {
			await(ctx, s, "programs are listed", func(ctx context.Context) (bool, string) {
				out, err := tryPlugin(ctx, s, append(viewer, "programs", "--all")...)
				return err == nil && strings.Contains(out, "ATTACHED"), fmt.Sprint(out, err)
			})
			plugin(ctx, s, append(viewer, "chain", "--node", under.nodes()[0])...)
		}},
		step{"and nothing more", func(ctx context.Context, s *testing.T) {
			for _, command := range [][]string{
				{"top", "--once"},
				{"trace"},
				{"dump", "--node", under.nodes()[0], "--map-id", "1"},
				{"tail", "--node", under.nodes()[0], "--map-id", "1"},
			} {
				if out, said := failingPlugin(ctx, s, append(viewer, command...)...); !strings.Contains(said, "forbidden") || out != "" {
					s.Errorf("%q is let do it: %s%s", command, out, said)
				}
			}
			// Permission to list the pods isn't enough either.
			create(ctx, t, &rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "e2e-viewer"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}},
			})
			create(ctx, t, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "e2e-viewer"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "e2e-viewer"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "e2e-viewer"},
			})
			await(ctx, s, "exec is refused", func(ctx context.Context) (bool, string) {
				_, said := failingPlugin(ctx, s, append(viewer, "top", "--once")...)
				return strings.Contains(said, `cannot create resource "pods/exec"`) || strings.Contains(said, `cannot get resource "pods/exec"`), said
			})
		}},
	)
}
