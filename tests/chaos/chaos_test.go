// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/examples/counters"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/reader"
)

// patience is how long the cluster can take after a burst to reach the expected state. The
// kubelet alone waits up to two minutes before it retries a mount.
var patience = time.Duration(number("PATIENCE", 300)) * time.Second

const (
	// long is how long a burst can take to settle without an explanation in the log.
	long = 30 * time.Second
	// The program whose packets are counted all the time, with its interface and its reader.
	steadyName      = steady
	steadyInterface = "chaossteady"
	steadyMap       = "tcx_stats_map"
	streamInterval  = "5ms"
)

// run contains the settings of a run, from the environment.
var run = struct {
	seed    uint64
	minutes float64
	// file is the name of the recording. replay is the name of a recording to repeat.
	file, replay string
	shrink       bool
	stretch      int
	without      []string
}{
	seed:    number("SEED", 1),
	minutes: float64(number("MINUTES", 5)),
	file:    os.Getenv("CHAOS_FILE"),
	replay:  os.Getenv("REPLAY"),
	shrink:  os.Getenv("SHRINK") == "yes",
	stretch: int(number("STRETCH", 1)),
	without: strings.FieldsFunc(os.Getenv("WITHOUT"), func(r rune) bool { return r == ';' }),
}

func number(name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return n
}

// TestChaos runs what is drawn from the seed until the time is over, and compares the
// cluster with the model after each burst.
func TestChaos(t *testing.T) {
	ctx := t.Context()
	w := connect(ctx, t)
	w.clear(ctx, t)
	w.prepare(ctx, t)
	t.Logf("SEED=%d MINUTES=%v; nodes %q; the kernel can %+v", run.seed, run.minutes, w.m.Nodes, w.m.Can)

	recording := Recording{Seed: run.seed, Nodes: w.m.Nodes}
	tally := newTally()
	defer func() {
		// The reason of a failure comes last. What was done is in the recording.
		if !t.Failed() {
			t.Logf("\n%s", tally)
		}
		tally.save(t)
	}()
	if run.replay != "" {
		w.replay(ctx, t, tally)
		return
	}
	defer func() {
		if t.Failed() {
			if err := recording.Save(run.file); err != nil {
				t.Error(err)
			}
			t.Logf("the sequence is in %s: REPLAY=%[1]s does it again, with SHRINK=yes shorter and shorter", run.file)
		}
	}()
	q := NewSequence(run.seed, w.m, run.stretch)
	q.Without = run.without
	deadline := time.Now().Add(time.Duration(run.minutes * float64(time.Minute)))
	baseline := w.baseline(ctx, t)
	must.Succeed(t, w.checkRestarts(ctx))
	for n := 1; time.Now().Before(deadline) && !t.Failed(); n++ {
		steps := q.Burst()
		recording.Steps = append(recording.Steps, steps...)
		if err := w.burst(ctx, t, n, steps, tally); err != nil {
			t.Errorf("burst %d of SEED=%d: %v", n, run.seed, err)
		}
	}
	if t.Failed() {
		return
	}
	w.clear(ctx, t)
	w.m = NewModel(w.m.Can, w.m.Nodes)
	w.prepare(ctx, t)
	w.compare(ctx, t, baseline)
	if err := w.checkRestarts(ctx); err != nil {
		t.Error(err)
	}
	w.leave(ctx, t)
}

// leave removes everything of the test from the cluster, and waits until it is removed.
func (w *world) leave(ctx context.Context, t *testing.T) {
	t.Helper()
	w.clear(ctx, t)
	for _, name := range w.m.Nodes {
		if _, err := ask[any](ctx, w, name, "remove-interface", steadyInterface); err != nil {
			t.Error(err)
		}
	}
	w.m = NewModel(w.m.Can, w.m.Nodes)
	if err := await(ctx, patience, w.check); err != nil {
		t.Errorf("in the end: %v", err)
	}
	if err := await(ctx, patience, w.checkLeft); err != nil {
		t.Errorf("in the end: %v", err)
	}
	if err := w.remove(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Space}}); err != nil {
		t.Error(err)
	}
}

