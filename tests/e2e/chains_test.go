// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/examples/counters"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const (
	// dispatcherSize is the maximum number of XDP or TC programs in the daemon's chain on
	// an interface.
	dispatcherSize = 10
	verdictMap     = "verdict_stats_map"
	// xdpPass is a verdict after which programs proceed by default. xdpDrop is a verdict
	// that ends the chain.
	xdpPass, xdpDrop = 2, 1
	tcPipe, tcOK     = 3, 0
	tcxNext, tcxPass = -1, 0
	// The verdicts of the daemon's dispatchers themselves.
	xdpDispatcherReturns, tcDispatcherReturns = 31, 30
)

// chained is a program in a chain. It counts packets, and returns its verdict.
type chained struct {
	priority, verdict int32
	// proceedsOnEnd makes the chain proceed on the verdict that usually ends it.
	proceedsOnEnd bool
}

func (c chained) globals() v1alpha1.GlobalData {
	return v1alpha1.GlobalData{"VERDICT": binary.NativeEndian.AppendUint32(nil, uint32(c.verdict))}
}

// chainHook is a hook with chains.
type chainHook struct {
	program, direction string
	on, end            int32
	// proceedOn are the verdicts on which a manually attached program proceeds.
	proceedOn []int32
	// dispatched means that the daemon chains the programs, and can proceed on any
	// verdict. Otherwise, the kernel chains them.
	dispatched bool
	// restarts makes the test restart the agent before its objects are removed. One of
	// the hooks that a kernel supports is enough, because restarts of a container take
	// longer each time.
	restarts bool
	object   func(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) v1alpha1.UserObject
	// set sets the program in an object.
	set func(o v1alpha1.UserObject, c chained)
}

func chainHooks() map[string]chainHook {
	return map[string]chainHook{
		"XDP": {
			program: "XDP", on: xdpPass, end: xdpDrop, proceedOn: []int32{xdpPass, xdpDispatcherReturns}, dispatched: true, restarts: true,
			object: func(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) v1alpha1.UserObject {
				return &v1alpha1.XdpProgram{ObjectMeta: meta, Spec: v1alpha1.XdpProgramSpec{
					XdpProgramInfo: v1alpha1.XdpProgramInfo{BpfProgramCommon: functionOf("verdict"), InterfaceSelector: at},
					BpfAppCommon:   of("xdp_verdict"),
				}}
			},
			set: func(o v1alpha1.UserObject, c chained) {
				if p, ok := o.(*v1alpha1.XdpProgram); ok {
					p.Spec.Priority, p.Spec.GlobalData, p.Spec.ProceedOn = c.priority, c.globals(), []v1alpha1.XdpProceedOnValue{"pass", "dispatcher_return"}
					if c.proceedsOnEnd {
						p.Spec.ProceedOn = []v1alpha1.XdpProceedOnValue{"drop", "dispatcher_return"}
					}
				}
			},
		},
		"TC ingress":  tcHook("ingress"),
		"TC egress":   tcHook("egress"),
		"TCX ingress": tcxHook("ingress", true),
		"TCX egress":  tcxHook("egress", false),
	}
}

func tcHook(direction string) chainHook {
	return chainHook{
		program: "TC", direction: direction, on: tcPipe, end: tcOK, proceedOn: []int32{tcPipe, tcDispatcherReturns}, dispatched: true,
		object: func(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) v1alpha1.UserObject {
			return &v1alpha1.TcProgram{ObjectMeta: meta, Spec: v1alpha1.TcProgramSpec{
				TcProgramInfo: v1alpha1.TcProgramInfo{BpfProgramCommon: functionOf("verdict"), InterfaceSelector: at, Direction: direction},
				BpfAppCommon:  of("tc_verdict"),
			}}
		},
		set: func(o v1alpha1.UserObject, c chained) {
			if p, ok := o.(*v1alpha1.TcProgram); ok {
				p.Spec.Priority, p.Spec.GlobalData, p.Spec.ProceedOn = c.priority, c.globals(), []v1alpha1.TcProceedOnValue{"pipe", "dispatcher_return"}
				if c.proceedsOnEnd {
					p.Spec.ProceedOn = []v1alpha1.TcProceedOnValue{"ok", "dispatcher_return"}
				}
			}
		},
	}
}

