// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Cluster is a simulated cluster in which a history is played.
type Cluster struct {
	*simulation.World

	// Model is what users want. It is that of the last operation.
	Model *chaos.Model
	// Settled is the time of the last rest, and Ops the number of operations since then.
	Settled time.Time

	tb         testing.TB
	tally      *Tally
	checks     []Checks
	invariants []Invariant
	interfaces int
	images     bool
	pods       map[string]*corev1.Pod

	// checking is held while invariants are checked, and while the model changes.
	checking sync.Mutex

	mu     sync.Mutex
	broken *BrokenError
	// worked is when something was last written, loaded or attached.
	worked time.Time
	// ends contains the faults that last, by their numbers, of which lasting is the last one.
	ends    map[int]func()
	lasting int
	// faults counts the faults of a target that last, and disturbed contains when there was one, or when it ended. "" is the API server.
	faults    map[string]int
	disturbed map[string]time.Time
	// due is what has to be done within a second.
	due []func()
	log []string
	// changed contains what operations were about since the last rest.
	changed map[string]bool
	// confirmed contains the points of objects at interfaces that nodes had confirmed at the last rest.
	confirmed map[string]map[string]bool
	// operated contains the times of the last operations about an object, and of any operation, which is "".
	operated map[string]time.Time
	// reads counts the reads of images in progress.
	reads map[read]int
	// restored means that etcd was restored since the last rest.
	restored bool
	// objects contains the objects of each resource.
	objects map[string]map[string]*unstructured.Unstructured
}

// logger gets what the components log.
var logger logr.Logger

// newCluster returns a cluster with the plan's components, which run.
func newCluster(tb testing.TB, p Plan, invariants []Invariant, tally *Tally) *Cluster {
	tb.Helper()
	c := &Cluster{
		World: simulation.New(tb, simulation.Options{Seed: p.Seed, Alone: p.Alone, Latency: p.Latency.Duration, BytecodeSize: bytecodeSize, Log: logger}), tb: tb, tally: tally, invariants: invariants, images: p.Images, pods: map[string]*corev1.Pod{},
		Model: chaos.NewModel(abilities(), nodes(p)), Settled: time.Now(), worked: time.Now(),
		ends: map[int]func(){}, faults: map[string]int{}, disturbed: map[string]time.Time{}, changed: map[string]bool{}, operated: map[string]time.Time{}, objects: map[string]map[string]*unstructured.Unstructured{}, reads: map[read]int{},
	}
	for _, invariant := range invariants {
		c.checks = append(c.checks, invariant.Watch(c))
	}
	observe(c.World, c.wrote)
	c.OnEvent(c.called)
	c.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chaos.Space}})
	for _, name := range operators(p) {
		c.AddOperator(name).Start()
	}
	for _, name := range nodes(p) {
		c.AddNode(name).Agent.Start()
	}
	return c
}

// bytecodeSize has space for all images of the users' objects, of 85 bytes each, and for those of a greedy tenant, but not for a
// second one's: nodes have to make room.
const bytecodeSize = 85 * (12 + greedyObjects/2)

// abilities are those of a kernel that can do everything.
func abilities() map[string]chaos.Ability {
	can := map[string]chaos.Ability{}
	for _, name := range []string{"XDP", "TC", "TCX", "Tracepoint", "Uprobe", "Uprobe in a container", "Kprobe", "Fentry", "Fexit"} {
		can[name] = chaos.Ability{Loads: true, Attaches: true}
	}
	return can
}

func (c *Cluster) node(name string) *simulation.Node {
	for _, n := range c.Nodes() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Break says that an invariant is broken.
func (c *Cluster) Break(i *Invariant, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = &BrokenError{i, err, slices.Clone(c.log)}
	}
}

// Broken returns the first invariant that was broken, or nil.
func (c *Cluster) Broken() *BrokenError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// check calls a check of each invariant. Checks send no requests: a write waits for them.
func (c *Cluster) check(call func(Checks) (checked bool, err error)) {
	c.checking.Lock()
	defer c.checking.Unlock()
	for i, checks := range c.checks {
		checked, err := call(checks)
		if checked {
			c.tally.check(c.invariants[i].Name)
		}
		if err != nil {
			c.Break(&c.invariants[i], err)
		}
	}
}

// logLength is the number of events that are kept.
const logLength = 60

func (c *Cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, time.Now().Format("02 15:04:05.000 ")+fmt.Sprintf(format, args...))
	if len(c.log) > logLength {
		c.log = c.log[1:]
	}
}

// wrote is called after each write of the API server.
func (c *Cluster) wrote(w Write) {
	c.remember(w)
	if slices.Contains([]string{"leases", "events"}, w.Resource) {
		return
	}
	c.note("%s", w)
	c.work()
	c.check(func(checks Checks) (bool, error) {
		if checks.Write == nil {
			return false, nil
		}
		return true, checks.Write(w)
	})
}

