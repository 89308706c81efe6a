// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// far is the other end: packets that are sent there arrive at near.
var far = node.Peer(near)

const (
	// near is the interface to which programs are attached, one end of a cable.
	near = "chain"
	// dispatcherSize is the maximum number of programs in the daemon's chain on an
	// interface.
	dispatcherSize = 10

	pollInterval = 5 * time.Millisecond
)

// hook is a hook with chains, with two verdicts: one after which the chain continues, and
// one that ends it.
type hook struct {
	object  string
	kind    gobpfman.BpfmanProgramType
	attach  func(priority int32, proceedOn []int32) *gobpfman.AttachInfo
	from    string // the end at which packets for it are sent
	on, end int32
	// returned is what the daemon's dispatcher returns for an unused slot. It is 0 if the
	// kernel itself chains programs, which then can't choose verdicts to proceed on.
	returned int32
}

func hooks() map[string]hook {
	xdpAt := func(priority int32, proceedOn []int32) *gobpfman.AttachInfo {
		return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{
			Priority: priority, Iface: near, ProceedOn: proceedOn,
		}}}
	}
	tcAt := func(direction string) func(int32, []int32) *gobpfman.AttachInfo {
		return func(priority int32, proceedOn []int32) *gobpfman.AttachInfo {
			return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcAttachInfo{TcAttachInfo: &gobpfman.TCAttachInfo{
				Priority: priority, Iface: near, Direction: direction, ProceedOn: proceedOn,
			}}}
		}
	}
	tcxAt := func(direction string) func(int32, []int32) *gobpfman.AttachInfo {
		return func(priority int32, _ []int32) *gobpfman.AttachInfo {
			return &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{
				Priority: priority, Iface: near, Direction: direction,
			}}}
		}
	}
	const (
		xdpPass, xdpDrop, xdpReturn = 2, 1, 31
		tcPipe, tcOK, tcReturn      = 3, 0, 30
		tcxNext, tcxPass            = -1, 0
	)
	xdp, tc, tcx := gobpfman.BpfmanProgramType_XDP, gobpfman.BpfmanProgramType_TC, gobpfman.BpfmanProgramType_TCX
	return map[string]hook{
		"XDP":         {"xdp_verdict", xdp, xdpAt, far, xdpPass, xdpDrop, xdpReturn},
		"TC ingress":  {"tc_verdict", tc, tcAt("ingress"), far, tcPipe, tcOK, tcReturn},
		"TC egress":   {"tc_verdict", tc, tcAt("egress"), near, tcPipe, tcOK, tcReturn},
		"TCX ingress": {"tc_verdict", tcx, tcxAt("ingress"), far, tcxNext, tcxPass, 0},
		"TCX egress":  {"tc_verdict", tcx, tcxAt("egress"), near, tcxNext, tcxPass, 0},
	}
}

// link is a program in a chain. It counts packets, and returns its verdict.
type link struct {
	priority, verdict int32
	proceedOn         []int32
}

// TestChains attaches programs to one interface. They run in the order of priority, no
// matter in which order they were attached, as long as each verdict is among those on
// which the chain proceeds.
func TestChains(t *testing.T) {
	const asked = "proceeds on what it asks"
	f := setUp(t)
	for name, h := range hooks() {
		f.cable(t)
		on, end := []int32{h.on, h.returned}, []int32{h.end, h.returned}
		for chain, c := range map[string]struct {
			links []link
			// runs says which of the links see packets.
			runs []bool
		}{
			"all run":                  {[]link{{10, h.on, on}, {20, h.on, on}, {30, h.end, on}}, []bool{true, true, true}},
			"a verdict ends it":        {[]link{{10, h.on, on}, {20, h.end, on}, {30, h.on, on}}, []bool{true, true, false}},
			"priority, not attachment": {[]link{{30, h.on, on}, {20, h.on, on}, {10, h.end, on}}, []bool{false, false, true}},
			asked:                      {[]link{{10, h.end, end}, {20, h.on, end}, {30, h.on, on}}, []bool{true, true, false}},
		} {
			if h.returned == 0 && chain == asked {
				continue
			}
			t.Run(name+"/"+chain, func(t *testing.T) { f.checkChain(t, h, c.links, c.runs) })
		}
	}
}

