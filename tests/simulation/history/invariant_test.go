// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// object is what the histories below are about.
var object = &chaos.Object{Kind: "TcxProgram", Name: "o0", Interfaces: []string{simulation.Uplink}, Priority: 1}

// breaks contains, for each invariant, what breaks it in a cluster whose components are down: the test plays them.
var breaks = map[string]func(*Cluster){
	finalStates.Name: func(c *Cluster) {
		c.wrote(Write{"operator/a", "tcxprograms", with(v1alpha1.RolloutHalted, 1, false), with(v1alpha1.RolloutComplete, 0, false)})
	},
	stepsInTurn.Name: func(c *Cluster) {
		c.Model.Staged = true
		c.Model.Objects[object.Name].Staged = true
		c.wrote(Write{"operator/a", "tcxprograms", with(v1alpha1.RolloutProgressing, 1, false), with(v1alpha1.RolloutProgressing, 2, false)})
	},
	stepsAreLimits.Name: func(c *Cluster) {
		c.Model.Staged, c.Model.Objects[object.Name].Staged = true, true
		c.wrote(Write{"operator/a", "tcxprograms", nil, with(v1alpha1.RolloutProgressing, 1, false)})
		c.load(object.Name, "f", simulation.Uplink)
	},
	listedFirst.Name: func(c *Cluster) {
		c.Component("operator/a").Start()
		c.wrote(Write{"operator/a", "tcxprograms", with("", 0, false), with(v1alpha1.RolloutProgressing, 1, false)})
	},
	readyIsAttached.Name: func(c *Cluster) {
		c.wrote(Write{"operator/a", "tcxprograms", with("", 0, false), with("", 0, true)})
	},
	loadedOnce.Name: func(c *Cluster) {
		for range 2 {
			c.load(object.Name, "f", simulation.Uplink)
		}
	},
	cutOffIsBack.Name: func(c *Cluster) {
		c.load(object.Name, simulation.CutOff, simulation.Uplink)
		c.wait(time.Minute)
	},
	reachableIsKept.Name: func(c *Cluster) {
		report := &v1alpha1.BpfProgram{TypeMeta: metav1.TypeMeta{Kind: "BpfProgram"}, ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		report.Status.Node, report.Status.Conditions = "n1", []metav1.Condition{v1alpha1.BpfProgCondRolledBack.Condition("rolled back")}
		c.wrote(Write{"agent/n1", "bpfprograms", nil, toUnstructured(report)})
	},
	causeIsRefused.Name: func(c *Cluster) {
		n := c.node("n1")
		n.Cable.Set(simulation.Silent)
		c.wait(time.Minute)
		c.must(c.called(context.Background(), simulation.Event{Actor: "agent/n1", Verb: "Unload", Resource: simulation.ResourceDaemon, Done: true}))
		c.wait(time.Minute)
		n.Cable.Set(simulation.Up)
		report := &v1alpha1.BpfProgram{TypeMeta: metav1.TypeMeta{Kind: "BpfProgram"}, ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		report.Status.Node, report.Status.Conditions = "n1", []metav1.Condition{v1alpha1.BpfProgCondRolledBack.Condition("got no response, and got one after the rollback")}
		c.wrote(Write{"agent/n1", "bpfprograms", nil, toUnstructured(report)})
	},
	knownIsAttached.Name: func(c *Cluster) {
		c.Model.Settle()
		c.Pass(2 * time.Minute)
		c.wait(time.Minute)
	},
	asExpected.Name: func(c *Cluster) { c.rest() },
	reportsAreTrue.Name: func(c *Cluster) {
		c.load("deleted", "f")
		c.rest()
	},
	keptPrograms.Name: func(c *Cluster) {
		c.load(object.Name, "f", simulation.Uplink)
		c.rest()
		daemon := c.node("n1").Daemon
		if _, err := daemon.Unload(context.Background(), &gobpfman.UnloadRequest{Id: daemon.Programs()[0].ID}); err != nil {
			c.tb.Fatal(err)
		}
		c.load(object.Name, "f", simulation.Uplink)
		c.rest()
	},
	attachedInTime.Name: func(c *Cluster) {
		c.Pass(time.Minute)
		c.Settled, c.operated[""], c.changed[object.Name] = time.Now(), time.Now(), true
		c.wait(time.Minute)
	},
	readOnce.Name: func(c *Cluster) {
		for range 2 {
			c.must(c.called(context.Background(), simulation.Event{Actor: "agent/n1", Verb: "read", Resource: simulation.ResourceRegistry, Name: greedy}))
		}
		c.wait(time.Second)
	},
	usedImages.Name: func(c *Cluster) {
		request := &gobpfman.LoadRequest{
			Info: []*gobpfman.LoadInfo{{Name: "tcx_stats"}}, Metadata: map[string]string{v1alpha1.MetadataProgramName: object.Name, v1alpha1.MetadataKind: object.Kind},
			Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: "/var/lib/bpfman/bytecode/images/i@sha256:1.o"}},
		}
		if _, err := c.node("n1").Daemon.Load(context.Background(), request); err != nil {
			c.tb.Fatal(err)
		}
		c.rest()
	},
	goneIsGone.Name: func(c *Cluster) {
		report := &v1alpha1.BpfProgram{TypeMeta: metav1.TypeMeta{Kind: "BpfProgram"}, ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		report.Status.Node = "n1"
		c.wrote(Write{"agent/n1", "bpfprograms", nil, toUnstructured(report)})
		c.node("n1").Leave()
		c.wait(10 * time.Minute)
	},
	statusLoadsNothing.Name: func(c *Cluster) {
		request := &gobpfman.LoadRequest{Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: "/forged.o"}}}
		c.must(c.called(context.Background(), simulation.Event{Actor: "agent/n1", Verb: "Load", Resource: simulation.ResourceDaemon, Call: request, Done: true}))
	},
	restInvariant.Name: func(c *Cluster) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 60 {
				c.wrote(Write{"agent/n1", "bpfprograms", nil, toUnstructured(&v1alpha1.BpfProgram{})})
				c.Pass(time.Minute)
			}
		}()
		c.rest()
		<-done
	},
}

