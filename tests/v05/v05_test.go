// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package v05 tests what happens to programs that a bpfman daemon of v0.5 left, with an imitation of what it
// leaves, and, if it is available, with the daemon itself.
package v05

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/agent/v05"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
)

const goneWithin = 10 * time.Second

// TestSetAsideKeepsWhatIsAttached pins a program, its map, and its TCX link like v0.5.6. After they are set
// aside, the program still counts. After they are removed, the program is unloaded, but a map that is also
// pinned elsewhere isn't.
func TestSetAsideKeepsWhatIsAttached(t *testing.T) {
	prerequisite.NeedsRoot(t, "mounting needs CAP_SYS_ADMIN")
	dir := t.TempDir()
	daemontest.OnOwnThread(func() { imitate(t, dir) })
}

func imitate(t *testing.T, dir string) {
	t.Helper()
	bpffs, volume := filepath.Join(dir, "fs"), filepath.Join(dir, "volume")
	if err := isolate(bpffs, volume); err != nil {
		t.Error(err)
		return
	}
	id, err := leave(bpffs)
	if err != nil {
		t.Error(err)
		return
	}
	counts, err := ebpf.LoadPinnedMap(filepath.Join(bpffs, "maps", id, "counts"), nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer counts.Close()
	ofPod, err := counts.Clone()
	if err != nil {
		t.Error(err)
		return
	}
	defer ofPod.Close()
	if err := ofPod.Pin(filepath.Join(volume, "counts")); err != nil {
		t.Error(err)
		return
	}

	counting(t, counts, send, true)
	moved, err := v05.SetAside(bpffs)
	if err != nil || len(moved) != 3 {
		t.Errorf("set aside %q, %v", moved, err)
	}
	if ids, err := v05.Programs(bpffs); err != nil || len(ids) != 1 || ids[0] != id {
		t.Errorf("programs %q, %v", ids, err)
	}
	counting(t, counts, send, true)
	if err := v05.Remove(bpffs); err != nil {
		t.Error(err)
	}
	if err := awaitGone(t.Context(), id); err != nil {
		t.Error(err)
	}
	counting(t, counts, send, false)
	if _, err := ebpf.LoadPinnedMap(filepath.Join(volume, "counts"), nil); err != nil {
		t.Errorf("a pod's pin of the map: %v", err)
	}
}

// TestFiltersGoAfterTheirPrograms attaches two TC dispatchers to lo: one like v0.5.6, and another like v0.6
// after it. Only v0.5's is removed, and not before its programs.
func TestFiltersGoAfterTheirPrograms(t *testing.T) {
	prerequisite.NeedsRoot(t, "mounting needs CAP_SYS_ADMIN")
	dir := t.TempDir()
	daemontest.OnOwnThread(func() { filters(t, filepath.Join(dir, "fs")) })
}

func filters(t *testing.T, bpffs string) {
	t.Helper()
	if err := isolate(bpffs); err != nil {
		t.Error(err)
		return
	}
	network, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Error(err)
		return
	}
	network = strings.TrimSuffix(strings.TrimPrefix(network, "net:["), "]")
	if err := os.MkdirAll(filepath.Join(bpffs, "tc-ingress", "dispatcher_"+network+"_1_1"), 0o750); err != nil {
		t.Error(err)
		return
	}
	lo := netlink.QdiscAttrs{LinkIndex: 1, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: lo, QdiscType: "clsact"}); err != nil {
		t.Error(err)
		return
	}
	old, err := hang("tc_dispatcher")
	if err != nil {
		t.Error(err)
		return
	}
	expect := func(what string, want ...int) {
		t.Helper()
		if got, err := hanging(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: programs %v, %v, want %v", what, got, err, want)
		}
	}

	expect("before", old)
	if moved, err := v05.SetAside(bpffs); err != nil || len(moved) != 1 {
		t.Errorf("set aside %q, %v", moved, err)
	}
	later, err := hang("tc_dispatcher")
	if err != nil {
		t.Error(err)
		return
	}
	another, err := hang("another")
	if err != nil {
		t.Error(err)
		return
	}
	if removed, err := v05.RemoveFilters(bpffs); err != nil || removed != 0 {
		t.Errorf("removed %d before the programs, %v", removed, err)
	}
	expect("with programs", old, later, another)
	if err := v05.Remove(bpffs); err != nil {
		t.Error(err)
	}
	for _, want := range []int{1, 0} {
		if removed, err := v05.RemoveFilters(bpffs); err != nil || removed != want {
			t.Errorf("removed %d, %v, want %d", removed, err, want)
		}
		expect("without programs", later, another)
	}
	if left, err := filepath.Glob(filepath.Join(bpffs, "v05*")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

// hang attaches a filter like the daemon attaches its dispatchers, and returns its program's id.
func hang(name string) (int, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0, fmt.Errorf("load dispatcher: %w", err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for the dispatcher: %w", err)
	}
	id, _ := info.ID()
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: 1, Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 50},
		Fd:          program.FD(), Name: name, DirectAction: true,
	})
	if err != nil {
		return 0, fmt.Errorf("attach dispatcher: %w", err)
	}
	return int(id), nil
}

