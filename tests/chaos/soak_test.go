// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package chaos

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/plot"
)

const (
	// sampleEvery is the interval of samples.
	sampleEvery = 10 * time.Second
	// perInterface is less than the 64 programs that the kernel accepts on an interface.
	// perTracepoint leaves space for other programs at a tracepoint.
	perInterface  = 50
	perTracepoint = 32
	// loadTime is the maximum time to load a program, after all others.
	loadTime = 2 * time.Second
)

// rarelyCalled are system calls that processes rarely make, and that no other test uses.
var rarelyCalled = []string{
	"sethostname", "setdomainname", "pivot_root", "vhangup", "settimeofday", "clock_settime", "clock_adjtime", "mq_unlink",
	"add_key", "request_key", "iopl", "ioperm", "quotactl_fd", "mq_open", "personality", "ustat", "modify_ldt",
}

// TestSoak repeatedly loads and unloads many programs in batches for a long time, and
// measures the resources of the components. At the end, they must not use more than after
// the first round.
func TestSoak(t *testing.T) {
	programs, atOnce := int(number("PROGRAMS", 0)), int(number("AT_ONCE", 100))
	if programs == 0 {
		t.Skip("this takes long, see `make soak`")
	}
	ctx := t.Context()
	w := connect(ctx, t)
	w.clear(ctx, t)
	objects := w.soakObjects(ctx, t, programs)
	must.Succeed(t, w.checkRestarts(ctx))
	if err := await(ctx, patience, w.check); err != nil { // the programs of an earlier run are gone
		t.Fatal(err)
	}
	others := w.otherPins(ctx, t)
	s := newSampler(w)
	stop := s.start(ctx, t)
	defer stop()
	defer s.save(t)

	deadline := time.Now().Add(time.Duration(run.minutes * float64(time.Minute)))
	var first map[string]usage
	loads, waves := 0, slices.Collect(slices.Chunk(objects, atOnce))
	for n := 0; time.Now().Before(deadline) || n < 2; n++ {
		wave := waves[n%len(waves)]
		begin := time.Now()
		uids := w.loadAll(ctx, t, wave)
		loaded := time.Since(begin)
		w.unloadAll(ctx, t, wave, uids, others)
		loads += len(wave)
		t.Logf("%s wave %d: %d programs attached after %.1f s, gone after %.1f s more", time.Now().UTC().Format(time.TimeOnly), n+1, len(wave), loaded.Seconds(), (time.Since(begin) - loaded).Seconds())
		if first == nil {
			first = w.baseline(ctx, t)
		}
	}
	stop()
	t.Logf("%d loads, %d programs at a time, of %d", loads, atOnce, len(objects))
	w.compare(ctx, t, first)
	s.checkProcesses(t)
	if err := w.checkRestarts(ctx); err != nil {
		t.Error(err)
	}
	for _, name := range w.m.Nodes {
		for i := range soakInterfaces(programs) {
			if _, err := ask[any](ctx, w, name, "remove-interface", soakInterface(i)); err != nil {
				t.Error(err)
			}
		}
	}
	w.leave(ctx, t)
}

// soakInterfaces returns the number of interfaces that half of the programs need.
func soakInterfaces(programs int) int { return (programs/2 + perInterface - 1) / perInterface }

func soakInterface(i int) string { return fmt.Sprint("soak", i) }

// soakObjects returns n objects, one half at tracepoints, and one half on interfaces.
func (w *world) soakObjects(ctx context.Context, t *testing.T, n int) []v1alpha1.UserObject {
	t.Helper()
	interfaces := soakInterfaces(n)
	for _, name := range w.m.Nodes {
		for i := range interfaces {
			iface := soakInterface(i)
			if _, err := ask[any](ctx, w, name, "remove-interface", iface); err != nil {
				t.Fatal(err)
			}
			if _, err := ask[any](ctx, w, name, "add-interface", iface); err != nil {
				t.Fatal(err)
			}
		}
	}
	if most := len(rarelyCalled) * perTracepoint; n/2 > most {
		t.Fatalf("there is room for %d tracepoint programs, not for %d", most, n/2)
	}
	objects := make([]v1alpha1.UserObject, 0, n)
	for i := range n {
		o := &Object{Kind: "TcxProgram", Name: fmt.Sprintf("soak-%03d", i), Interfaces: []string{soakInterface(i / 2 % interfaces)}, Priority: 1 + int32(i)}
		if i%2 == 1 {
			o.Kind, o.Interfaces = "TracepointProgram", nil
			o.Tracepoints = []string{"syscalls/sys_enter_" + rarelyCalled[i/2%len(rarelyCalled)]}
		}
		objects = append(objects, o.Make(settings.bytecode))
	}
	return objects
}