func (c *Cluster) work() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worked = time.Now()
}

// called is the kernel: it refuses some programs. It has the invariants checked after calls.
func (c *Cluster) called(ctx context.Context, e simulation.Event) error {
	c.tally.step(e)
	if e.Resource == simulation.ResourceRegistry {
		c.countRead(e)
	}
	if readsSilent(e) {
		return simulation.Hang(ctx, e)
	}
	if e.Resource == simulation.ResourceRegistry && !e.Done && strings.Contains(e.Name, noSuchImage) {
		return errors.New("MANIFEST_UNKNOWN: manifest unknown")
	}
	if e.Resource != simulation.ResourceDaemon {
		return nil
	}
	if !e.Done {
		return refused(e)
	}
	if !e.Writes() {
		return nil
	}
	c.note("%s: %s", e, text(e))
	c.work()
	n := c.node(strings.TrimPrefix(e.Actor, "agent/"))
	if n == nil {
		return nil
	}
	c.check(func(checks Checks) (bool, error) {
		if checks.Call == nil {
			return false, nil
		}
		return true, checks.Call(n, e)
	})
	return nil
}

func text(e simulation.Event) string {
	words := fmt.Sprint(e.Call)
	return words[:min(len(words), 160)]
}

// noSuchImage is a part of the names of images that don't exist.
const noSuchImage = "no_such_image"

// refused returns the error of the kernel for bytecode that the model calls bad.
func refused(e simulation.Event) error {
	load, ok := e.Call.(*gobpfman.LoadRequest)
	if !ok {
		return nil
	}
	if strings.Contains(load.GetBytecode().GetFile(), noSuchImage) {
		return status.Error(codes.Aborted, "can't open file")
	}
	for _, f := range load.GetInfo() {
		if f.GetName() == "rejected" || f.GetName() == "no_such_function" {
			return status.Error(codes.Aborted, "the BPF_PROG_LOAD syscall failed. Verifier output: invalid access")
		}
	}
	return nil
}

// Objects returns the objects of a resource, such as bpfprograms. Don't change them.
func (c *Cluster) Objects(resource string) []*unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, key := range slices.Sorted(maps.Keys(c.objects[resource])) {
		all = append(all, c.objects[resource][key])
	}
	return all
}

func (c *Cluster) remember(w Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[w.Resource] == nil {
		c.objects[w.Resource] = map[string]*unstructured.Unstructured{}
	}
	if w.After == nil {
		delete(c.objects[w.Resource], w.Before.GetNamespace()+"/"+w.Before.GetName())
		return
	}
	c.objects[w.Resource][w.After.GetNamespace()+"/"+w.After.GetName()] = w.After
}

// Restored reports whether etcd was restored since the last rest. Objects and nodes can have gone back and forth.
func (c *Cluster) Restored() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restored
}

// points is a place in which pods or interfaces have come or gone.
const points = "points"

// failing is a place that changes while a revision that fails is rolled out.
const failing = "failing"

// Operated returns the time of the last operation about an object, or, for "", of any operation.
func (c *Cluster) Operated(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.operated[name]
}

// Changed reports whether an operation since the last rest was about an object, a node, or the RolloutPolicies, which are "".
func (c *Cluster) Changed(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed[what]
}

var errUnsettled = errors.New("the cluster doesn't come to rest: something is written, loaded or attached in turns")

const (
	// quiet is how long nothing happens at rest: agents may look for the first object of a kind after six minutes. settles is the
	// longest time until then.
	quiet   = 7 * time.Minute
	settles = time.Hour
)

// rest ends the faults, and waits until nothing happens.
func (c *Cluster) rest() {
	c.endFaults()
	c.doDue()
	start := time.Now()
	for c.Broken() == nil {
		c.mu.Lock()
		idle := time.Since(c.worked)
		c.mu.Unlock()
		if idle > quiet && time.Since(start) > quiet && !c.tryAgain() && !c.resume() {
			break
		}
		if time.Since(start) > settles {
			c.Break(&restInvariant, errUnsettled)
			return
		}
		c.second()
	}
	c.checking.Lock()
	c.Model.Settle()
	c.checking.Unlock()
	c.check(func(checks Checks) (bool, error) {
		if checks.Rest == nil {
			return false, nil
		}
		return true, checks.Rest()
	})
	c.checking.Lock()
	confirmed := c.confirmedAtRest()
	c.checking.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.confirmed = confirmed
	c.Settled, c.changed, c.restored = time.Now(), map[string]bool{}, false
}

// second lets a second pass.
func (c *Cluster) second() {
	c.Pass(time.Second)
	c.doDue()
	c.check(func(checks Checks) (bool, error) {
		if checks.Second == nil {
			return false, nil
		}
		return true, checks.Second()
	})
}

// wait lets time pass, second by second.
func (c *Cluster) wait(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && c.Broken() == nil; {
		c.second()
	}
}
