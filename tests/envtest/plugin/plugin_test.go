// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package plugin measures the kubectl plugin with a real kube-apiserver, and tests the completion of its
// commands in bash.
package plugin

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

func TestMain(m *testing.M) { envtest.Main(m) }

const (
	nodes    = 1000
	programs = 100
)

// BenchmarkPrograms lists the programs of a large cluster, and measures the time and memory of the plugin's
// process.
func BenchmarkPrograms(b *testing.B) {
	plugin := os.Getenv("KUBECTL_BPFMAN")
	if plugin == "" {
		prerequisite.Missing(b, "KUBECTL_BPFMAN isn't set: run `make bench-plugin`", prerequisite.Commands)
	}
	kubeconfig := envtest.Kubeconfig(b)
	fill(b)
	var took time.Duration
	var resident float64
	for b.Loop() {
		var out, said bytes.Buffer
		command := exec.CommandContext(b.Context(), plugin, "programs", "--kubeconfig", kubeconfig)
		command.Stdout, command.Stderr = &out, &said
		start := time.Now()
		if err := command.Run(); err != nil {
			b.Fatalf("%v: %s", err, &said)
		}
		took += time.Since(start)
		if lines := strings.Count(out.String(), "\n"); lines != nodes*programs+1 {
			b.Fatalf("%d lines", lines)
		}
		usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			b.Fatal("no resource usage")
		}
		resident = max(resident, float64(usage.Maxrss)/1024)
	}
	seconds := took.Seconds() / float64(b.N)
	b.ReportMetric(seconds, "s/list")
	b.ReportMetric(resident, "rss-mb")
	figures.Keep(b, map[string]any{"plugin_programs_s": math.Round(seconds*100) / 100, "plugin_programs_rss_mb": math.Round(resident)})
}

// fill creates a BpfNode for each node, like inspectors.
func fill(b *testing.B) {
	b.Helper()
	c := envtest.Client(b, envtest.Config(b))
	writers, ctx := errgroup.WithContext(b.Context())
	writers.SetLimit(8)
	for n := range nodes {
		writers.Go(func() error { return write(ctx, c, fmt.Sprintf("node-%04d", n)) })
	}
	must.Succeed(b, writers.Wait())
}

func write(ctx context.Context, c client.Client, name string) error {
	node := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(ctx, node); err != nil {
		return fmt.Errorf("create BpfNode %s: %w", name, err)
	}
	node.Status = status()
	if err := c.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("write the status of BpfNode %s: %w", name, err)
	}
	return nil
}

func status() v1alpha1.BpfNodeStatus {
	loaded := metav1.NewTime(time.Now().Add(-time.Hour))
	out := v1alpha1.BpfNodeStatus{KernelVersion: "6.12.0", ProgramCount: programs, BpfmanCount: programs / 2, OtherCount: programs / 2, MapCount: programs}
	for i := range uint32(programs) {
		program := v1alpha1.BpfNodeProgram{
			ID: 100 + i, Name: fmt.Sprint("program_", i), Type: "sched_cls", Tag: "0123456789abcdef", LoadedAt: &loaded, MapIDs: []uint32{500 + i},
			AttachPoints: []v1alpha1.BpfNodeAttachPoint{{Type: "tcx/ingress", LinkID: 900 + i, Interface: "eth0", Position: 1}},
		}
		if i%2 == 0 {
			program.Bpfman, program.Owner = true, &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: fmt.Sprint("counter-", i)}
			program.Holders = []v1alpha1.BpfNodeHolder{{Holds: "program", Path: fmt.Sprint("/run/bpfman/fs/prog_", i)}, {Holds: "link", Path: fmt.Sprint("/run/bpfman/fs/links/", i)}}
		} else {
			program.Holders = []v1alpha1.BpfNodeHolder{{Holds: "program", Process: "cilium-agent", PID: 4711, Namespace: "kube-system", Pod: "cilium-x7k2p", Container: "cilium-agent"}}
		}
		out.Programs = append(out.Programs, program)
		out.Maps = append(out.Maps, v1alpha1.BpfNodeMap{ID: 500 + i, Name: "stats", Type: "percpu_array", KeySize: 4, ValueSize: 16, MaxEntries: 1})
	}
	return out
}