// TestInvariantsCanFail checks that each invariant finds what breaks it, alone.
func TestInvariantsCanFail(t *testing.T) {
	for i := range Invariants {
		invariant := Invariants[i]
		t.Run(invariant.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := down(t, invariant)
				if broken := c.Broken(); broken != nil {
					t.Fatalf("it is broken by nothing: %v", broken)
				}
				breaks[invariant.Name](c)
				if broken := c.Broken(); broken == nil || broken.Invariant.Name != invariant.Name {
					t.Errorf("it isn't broken, but %v", broken)
				} else {
					t.Log(broken)
				}
			})
		})
	}
}

// down returns a cluster with one node, which the object selects, and no running component.
func down(t *testing.T, invariant Invariant) *Cluster {
	t.Helper()
	c := newCluster(t, Plan{Nodes: 1, Operators: 1}, []Invariant{invariant}, NewTally())
	for _, component := range c.Components() {
		component.Stop()
	}
	o := *object
	c.Model.Objects[o.Name] = &o
	return c
}

// load loads and attaches a program as the agent of n1 does.
func (c *Cluster) load(name, function string, interfaces ...string) {
	n := c.node("n1")
	metadata := map[string]string{v1alpha1.MetadataUUID: "uid", v1alpha1.MetadataProgramName: name, v1alpha1.MetadataKind: object.Kind, v1alpha1.MetadataLoad: "load"}
	request := &gobpfman.LoadRequest{Info: []*gobpfman.LoadInfo{{Name: function}}, Metadata: metadata}
	if _, err := n.Daemon.Load(context.Background(), request); err != nil {
		c.tb.Fatal(err)
	}
	programs := n.Daemon.Programs()
	id := programs[len(programs)-1].ID
	for _, name := range interfaces {
		info := &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{Iface: name}}}
		if _, err := n.Daemon.Attach(context.Background(), &gobpfman.AttachRequest{Id: id, Attach: info}); err != nil {
			c.tb.Fatal(err)
		}
	}
	if err := c.called(context.Background(), simulation.Event{Actor: "agent/n1", Verb: "Load", Resource: simulation.ResourceDaemon, Call: request, Done: true}); err != nil {
		c.tb.Fatal(err)
	}
}

// with returns the object with a rollout in a state, and ready or not.
func with(state v1alpha1.RolloutState, step int32, ready bool) *unstructured.Unstructured {
	o := (&Cluster{}).objectOf(object).(*v1alpha1.TcxProgram) //nolint:forcetypeassert,errcheck // it is one
	o.Kind, o.UID, o.Generation = object.Kind, "uid", 1
	o.Status.ObservedGeneration = 1
	if state != "" {
		o.Status.Rollout = &v1alpha1.RolloutStatus{Policy: "p", State: state, Step: step, Hash: rolloutHash(o), Revision: 1, Until: new(int64(math.MaxInt64)), StepStarted: &metav1.Time{Time: time.Now()}}
	}
	if ready {
		o.Status.Conditions = v1alpha1.Ready.Conditions(metav1.Condition{Message: "ready", ObservedGeneration: 1})
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].ObservedGeneration = 1
		}
	}
	return toUnstructured(o)
}

func toUnstructured(o any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// TestFaultsAndOperations checks that each operation of the table exists, and that each fault, invariant and operation has its own
// name.
func TestFaultsAndOperations(t *testing.T) {
	var names []string
	for _, f := range Faults {
		names = append(names, f.Name)
	}
	for _, i := range Invariants {
		names = append(names, i.Name)
		if breaks[i.Name] == nil {
			t.Errorf("no history breaks %q", i.Name)
		}
	}
	for name := range Operations {
		names = append(names, name)
		if !slices.ContainsFunc(chaos.Operations, func(o chaos.Operation) bool { return o.Name == name }) {
			t.Errorf("the chaos test has no operation %q", name)
		}
	}
	slices.Sort(names)
	if distinct := slices.Compact(slices.Clone(names)); len(distinct) != len(names) {
		t.Errorf("a name is used twice: %q", names)
	}
}