func (f *fixture) checkChain(t *testing.T, h hook, links []link, runs []bool) {
	t.Helper()
	loaded := make([]*gobpfman.LoadResponseInfo, len(links))
	for i, l := range links {
		loaded[i] = f.loadVerdict(t, h, l.verdict)
		if _, err := f.attach(t.Context(), loaded[i], h.attach(l.priority, l.proceedOn)); err != nil {
			t.Fatalf("Attach with priority %d: %v", l.priority, err)
		}
	}
	before := f.packets(t, loaded)
	await(t.Context(), t, "each program that should run counts", func() error {
		f.sendFrame(t, h.from)
		after := f.packets(t, loaded)
		for i, want := range runs {
			if want && after[i] == before[i] {
				return fmt.Errorf("programs %+v counted %v, then %v", links, before, after)
			}
		}
		return nil
	})
	after := f.packets(t, loaded)
	for i, want := range runs {
		if !want && after[i] != before[i] {
			t.Errorf("program %d of %+v counted %d packets, want none", i, links, after[i]-before[i])
		}
	}
}

// TestEleventh attaches more programs than fit. The daemon returns an error, and accepts
// another program after one is detached.
func TestEleventh(t *testing.T) {
	f := setUp(t)
	for name, h := range hooks() {
		if h.returned == 0 {
			continue
		}
		f.cable(t)
		t.Run(name, func(t *testing.T) {
			on := []int32{h.on, h.returned}
			var first uint32
			for i := range int32(dispatcherSize) {
				id, err := f.attach(t.Context(), f.loadVerdict(t, h, h.on), h.attach(i, on))
				if err != nil {
					t.Fatalf("Attach program %d: %v", i+1, err)
				}
				if i == 0 {
					first = id
				}
			}
			eleventh := f.loadVerdict(t, h, h.on)
			_, err := f.attach(t.Context(), eleventh, h.attach(dispatcherSize, on))
			if text := status.Convert(err).Message(); !strings.Contains(text, "No room to attach program") && !strings.Contains(text, "no free dispatcher slots") {
				t.Fatalf("Attach of the eleventh: %v", err)
			}
			t.Logf("the daemon says of the eleventh: %v", status.Convert(err).Message())
			if _, err := f.Client.Detach(t.Context(), &gobpfman.DetachRequest{LinkId: first}); err != nil {
				t.Fatalf("Detach: %v", err)
			}
			if _, err := f.attach(t.Context(), eleventh, h.attach(dispatcherSize, on)); err != nil {
				t.Fatalf("Attach when there is room again: %v", err)
			}
			all := []*gobpfman.LoadResponseInfo{eleventh}
			before := f.packets(t, all)
			await(t.Context(), t, "the last of ten counts", func() error {
				f.sendFrame(t, h.from)
				if f.packets(t, all)[0] == before[0] {
					return errors.New("no packet")
				}
				return nil
			})
		})
	}
}

