// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// The test's own binary is also the process that loads programs with cilium/ebpf, attaches, and
// holds them. It does what the variable names, and ends when its standard input is closed.
const holdVariable = "INSPECTOR_TEST_HOLD"

func TestMain(m *testing.M) {
	if what := os.Getenv(holdVariable); what != "" {
		if err := holdUntilEnd(what); err != nil {
			fmt.Fprintln(os.Stdout, "error:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(seenVariable) != "" {
		if err := printSeen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	envtest.Main(m)
}

// held contains the ids of the programs, and of a map that contains them.
type held struct {
	Programs []uint32
	Map      uint32
}

func holdUntilEnd(what string) error {
	do, ok := holds[what]
	if !ok {
		return fmt.Errorf("nothing is called %q", what)
	}
	h := &hold{}
	if err := do(h); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(h.held); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(h)
	return nil
}

// hold prevents what is open from being closed.
type hold struct {
	held
	open []any
}

func (h *hold) keep(what any) { h.open = append(h.open, what) }

// program loads a program that returns a number.
func (h *hold) program(spec ebpf.ProgramSpec, returns int32) (*ebpf.Program, error) {
	if spec.Instructions == nil {
		spec.Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, returns), asm.Return()}
	}
	spec.License = "GPL"
	p, err := ebpf.NewProgram(&spec)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	id, _ := info.ID()
	h.Programs = append(h.Programs, uint32(id))
	h.keep(p)
	return p, nil
}

// Where programs are attached in the network namespace of the test.
const (
	near, far = "near", "far"
	pinned    = "/sys/fs/bpf/inspector-test"
)

// errRefused means that this kernel doesn't support it, so the test is skipped.
var errRefused = errors.New("the kernel refuses it")

func refused(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, link.ErrNotSupported) || errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// linked keeps a link.
func (h *hold) linked(l link.Link, err error) error {
	if err != nil {
		return refused(err)
	}
	h.keep(l)
	return nil
}

func index(name string) (int, error) {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	return at.Index, nil
}

var holds = map[string]func(*hold) error{
	"socket filter": func(h *hold) error {
		_, err := h.program(ebpf.ProgramSpec{Name: "in_no_hook", Type: ebpf.SocketFilter}, 0)
		return err
	},
	"hostile": func(h *hold) error {
		name := append([]byte("\x1b[31m\xff\u202e\\"), 0)
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
			return err
		}
		// The name of the process is the name of its first thread.
		if err := os.WriteFile("/proc/self/comm", name[:len(name)-1], 0); err != nil {
			return err
		}
		_, err := h.program(ebpf.ProgramSpec{Name: "hostile", Type: ebpf.SocketFilter}, 0)
		return err
	},
	"tracepoint": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "on_tracepoint", Type: ebpf.TracePoint}, 0)
		if err != nil {
			return err
		}
		l, err := link.Tracepoint("syscalls", "sys_enter_kill", p, nil)
		return h.linked(l, err)
	},
	"perf event": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "on_perf_event", Type: ebpf.TracePoint}, 0)
		if err != nil {
			return err
		}
		text, err := os.ReadFile("/sys/kernel/tracing/events/syscalls/sys_enter_kill/id")
		if err != nil {
			return err
		}
		var id uint64
		if _, err := fmt.Sscan(string(text), &id); err != nil {
			return err
		}
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample: 1, Wakeup: 1}, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return refused(err)
		}
		return refused(unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.FD()))
	},
	"raw tracepoint": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "on_raw_tracepoint", Type: ebpf.RawTracepoint}, 0)
		if err != nil {
			return err
		}
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: p})
		return h.linked(l, err)
	},
	"tcx": func(h *hold) error {
		at, err := index(near)
		if err != nil {
			return err
		}
		for range 2 {
			p, err := h.program(ebpf.ProgramSpec{Name: "in_chain", Type: ebpf.SchedCLS}, -1)
			if err != nil {
				return err
			}
			l, err := link.AttachTCX(link.TCXOptions{Interface: at, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
			if err := h.linked(l, err); err != nil {
				return err
			}
		}
		return nil
	},
	"xdp link": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "xdp_linked", Type: ebpf.XDP}, 2)
		if err != nil {
			return err
		}
		at, err := index(near)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Interface: at, Program: p, Flags: link.XDPGenericMode})
		return h.linked(l, err)
	},
	"xdp native": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "xdp_native", Type: ebpf.XDP}, 2)
		if err != nil {
			return err
		}
		at, err := netlink.LinkByName(near)
		if err != nil {
			return err
		}
		return refused(netlink.LinkSetXdpFdWithFlags(at, p.FD(), unix.XDP_FLAGS_DRV_MODE))
	},
	"xdp on lo": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "xdp_on_lo", Type: ebpf.XDP}, 2)
		if err != nil {
			return err
		}
		at, err := index("lo")
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Interface: at, Program: p, Flags: link.XDPGenericMode})
		return h.linked(l, err)
	},
	"cgroup link": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "in_cgroup", Type: ebpf.CGroupSKB, AttachType: ebpf.AttachCGroupInetEgress}, 1)
		if err != nil {
			return err
		}
		l, err := link.AttachCgroup(link.CgroupOptions{Path: os.Getenv(cgroupVariable), Attach: ebpf.AttachCGroupInetEgress, Program: p})
		return h.linked(l, err)
	},
	"cgroup": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "in_cgroup_alone", Type: ebpf.CGroupSKB, AttachType: ebpf.AttachCGroupInetIngress}, 1)
		if err != nil {
			return err
		}
		dir, err := os.Open(os.Getenv(cgroupVariable))
		if err != nil {
			return err
		}
		return refused(link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(dir.Fd()), Program: p, Attach: ebpf.AttachCGroupInetIngress, Flags: unix.BPF_F_ALLOW_MULTI}))
	},
	"sk_lookup": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "looks_up", Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup}, 1)
		if err != nil {
			return err
		}
		own, err := os.Open("/proc/self/ns/net")
		if err != nil {
			return err
		}
		l, err := link.AttachNetNs(int(own.Fd()), p)
		return h.linked(l, err)
	},
	"kprobe": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "on_kprobe", Type: ebpf.Kprobe}, 0)
		if err != nil {
			return err
		}
		l, err := link.Kprobe("do_unlinkat", p, nil)
		return h.linked(l, err)
	},
	"fentry": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "on_fentry", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "do_unlinkat"}, 0)
		if err != nil {
			return refused(err)
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		return h.linked(l, err)
	},
	"in map": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "called_from_map", Type: ebpf.SocketFilter}, 0)
		if err != nil {
			return err
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "calls", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 4})
		if err != nil {
			return err
		}
		h.keep(m)
		if err := m.Put(uint32(2), p); err != nil {
			return err
		}
		info, err := m.Info()
		if err != nil {
			return err
		}
		id, _ := info.ID()
		h.Map = uint32(id)
		return p.Close() // only the map keeps it
	},
	"pin": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "pinned_program", Type: ebpf.SocketFilter}, 0)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(pinned+"/below", 0o700); err != nil {
			return err
		}
		return p.Pin(pinned + "/below/program")
	},
	"pin for xdp": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "xdp_legacy", Type: ebpf.XDP}, 2)
		if err != nil {
			return err
		}
		return p.Pin(pinned + "-xdp")
	},
	"pin for tc": func(h *hold) error {
		p, err := h.program(ebpf.ProgramSpec{Name: "tc_legacy", Type: ebpf.SchedCLS}, -1)
		if err != nil {
			return err
		}
		return p.Pin(pinned + "-tc")
	},
	"long name": func(h *hold) error {
		const name = "a_function_with_a_name_that_the_kernel_cuts"
		function := &btf.Func{Name: name, Type: &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: []btf.FuncParam{{Name: "ctx", Type: &btf.Pointer{Target: &btf.Void{}}}}}, Linkage: btf.GlobalFunc}
		first := btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, 0), function)
		first = first.WithSymbol(name)
		_, err := h.program(ebpf.ProgramSpec{Name: name[:15], Type: ebpf.SocketFilter, Instructions: asm.Instructions{first, asm.Return()}}, 0)
		return err
	},
	"full tracepoint": func(h *hold) error {
		for i := range tracepointPlaces {
			p, err := h.program(ebpf.ProgramSpec{Name: "takes_a_place", Type: ebpf.TracePoint}, 0)
			if err != nil {
				return err
			}
			l, err := link.Tracepoint("syscalls", fullTracepoint, p, nil)
			if i > 0 && err != nil && strings.Contains(err.Error(), unix.E2BIG.Error()) {
				return nil // other software of this machine has the other places
			}
			if err := h.linked(l, err); err != nil {
				return err
			}
		}
		return nil
	},
	"many": func(h *hold) error {
		for range many {
			p, err := h.program(ebpf.ProgramSpec{Name: "one_of_many", Type: ebpf.RawTracepoint}, 0)
			if err != nil {
				return err
			}
			l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "mark_victim", Program: p})
			if err := h.linked(l, err); err != nil {
				return err
			}
		}
		return nil
	},
}