// replay repeats a recorded sequence, and looks for a shorter one that fails.
func (w *world) replay(ctx context.Context, t *testing.T, tally *tally) {
	t.Helper()
	recorded, err := LoadRecording(run.replay)
	if err != nil {
		t.Fatal(err)
	}
	if len(recorded.Nodes) > 0 && !slices.Equal(recorded.Nodes, w.m.Nodes) {
		t.Fatalf("%s was recorded on nodes %q, the cluster has %q", run.replay, recorded.Nodes, w.m.Nodes)
	}
	fails := func(steps []Step) error {
		w.clear(ctx, t)
		w.m = NewModel(w.m.Can, w.m.Nodes)
		w.prepare(ctx, t)
		for n, burst := range Bursts(steps) {
			applied := slices.DeleteFunc(slices.Clone(burst), func(s Step) bool { return !w.m.Apply(s) })
			if err := w.burst(ctx, t, n+1, applied, tally); err != nil {
				return fmt.Errorf("burst %d: %w", n+1, err)
			}
		}
		return nil
	}
	err = fails(recorded.Steps)
	if err == nil {
		w.leave(ctx, t)
		return
	}
	t.Errorf("%s: %v", run.replay, err)
	if !run.shrink {
		return
	}
	steps := Shrink(recorded.Steps, func(steps []Step) bool { return fails(steps) != nil })
	file := strings.TrimSuffix(run.replay, filepath.Ext(run.replay)) + ".shrunk.json"
	if err := (Recording{recorded.Seed, recorded.Nodes, steps}).Save(file); err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d steps suffice, see %s", len(steps), len(recorded.Steps), file)
}

// burst performs the steps, which are already applied to the model, and waits until the
// cluster matches the model. It checks that every packet was counted in the meantime.
func (w *world) burst(ctx context.Context, t *testing.T, n int, steps []Step, tally *tally) error {
	t.Helper()
	begin := time.Now()
	rebooted := slices.ContainsFunc(steps, func(s Step) bool { return s.Do == Reboot })
	end := func() error { return nil }
	if !rebooted {
		var err error
		if end, err = w.stream(ctx); err != nil {
			return err
		}
	}
	var words []string
	for _, s := range steps {
		if s.Settled {
			continue
		}
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		words = append(words, string(text))
		tally.count(s)
		for program, times := range s.Restarts() {
			w.restarts.Expect(program, times)
		}
		if slices.Contains([]string{"kubelet", "containerd"}, s.Target) {
			w.restarts.ExpectDelay()
		}
		if s.Do == "/run full" {
			w.restarts.ExpectStartErrors() // the container runtime needs space there
		}
		if err := w.do(ctx, s); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", text, err), w.ended(), end())
		}
	}
	t.Logf("%s burst %d: %s", time.Now().UTC().Format(time.TimeOnly), n, strings.Join(words, " "))
	if err := w.ended(); err != nil {
		return errors.Join(err, end())
	}
	done := time.Now()
	var last error
	check := func(ctx context.Context) error {
		err := w.check(ctx)
		last = cmp.Or(err, last)
		return err
	}
	if err := await(ctx, patience, check); err != nil {
		return errors.Join(err, end())
	}
	// A state that matches can be temporary.
	if err := await(ctx, patience, check); err != nil {
		return errors.Join(err, end())
	}
	settled := time.Since(done)
	if settled > long {
		t.Logf("burst %d: what came last: %v", n, last)
	}
	if err := end(); err != nil {
		return err
	}
	if err := await(ctx, patience, w.checkLeft); err != nil {
		return err
	}
	if err := w.checkRestarts(ctx); err != nil {
		return err
	}
	tally.settled(settled)
	t.Logf("%s burst %d: settled after %.1f s, took %.1f s", time.Now().UTC().Format(time.TimeOnly), n, settled.Seconds(), time.Since(begin).Seconds())
	return nil
}