func tcxHook(direction string, restarts bool) chainHook {
	return chainHook{
		program: "TCX", direction: direction, on: tcxNext, end: tcxPass, restarts: restarts,
		object: func(meta metav1.ObjectMeta, at v1alpha1.InterfaceSelector) v1alpha1.UserObject {
			return &v1alpha1.TcxProgram{ObjectMeta: meta, Spec: v1alpha1.TcxProgramSpec{
				TcxProgramInfo: v1alpha1.TcxProgramInfo{BpfProgramCommon: functionOf("verdict"), InterfaceSelector: at, Direction: direction},
				BpfAppCommon:   of("tc_verdict"),
			}}
		},
		set: func(o v1alpha1.UserObject, c chained) {
			if p, ok := o.(*v1alpha1.TcxProgram); ok {
				p.Spec.Priority, p.Spec.GlobalData = c.priority, c.globals()
			}
		},
	}
}

// from returns the end of a cable at which packets for the hook are sent.
func (h chainHook) from(iface string) string {
	if h.direction == "egress" {
		return iface
	}
	return node.Peer(iface)
}

// chain is the chain under test.
type chain struct {
	chainHook
	// name is the name of the interface and of the objects.
	name    string
	objects map[string]v1alpha1.UserObject
	byHand  map[string]node.Program // by node
}

// TestChains attaches three objects to one interface. Their programs run in the order of
// priority, no matter in which order the objects were created or changed, as long as each
// program proceeds on the verdict of the previous one. A program that was attached
// manually among them runs in its place, and stays after they are removed.
func TestChains(t *testing.T) { //nolint:tparallel // other tests restart the components that this test needs
	for name, h := range chainHooks() {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			requireType(t, h.program)
			iface := "e2e" + strings.ToLower(strings.ReplaceAll(name, " ", ""))
			c := &chain{chainHook: h, name: iface, objects: map[string]v1alpha1.UserObject{}, byHand: map[string]node.Program{}}
			c.test(t)
		})
	}
}

func (c *chain) test(t *testing.T) {
	t.Helper()
	steps := []step{
		{"all run", func(ctx context.Context, s *testing.T) {
			addInterface(ctx, t, c.name)
			c.attachByHand(ctx, t, 15)
			// The last one is created first.
			for _, made := range []struct {
				name     string
				priority int32
			}{{"third", 30}, {"second", 20}, {"first", 10}} {
				o := c.object(named(c.name+"-"+made.name), on(c.name))
				c.set(o, chained{priority: made.priority, verdict: c.on})
				c.objects[made.name] = o
				create(ctx, t, o)
				awaitSuccess(ctx, s, o)
			}
			c.checkRuns(ctx, s, "first", "second", "third")
		}},
		{"a verdict ends the chain", func(ctx context.Context, s *testing.T) {
			c.change(ctx, s, "second", chained{priority: 20, verdict: c.end})
			c.checkRuns(ctx, s, "first", "second")
		}},
	}
	if c.dispatched {
		steps = append(steps, step{"but not for who proceeds on it", func(ctx context.Context, s *testing.T) {
			c.change(ctx, s, "second", chained{priority: 20, verdict: c.end, proceedsOnEnd: true})
			c.checkRuns(ctx, s, "first", "second", "third")
			c.change(ctx, s, "second", chained{priority: 20, verdict: c.end})
		}})
	}
	steps = append(steps,
		step{"another priority", func(ctx context.Context, s *testing.T) {
			c.change(ctx, s, "third", chained{priority: 5, verdict: c.on})
			c.checkRuns(ctx, s, "first", "second", "third")
		}},
		step{"what was attached by hand stays", func(ctx context.Context, s *testing.T) {
			if c.restarts {
				killAll(ctx, s, node.Agent)
			}
			for _, o := range c.objects {
				removeProgram(ctx, s, o)
			}
			clear(c.objects)
			c.checkRuns(ctx, s)
			for name, p := range c.byHand {
				programs, err := ask[[]node.Program](ctx, name, "programs")
				if err != nil {
					s.Fatal(err)
				}
				if !slices.ContainsFunc(programs, func(o node.Program) bool { return o.ID == p.ID && slices.Equal(o.Links, p.Links) }) {
					s.Errorf("program %+v isn't as it was attached by hand: the daemon has %+v", p, programs)
				}
			}
		}},
	)
	feature(t, steps...)
}

// change changes an object's program, and waits until the change is applied.
func (c *chain) change(ctx context.Context, t *testing.T, name string, program chained) {
	t.Helper()
	o := c.objects[name]
	modify(ctx, t, o, func(o v1alpha1.UserObject) { c.set(o, program) })
	awaitSuccess(ctx, t, o)
}