// fullTracepoint is a tracepoint that no other test uses, and tracepointPlaces is the number of
// programs that it accepts. Other software of this machine can use it, too.
const (
	fullTracepoint   = "sys_enter_swapon"
	tracepointPlaces = 64
)

// many is the number of programs on the measured node. They are attached where no events occur.
const many = 200

// holder is such a process.
type holder struct {
	held
	t       testing.TB
	command *exec.Cmd
	stdin   io.Closer
}

// prerequisiteOf returns what a kernel lacks that doesn't support what is named.
func prerequisiteOf(what string) prerequisite.Name {
	switch {
	case strings.Contains(what, "xdp"):
		return prerequisite.XDP
	case what == "pin for tc":
		return prerequisite.TC
	case strings.HasPrefix(what, "cgroup"):
		return prerequisite.CgroupV2
	case strings.HasSuffix(what, "tracepoint") && what != "raw tracepoint", what == "perf event":
		return prerequisite.Tracepoint
	}
	if name, err := prerequisite.OfType(what); err == nil {
		return name
	}
	return prerequisite.BPF
}

// start makes another process do what is named, in the place, until end is called or the test
// ends. It skips the test if the kernel doesn't support it.
func start(tb testing.TB, place *daemontest.Place, what string) *holder {
	tb.Helper()
	h, refusal := try(tb, place, what)
	if refusal != "" {
		prerequisite.Missing(tb, what+": "+refusal, prerequisiteOf(what))
	}
	return h
}