// checkRestarts checks that no container of bpfman restarted unless a fault restarted it.
func (w *world) checkRestarts(ctx context.Context) error {
	unexpected, err := w.restarts.Unexpected(ctx)
	if err == nil && len(unexpected) > 0 {
		err = errors.New(strings.Join(unexpected, "; "))
	}
	return err
}

// checkLeft checks that no unloaded program is left in the kernel, which the nodes share.
func (w *world) checkLeft(ctx context.Context) error {
	programs, held := maps.Clone(w.seenPrograms), maps.Clone(w.seenMaps)
	for _, name := range w.m.Nodes {
		there, err := ask[[]node.Program](ctx, w, name, "programs")
		if err != nil {
			return err
		}
		for _, p := range there {
			delete(programs, p.ID)
			for _, id := range p.MapIDs {
				delete(held, id)
			}
		}
	}
	kept := w.m.KeepsMaps()
	if kept {
		held = nil
	}
	for _, name := range w.m.Nodes {
		left, err := ask[[]string](ctx, w, name, "leftovers", list(programs), list(held))
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("on %s are left: %q", name, left)
		}
	}
	clear(w.seenPrograms)
	if !kept {
		clear(w.seenMaps)
	}
	return nil
}

// list formats ids as arguments for the node probe.
func list(ids map[uint32]bool) string {
	var words []string
	for id := range ids {
		words = append(words, fmt.Sprint(id))
	}
	return strings.Join(words, ",")
}

// clear removes what a run has created, and what a killed run has left.
func (w *world) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, kind := range v1alpha1.UserKinds {
		o := kind.New()
		options := []client.DeleteAllOfOption{client.HasLabels{Label}}
		if kind.Namespaced {
			options = append(options, client.InNamespace(Space))
		}
		must.Succeed(t, insist(ctx, func(ctx context.Context) error { return w.DeleteAllOf(ctx, o, options...) }))
	}
	if err := insist(ctx, func(ctx context.Context) error {
		return w.DeleteAllOf(ctx, &v1alpha1.RolloutPolicy{}, client.HasLabels{Label})
	}); err != nil {
		t.Fatal(err)
	}
	if err := insist(ctx, func(ctx context.Context) error {
		return w.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(Space), client.HasLabels{Label}, client.GracePeriodSeconds(0))
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range w.m.Nodes {
		// It only exists if a run was killed.
		_, _ = ask[any](ctx, w, name, "end-stream", steadyInterface)
		for i := range mostInterfaces {
			if _, err := ask[any](ctx, w, name, "remove-interface", interfaceName(i)); err != nil {
				t.Fatal(err)
			}
		}
		must.Succeed(t, operationsDone["label a node"](ctx, w, Step{Node: name}))
	}
	for component, next := range w.m.Next {
		if next {
			must.Succeed(t, operationsDone["upgrade to the other tag, or back"](ctx, w, Step{Target: component, Value: "latest"}))
		}
	}
	for key := range w.m.Config {
		must.Succeed(t, w.configure(ctx, key, w.installed[key]))
	}
}

// prepare creates what stays during the whole run: a program that counts on its own
// interface, and a pod on each node that reads the counts.
func (w *world) prepare(ctx context.Context, t *testing.T) {
	t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Space, Labels: map[string]string{Label: "true"}}}
	must.Succeed(t, w.create(ctx, space))
	stays := &Object{Kind: "TcxProgram", Name: steadyName, Interfaces: []string{steadyInterface}, Priority: 1}
	w.m.Objects[steadyName] = stays
	must.Succeed(t, w.create(ctx, stays.Make(settings.bytecode)))
	for i, name := range w.m.Nodes {
		if _, err := ask[any](ctx, w, name, "remove-interface", steadyInterface); err != nil {
			t.Fatal(err)
		}
		if _, err := ask[any](ctx, w, name, "add-interface", steadyInterface); err != nil {
			t.Fatal(err)
		}
		w.m.Interfaces[name+"/"+steadyInterface] = true
		pod := &Pod{Name: fmt.Sprint(steadyName, i), Node: name, Of: steadyName, Map: steadyMap}
		w.m.Pods[pod.Name] = pod
		must.Succeed(t, w.create(ctx, pod.Make(settings.counters, settings.target)))
	}
	w.m.Settle()
	if err := await(ctx, accepted, w.check); err != nil {
		t.Fatalf("before anything was done: %v", err)
	}
}

