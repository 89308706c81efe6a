// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Attachment describes where a program is attached. Its texts come from untrusted
// sources, and aren't escaped.
type Attachment struct {
	// Type is the type, as in BpfNodeAttachPoint.
	Type string
	// Interface is the index of an interface. The kernel doesn't say in which network
	// namespace it is.
	Interface uint32
	// NetNS is the inode number of a network namespace.
	NetNS uint64
	// Cgroup is the id of a cgroup, which is the inode number of its directory.
	Cgroup uint64
	// Target is any other attach point.
	Target string
	// TargetProgram is the program that is replaced or traced.
	TargetProgram uint32
	// Map is the struct_ops map whose operations the program implements.
	Map uint32
	// Priority is the priority among other programs, if it is known.
	Priority int32
}

// Link is a link in the kernel. Its program can be replaced, and the kernel doesn't
// notify about that.
type Link struct {
	ID, Program uint32
	Attachment
}

// Types of attachments without a name in the kernel's table of attach types.
const (
	XDP           = "xdp"
	tracepoint    = "tracepoint"
	rawTracepoint = "raw_tracepoint"
	kprobe        = "kprobe"
	kretprobe     = "kretprobe"
	uprobe        = "uprobe"
	uretprobe     = "uretprobe"
	perfEvent     = "perf_event"
	Freplace      = "freplace"
)

// AttachType returns the name that the API uses for the kernel's number of an attach
// type.
func AttachType(number uint32) string {
	name := nameOf(attachTypes[:], number)
	switch name {
	case "trace_fentry":
		return "fentry"
	case "trace_fexit":
		return "fexit"
	case "trace_fsession":
		return "fsession"
	case "modify_return":
		return "fmod_ret"
	case "lsm_mac":
		return "lsm"
	case "trace_iter":
		return "iter"
	case "trace_raw_tp":
		return rawTracepoint
	case "trace_kprobe_multi", "trace_kprobe_session", "trace_uprobe_multi", "trace_uprobe_session":
		return strings.TrimPrefix(name, "trace_")
	case "tcx_ingress", "tcx_egress", "netkit_primary", "netkit_peer":
		return strings.Replace(name, "_", "/", 1)
	}
	return name
}

// Links reads links. It caches the names of functions, because it takes long to find
// them.
type Links struct {
	functions map[function]string
}

// function identifies a function in the kernel or in a module, or, with ofProgram, in a
// program.
type function struct {
	ofProgram      bool
	object, typeID uint32
}

// Read reads a link. It returns as much of the attachment as it can read.
func (r *Links) Read(id uint32) (Link, error) {
	l, err := link.NewFromID(link.ID(id))
	if err != nil {
		return Link{}, fmt.Errorf("open link %d: %w", id, err)
	}
	defer l.Close()
	info, err := l.Info()
	if err == nil {
		if read, ok := r.decode(info); ok {
			return read, nil
		}
	}
	// cilium/ebpf doesn't support all types of links, nor all their fields. Use the
	// kernel's textual description for the others.
	held, ok := l.(interface{ FD() int })
	if !ok {
		return Link{}, fmt.Errorf("read link %d: %w", id, errors.Join(err, errors.New("it has no descriptor")))
	}
	return describeLink(id, held.FD())
}

// decode converts cilium/ebpf's description. It returns false if this lacks information.
func (r *Links) decode(info *link.Info) (Link, bool) {
	l := Link{ID: uint32(info.ID), Program: uint32(info.Program)}
	switch {
	case info.XDP() != nil:
		l.Attachment = Attachment{Type: XDP, Interface: info.XDP().Ifindex}
	case info.TCX() != nil:
		l.Attachment = Attachment{Type: AttachType(uint32(info.TCX().AttachType)), Interface: info.TCX().Ifindex}
	case info.Netkit() != nil:
		l.Attachment = Attachment{Type: AttachType(uint32(info.Netkit().AttachType)), Interface: info.Netkit().Ifindex}
	case info.Cgroup() != nil:
		l.Attachment = Attachment{Type: AttachType(uint32(info.Cgroup().AttachType)), Cgroup: info.Cgroup().CgroupId}
	case info.NetNs() != nil:
		l.Attachment = Attachment{Type: AttachType(uint32(info.NetNs().AttachType)), NetNS: uint64(info.NetNs().NetnsInode)}
	case info.RawTracepoint() != nil:
		l.Attachment = Attachment{Type: rawTracepoint, Target: info.RawTracepoint().Name}
	case info.Tracing() != nil:
		l.Attachment = r.decodeTracing(info.Tracing(), loadedFor(l.Program))
	case info.PerfEvent() != nil:
		l.Attachment = decodePerfEvent(info.PerfEvent())
	case info.Netfilter() != nil:
		l.Attachment = decodeNetfilter(info.Netfilter())
	case info.KprobeMulti() != nil:
		l.Attachment = Attachment{Type: "kprobe_multi", Target: count(info.KprobeMulti().Count, "function")}
	case info.UprobeMulti() != nil:
		multi := info.UprobeMulti()
		l.Attachment = Attachment{Type: "uprobe_multi", Target: multi.File + " (" + count(multi.Count, "offset") + ")"}
	default:
		return Link{}, false
	}
	return l, true
}