// attachByHand attaches a program on every node until the test ends.
func (c *chain) attachByHand(ctx context.Context, t *testing.T, priority int32) {
	t.Helper()
	o := c.object(metav1.ObjectMeta{}, v1alpha1.InterfaceSelector{})
	request, err := json.Marshal(node.ByHand{
		Type: c.program, Image: o.GetAppCommon().ByteCode.Image.Url, Function: "verdict",
		Globals:   chained{verdict: c.on}.globals(),
		Interface: c.name, Direction: c.direction, Priority: priority, ProceedOn: c.proceedOn,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range under.nodes() {
		program, err := ask[node.Program](ctx, name, "by-hand", string(request))
		if err != nil {
			t.Fatal(err)
		}
		c.byHand[name] = program
		t.Cleanup(func() {
			if _, err := ask[any](context.WithoutCancel(ctx), name, "unload", fmt.Sprint(program.ID)); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkRuns sends packets, and fails the test unless exactly the programs of these
// objects see them. The manually attached program always does.
func (c *chain) checkRuns(ctx context.Context, t *testing.T, running ...string) {
	t.Helper()
	before := c.packets(ctx, t)
	var after map[string]uint64
	await(ctx, t, fmt.Sprintf("packets are seen by %v and by hand", running), func(ctx context.Context) (bool, string) {
		for _, name := range under.nodes() {
			if _, err := ask[any](ctx, name, "frame", c.from(c.name)); err != nil {
				return false, err.Error()
			}
		}
		after = c.packets(ctx, t)
		for key := range before {
			object, _, _ := strings.Cut(key, " ")
			if (object == "hand" || slices.Contains(running, object)) && after[key] == before[key] {
				return false, fmt.Sprintf("%v, then %v", before, after)
			}
		}
		return true, ""
	})
	for key := range before {
		object, _, _ := strings.Cut(key, " ")
		if object != "hand" && !slices.Contains(running, object) && after[key] != before[key] {
			t.Errorf("the program of %s saw %d packets, want none", key, after[key]-before[key])
		}
	}
}

// packets returns the counts of all programs in the chain, by object and node.
func (c *chain) packets(ctx context.Context, t *testing.T) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	count := func(key, nodeName string, program uint32) {
		count, err := ask[counters.Count](ctx, nodeName, "count", fmt.Sprint(program), verdictMap)
		if err != nil {
			t.Fatal(err)
		}
		counts[key+" on "+nodeName] = count.Packets
	}
	for name, program := range c.byHand {
		count("hand", name, program.ID)
	}
	for key, o := range c.objects {
		programs, err := programsOf(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(programs) != len(under.nodes()) {
			t.Fatalf("%s has %d programs, want one on each of %d nodes", o.GetName(), len(programs), len(under.nodes()))
		}
		for _, p := range programs {
			count(key, p.GetStatus().Node, p.GetStatus().ProgramID)
		}
	}
	return counts
}

// TestFullDispatcher declares one program more than fits on an interface. Its object
// contains the daemon's error, and it is attached as soon as there is space.
func TestFullDispatcher(t *testing.T) { //nolint:tparallel // for the same reason
	for _, name := range []string{"XDP", "TC ingress"} {
		h := chainHooks()[name]
		iface := "e2efull" + strings.ToLower(h.program)
		t.Run(h.program, func(t *testing.T) {
			t.Parallel()
			requireType(t, h.program)
			var programs []v1alpha1.UserObject
			for i := range int32(dispatcherSize + 1) {
				o := h.object(named(fmt.Sprintf("%s-%d", iface, i)), on(iface))
				h.set(o, chained{priority: i, verdict: h.on})
				programs = append(programs, o)
			}
			first, eleventh := programs[0], programs[dispatcherSize]
			feature(t,
				step{"ten are attached", func(ctx context.Context, s *testing.T) {
					addInterface(ctx, t, iface)
					for _, p := range programs[:dispatcherSize] {
						create(ctx, t, p)
					}
					for _, p := range programs[:dispatcherSize] {
						awaitSuccess(ctx, s, p)
					}
				}},
				step{"the eleventh says that there is no room", func(ctx context.Context, s *testing.T) {
					create(ctx, t, eleventh)
					awaitFailure(ctx, s, eleventh, iface, "No room to attach program")
				}},
				step{"it is attached when one leaves", func(ctx context.Context, s *testing.T) {
					removeProgram(ctx, s, first)
					awaitSuccess(ctx, s, eleventh)
				}},
			)
		})
	}
}