// loadAll creates the objects, and waits until all are attached.
func (w *world) loadAll(ctx context.Context, t *testing.T, objects []v1alpha1.UserObject) map[types.UID]bool {
	t.Helper()
	for _, o := range objects {
		must.Succeed(t, w.create(ctx, o))
	}
	uids := map[types.UID]bool{}
	err := await(ctx, patience+time.Duration(len(objects))*loadTime, func(ctx context.Context) error {
		done := 0
		for _, kind := range []string{"TcxProgram", "TracepointProgram"} {
			all, err := w.objects(ctx, kindOf(kind))
			if err != nil {
				return err
			}
			for _, o := range all {
				uids[o.GetUID()] = true
				if c := o.GetStatus().Conditions; len(c) > 0 && v1alpha1.ProgramConditionTypeOf(c[0].Type) == v1alpha1.ProgramReconcileSuccess {
					done++
				}
			}
		}
		if done != len(objects) {
			return fmt.Errorf("%d of %d objects are attached", done, len(objects))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return uids
}

// otherPins returns the pins on each node before the test created any.
func (w *world) otherPins(ctx context.Context, t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, name := range w.m.Nodes {
		survey, err := ask[node.Survey](ctx, w, name, "survey")
		if err != nil {
			t.Fatal(err)
		}
		all[name] = map[string]bool{}
		for _, pin := range survey.Pins {
			all[name][pin] = true
		}
	}
	return all
}

// unloadAll deletes the objects, and waits until nothing of them is left beside the pins of others.
func (w *world) unloadAll(ctx context.Context, t *testing.T, objects []v1alpha1.UserObject, uids map[types.UID]bool, others map[string]map[string]bool) {
	t.Helper()
	for _, o := range objects {
		must.Succeed(t, w.remove(ctx, o))
	}
	err := await(ctx, patience+time.Duration(len(objects))*loadTime, func(ctx context.Context) error {
		for _, name := range w.m.Nodes {
			survey, err := ask[node.Survey](ctx, w, name, "survey")
			if err != nil {
				return err
			}
			left := slices.DeleteFunc(survey.Programs, func(p node.Program) bool { return !uids[types.UID(p.Metadata[v1alpha1.MetadataUUID])] })
			pins := slices.DeleteFunc(survey.Pins, func(pin string) bool { return strings.HasPrefix(pin, ownPins) || others[name][pin] })
			if len(left) > 0 || len(pins) > 0 {
				return fmt.Errorf("%s has %d programs, pins %q", name, len(left), pins)
			}
		}
		reports, err := w.reports(ctx)
		if err == nil && len(reports) > 0 {
			err = fmt.Errorf("reports of %d objects are left", len(reports))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sample contains the resources that a process used at one time.
type sample struct {
	seconds  float64
	programs int
	node.Usage
}

// sampler records the resources of the components on the first node while it runs.
type sampler struct {
	w       *world
	samples []sample
}

func newSampler(w *world) *sampler { return &sampler{w: w} }

// start samples until the returned function is called.
func (s *sampler) start(ctx context.Context, t *testing.T) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	begin := time.Now()
	done.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			survey, err := ask[node.Survey](ctx, s.w, s.w.m.Nodes[0], "survey")
			if err == nil {
				for _, u := range survey.Processes {
					if slices.Contains(watched, u.Name) {
						s.samples = append(s.samples, sample{time.Since(begin).Seconds(), len(survey.Programs), u})
					}
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// checkProcesses checks that each component was the same process all the time.
func (s *sampler) checkProcesses(t *testing.T) {
	t.Helper()
	processes := map[string]int{}
	for _, x := range s.samples {
		if was, known := processes[x.Name]; known && was != x.PID {
			t.Errorf("after %.0f s, %s is process %d, not %d", x.seconds, x.Name, x.PID, was)
		}
		processes[x.Name] = x.PID
	}
}

// save writes the samples as CSV, and as a picture.
func (s *sampler) save(t *testing.T) {
	t.Helper()
	if run.file == "" {
		return
	}
	file, err := os.Create(run.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows := csv.NewWriter(file)
	_ = rows.Write([]string{"seconds", "programs", "component", "process", "memory_bytes", "files", "threads"}) // the error is returned by Error
	panels := []plot.Panel{{Title: "Resident memory (MB)"}, {Title: "File descriptors"}, {Title: "Threads"}, {Title: "Programs in the daemon"}}
	for _, component := range watched {
		lines := make([]plot.Line, len(panels))
		for i := range lines {
			lines[i].Name = component
		}
		for _, x := range s.samples {
			if x.Name != component {
				continue
			}
			_ = rows.Write([]string{
				strconv.FormatFloat(x.seconds, 'f', 1, 64), strconv.Itoa(x.programs), x.Name, strconv.Itoa(x.PID),
				strconv.Itoa(x.Memory), strconv.Itoa(x.Files), strconv.Itoa(x.Threads),
			})
			for i, value := range []float64{float64(x.Memory) / 1e6, float64(x.Files), float64(x.Threads), float64(x.programs)} {
				lines[i].Points = append(lines[i].Points, plot.Point{Seconds: x.seconds, Value: value})
			}
		}
		for i := range panels {
			if i == len(panels)-1 {
				if component != node.Agent {
					continue // it is the same for all
				}
				lines[i].Name = "programs"
			}
			panels[i].Lines = append(panels[i].Lines, lines[i])
		}
	}
	rows.Flush()
	must.Succeed(t, rows.Error())
	must.Succeed(t, os.WriteFile(strings.TrimSuffix(run.file, ".csv")+".svg", plot.SVG(panels), 0o600))
}