// hanging returns the programs of the filters at lo, sorted by id.
func hanging() ([]int, error) {
	lo, err := netlink.LinkByIndex(1)
	if err != nil {
		return nil, fmt.Errorf("find lo: %w", err)
	}
	all, err := netlink.FilterList(lo, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	var ids []int
	for _, f := range all {
		if bpf, ok := f.(*netlink.BpfFilter); ok {
			ids = append(ids, bpf.Id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// isolate creates a network namespace for the thread with lo up, and mounts two bpffs that no other process
// sees.
func isolate(dirs ...string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o750); err != nil {
			return fmt.Errorf("make a place for a bpffs: %w", err)
		}
		if err := unix.Mount("none", dir, "bpf", 0, ""); err != nil {
			return fmt.Errorf("mount bpffs: %w", err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

// leave loads a program that counts packets, attaches it to lo, and pins it like the daemon of v0.5.6 pins a
// TcxProgram. Only the pins stay.
func leave(bpffs string) (string, error) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return "", fmt.Errorf("make map: %w", err)
	}
	defer counts.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), // continue with the next program
			asm.Return(),
		},
	})
	if err != nil {
		return "", fmt.Errorf("load program: %w", err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return "", fmt.Errorf("ask for the program: %w", err)
	}
	number, _ := info.ID()
	id := strconv.FormatUint(uint64(number), 10)

	attached, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: program, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return "", fmt.Errorf("attach: %w", err)
	}
	defer attached.Close()
	for _, dir := range []string{"xdp", "tc-ingress", "tc-egress", "maps/" + id} {
		if err := os.MkdirAll(filepath.Join(bpffs, dir), 0o750); err != nil {
			return "", fmt.Errorf("make directory: %w", err)
		}
	}
	for pin, object := range map[string]interface{ Pin(path string) error }{
		"prog_" + id: program, "prog_" + id + "_link": attached, "maps/" + id + "/counts": counts,
	} {
		if err := object.Pin(filepath.Join(bpffs, pin)); err != nil {
			return "", fmt.Errorf("pin: %w", err)
		}
	}
	return id, nil
}

// packets is the number of packets to send to find out whether they are counted.
const packets = 20

// counting checks whether a map counts what do causes.
func counting(t *testing.T, counts *ebpf.Map, do func() error, want bool) {
	t.Helper()
	before, err := total(counts)
	if err != nil {
		t.Error(err)
		return
	}
	if err := do(); err != nil {
		t.Error(err)
		return
	}
	after, err := total(counts)
	if err != nil || (after >= before+packets) != want || !want && after != before {
		t.Errorf("counted %d, then %d, %v: want counting %v", before, after, err, want)
	}
}

// send sends packets over lo. They have arrived when the write returns.
func send() error {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", "127.0.0.1:9")
	if err != nil {
		return fmt.Errorf("send packets: %w", err)
	}
	for range packets {
		_, _ = conn.Write([]byte("x")) // refused, because nothing listens
	}
	if err := conn.Close(); err != nil {
		return fmt.Errorf("send packets: %w", err)
	}
	return nil
}

// traffic is a value of the maps that count packets.
type traffic struct{ Packets, Bytes uint64 }

// total returns a map's count, for all CPUs.
func total(counts *ebpf.Map) (uint64, error) {
	var sum, one uint64
	var events []uint64
	var passed []traffic
	var err error
	switch {
	case counts.Type() == ebpf.Array:
		err = counts.Lookup(uint32(0), &one)
		sum = one
	case counts.ValueSize() == 8:
		err = counts.Lookup(uint32(0), &events)
	default:
		err = counts.Lookup(uint32(0), &passed)
	}
	if err != nil {
		return 0, fmt.Errorf("read counts: %w", err)
	}
	for _, n := range events {
		sum += n
	}
	for _, n := range passed {
		sum += n.Packets
	}
	return sum, nil
}

// awaitGone waits until the kernel has freed a program.
func awaitGone(ctx context.Context, id string) error {
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return fmt.Errorf("program's id: %w", err)
	}
	return eventually.Succeeds(ctx, goneWithin, 10*time.Millisecond, func(context.Context) error {
		program, err := ebpf.NewProgramFromID(ebpf.ProgramID(number))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("program %s: %w", id, err)
		}
		return errors.Join(fmt.Errorf("program %s is still there", id), program.Close())
	})
}