// running is a stream of packets on a node.
type running struct {
	node, pod, id string
	result        chan streamed
}

type streamed struct {
	node.Stream
	err error
}

// stream sends packets through the permanent program on each node. The function that it
// returns ends the stream, and checks that all packets were counted, and that an
// unprivileged pod reads the counts.
func (w *world) stream(ctx context.Context) (func() error, error) {
	var all []running
	end := func() error {
		var errs []error
		for _, r := range all {
			errs = append(errs, w.endStream(ctx, r))
		}
		return errors.Join(errs...)
	}
	for i, name := range w.m.Nodes {
		id, err := w.steadyProgram(ctx, name)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		r := running{name, fmt.Sprint(steadyName, i), id, make(chan streamed, 1)}
		go func() {
			s, err := ask[node.Stream](ctx, w, name, "stream", steadyInterface, streamInterval, id+"="+steadyMap)
			r.result <- streamed{s, err}
		}()
		all = append(all, r)
		var first uint64
		err = await(ctx, accepted, func(ctx context.Context) error {
			count, err := ask[counters.Count](ctx, w, name, "count", id, steadyMap)
			if first == 0 {
				first = count.Packets
			}
			if err == nil && (count.Packets == first || count.Packets == 0) {
				err = fmt.Errorf("no packets stream on %s: %d", name, count.Packets)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(err, end())
		}
	}
	return end, nil
}

// endStream ends a stream, and checks that each packet was counted.
func (w *world) endStream(ctx context.Context, r running) error {
	_, err := ask[any](ctx, w, r.node, "end-stream", steadyInterface)
	s := <-r.result
	if err := errors.Join(err, s.err); err != nil {
		return err
	}
	if s.Sent == 0 || s.Passed != s.Sent || s.Counted[r.id] != s.Arrived {
		return fmt.Errorf("on %s of %d packets sent %d passed, %d arrived, %d were counted", r.node, s.Sent, s.Passed, s.Arrived, s.Counted[r.id])
	}
	return await(ctx, accepted, func(ctx context.Context) error {
		count, err := ask[counters.Count](ctx, w, r.node, "count", r.id, steadyMap)
		if err != nil {
			return err
		}
		log, err := w.logOf(ctx, r.pod)
		if err != nil {
			return err
		}
		if read := reader.Counts(log)[steadyMap]; read != count.Packets {
			return fmt.Errorf("pod %s reads %d packets, the kernel has counted %d", r.pod, read, count.Packets)
		}
		return nil
	})
}

// steadyProgram returns the id of the permanent program.
func (w *world) steadyProgram(ctx context.Context, name string) (id string, err error) {
	err = await(ctx, accepted, func(ctx context.Context) error {
		programs, err := ask[[]node.Program](ctx, w, name, "programs")
		if err != nil {
			return err
		}
		at := slices.IndexFunc(programs, func(p node.Program) bool { return p.Metadata[v1alpha1.MetadataProgramName] == steadyName })
		if at < 0 {
			return fmt.Errorf("the daemon of %s has no program %s", name, steadyName)
		}
		id = fmt.Sprint(programs[at].ID)
		return nil
	})
	return id, err
}

// TestEverythingIsDone checks that each operation and fault has an implementation.
func TestEverythingIsDone(t *testing.T) {
	for _, o := range Operations {
		if operationsDone[o.Name] == nil {
			t.Errorf("nobody knows how to do %q", o.Name)
		}
	}
	for _, f := range Faults {
		if faultsDone[f.Name].begin == nil {
			t.Errorf("nobody knows how to do %q", f.Name)
		}
	}
}