func count(n uint32, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatUint(uint64(n), 10) + " " + what + "s"
}

// decodeTracing decodes the target, which is a function of the kernel or of a program. The kernel uses the same number for its
// types and for a program, and both can exist. A program that traces another one wasn't loaded for types with this number, as
// far as the kernel says what it was loaded for.
func (r *Links) decodeTracing(info *link.TracingInfo, loadedFor function) Attachment {
	a := Attachment{Type: AttachType(uint32(info.AttachType))}
	object, typeID := info.TargetObjectId, uint32(info.TargetBtfId)
	if info.AttachType == 0 {
		a.Type = Freplace
	} else if loadedFor.typeID == 0 || loadedFor.object == object {
		name, err := r.name(function{false, object, typeID})
		if !errors.Is(err, errNotKernel) {
			a.Target = name // empty if it can't be read
			return a
		}
	}
	a.TargetProgram = object
	a.Target, _ = r.name(function{true, object, typeID}) // a program without BTF has no names
	return a
}

func (r *Links) name(f function) (string, error) {
	if name, ok := r.functions[f]; ok {
		return name, nil
	}
	read := kernelFunctionOf
	if f.ofProgram {
		read = programFunction
	}
	name, err := read(f.object, f.typeID)
	if err != nil {
		return "", err
	}
	if r.functions == nil || len(r.functions) >= maxFunctions {
		r.functions = map[function]string{}
	}
	r.functions[f] = name
	return name, nil
}

// maxFunctions limits the cache.
const maxFunctions = 4096

func decodePerfEvent(info *link.PerfEventInfo) Attachment {
	switch {
	case info.Tracepoint() != nil:
		return Attachment{Type: tracepoint, Target: info.Tracepoint().Tracepoint}
	case info.Kprobe() != nil:
		probe := info.Kprobe()
		a := Attachment{Type: kprobe, Target: kernelFunction(probe.Function, uint64(probe.Offset), probe.Address)}
		if info.Type == link.PerfEventKretprobe {
			a.Type = kretprobe
		}
		return a
	case info.Uprobe() != nil:
		a := Attachment{Type: uprobe, Target: atOffset(info.Uprobe().File, uint64(info.Uprobe().Offset))}
		if info.Type == link.PerfEventUretprobe {
			a.Type = uretprobe
		}
		return a
	case info.Event() != nil:
		return Attachment{Type: perfEvent, Target: fmt.Sprintf("type %d, config %d", info.Event().Type, info.Event().Config)}
	}
	return Attachment{Type: perfEvent}
}

// kernelFunction returns a function with its offset, or an address if the name isn't
// known.
func kernelFunction(name string, offset, address uint64) string {
	switch {
	case name == "" && address != 0:
		return fmt.Sprintf("%#x", address)
	case offset == 0:
		return name
	}
	return atOffset(name, offset)
}

func atOffset(name string, offset uint64) string { return fmt.Sprintf("%s+%#x", name, offset) }

func decodeNetfilter(info *link.NetfilterInfo) Attachment {
	families := map[uint32]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ipv4", unix.NFPROTO_IPV6: "ipv6", unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge"}
	hooks := []string{"prerouting", "input", "forward", "output", "postrouting"}
	family := uint32(info.ProtocolFamily)
	name, known := families[family]
	if !known {
		name = strconv.FormatUint(uint64(family), 10)
	}
	return Attachment{Type: "netfilter", Target: name + " " + nameOf(hooks, uint32(info.Hook)), Priority: info.Priority}
}