// TestNamespacesAreNamedByWhatLasts attaches two programs to an interface with the path
// of its network namespace, and detaches one. If the path of that program belonged to a
// process that has ended, the daemon considers the namespace deleted. Then the other
// program is detached too, although the daemon still lists its link. The agent's paths
// must therefore exist as long as the namespaces.
func TestNamespacesAreNamedByWhatLasts(t *testing.T) {
	f := setUp(t)
	h := hooks()["XDP"]
	on := []int32{h.on, h.returned}
	for name, ends := range map[string]bool{"a process that lasts": false, "a process that ends": true} {
		t.Run(name, func(t *testing.T) {
			f.cable(t)
			attachBy := func(process *exec.Cmd, priority int32) uint32 {
				info := h.attach(priority, on)
				info.GetXdpAttachInfo().Netns = new(fmt.Sprintf("/proc/%d/ns/net", process.Process.Pid))
				id, err := f.attach(t.Context(), f.loadVerdict(t, h, h.on), info)
				if err != nil {
					t.Fatalf("Attach by the path of a process: %v", err)
				}
				return id
			}
			attachBy(f.process(t), 10)
			process := f.process(t)
			id := attachBy(process, 20)
			if ends {
				endProcess(process)
			}
			if _, err := f.Client.Detach(t.Context(), &gobpfman.DetachRequest{LinkId: id}); err != nil {
				t.Fatalf("Detach: %v", err)
			}
			var there bool
			err := f.InNetwork(func() error {
				link, err := netlink.LinkByName(near)
				if err == nil {
					there = link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached
				}
				return err
			})
			if err != nil || there == ends {
				t.Errorf("the other program is attached: %v, %v", there, err)
			}
		})
	}
}

// process starts a process in the daemon's network. It ends with the test.
func (f *fixture) process(t *testing.T) *exec.Cmd {
	t.Helper()
	process := exec.CommandContext(t.Context(), "sleep", "infinity")
	must.Succeed(t, f.InNetwork(process.Start))
	t.Cleanup(func() { endProcess(process) })
	return process
}

func endProcess(process *exec.Cmd) {
	_ = process.Process.Kill() // fails if it has ended
	_ = process.Wait()         // the error says that it was killed
}

// loadVerdict loads the hook's program for the test. It skips the test if the kernel
// doesn't support the program.
func (f *fixture) loadVerdict(t *testing.T, h hook, verdict int32) *gobpfman.LoadResponseInfo {
	t.Helper()
	globals := map[string][]byte{"VERDICT": binary.NativeEndian.AppendUint32(nil, uint32(verdict))}
	loaded, err := f.load(t.Context(), adapted(t, h.object), globals, program{function: "verdict", kind: h.kind})
	if reason := kernelRefusal(err); reason != "" {
		lacksTypes(t, reason, h.kind)
	}
	if err != nil {
		t.Fatalf("Load %s: %v", h.object, err)
	}
	t.Cleanup(func() { f.unload(t, loaded.Programs[0].KernelInfo.Id) })
	return loaded.Programs[0]
}

func (f *fixture) attach(ctx context.Context, loaded *gobpfman.LoadResponseInfo, info *gobpfman.AttachInfo) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	attached, err := f.Client.Attach(ctx, &gobpfman.AttachRequest{Id: loaded.KernelInfo.Id, Attach: info})
	return attached.GetLinkId(), err
}

// packets returns the counts of the programs.
func (f *fixture) packets(t *testing.T, loaded []*gobpfman.LoadResponseInfo) []uint64 {
	t.Helper()
	counts := make([]uint64, len(loaded))
	for i, l := range loaded {
		counts[i] = f.count(t, l, "verdict_stats_map").Packets
	}
	return counts
}

// await waits until look returns nil.
func await(ctx context.Context, t *testing.T, what string, look func() error) {
	t.Helper()
	err := eventually.Succeeds(ctx, callTimeout, pollInterval, func(context.Context) error { return look() })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// cable creates the pair of interfaces in the daemon's network, and replaces an existing
// one.
func (f *fixture) cable(t *testing.T) {
	t.Helper()
	err := f.InNetwork(func() error {
		if err := node.RemoveInterface(near); err != nil {
			return err
		}
		return node.AddInterface(near)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sendFrame sends a frame from one end of the cable.
func (f *fixture) sendFrame(t *testing.T, from string) {
	t.Helper()
	must.Succeed(t, f.InNetwork(func() error { return node.SendFrame(from) }))
}