// try does the same, and returns the reason if the kernel doesn't support it.
func try(tb testing.TB, place *daemontest.Place, what string) (h *holder, refusal string) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	h = &holder{t: tb, command: place.Command(tb.Context(), self)}
	h.command.Env = append(os.Environ(), holdVariable+"="+what)
	h.command.Stderr = os.Stderr
	stdin, err := h.command.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	h.stdin = stdin
	stdout, err := h.command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	must.Succeed(tb, h.command.Start())
	tb.Cleanup(h.end)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if message, failed := strings.CutPrefix(line, "error: "); failed {
		if strings.HasPrefix(message, errRefused.Error()) || strings.HasPrefix(message, "load: ") && strings.Contains(message, "operation not permitted") {
			return nil, message
		}
		tb.Fatalf("%s: %s", what, message)
	}
	if err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
	if err := json.Unmarshal([]byte(line), &h.held); err != nil {
		tb.Fatalf("%s: %v in %q", what, err, line)
	}
	return h, ""
}

// end ends the process, and waits for it.
func (h *holder) end() {
	h.t.Helper()
	if h.command.ProcessState != nil {
		return
	}
	_ = h.stdin.Close() // it can have ended already
	killed := time.AfterFunc(10*time.Second, func() { _ = h.command.Process.Kill() })
	defer killed.Stop()
	_ = h.command.Wait() // the test checks what it did, not how it ended
}

// run runs ip(8) or another command in the place.
func run(tb testing.TB, place *daemontest.Place, name string, args ...string) ([]byte, error) {
	tb.Helper()
	out, err := place.Command(tb.Context(), name, args...).CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return out, nil
}
