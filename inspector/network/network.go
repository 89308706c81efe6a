// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package network finds the programs that are attached to network interfaces, in the
// network namespaces of the host and of pods.
package network

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/inspector/kernel"
)

// Namespace is a network namespace, with a file that refers to it.
type Namespace struct {
	Inode uint64
	Path  string
}

// Interface is a network interface.
type Interface struct {
	// NetNS is the inode number of its network namespace.
	NetNS uint64
	Index uint32
	Name  string
}

// Hook is a program at a hook of an interface, or of a network namespace.
type Hook struct {
	Interface
	// Type is the type, as in BpfNodeAttachPoint.
	Type    string
	Program uint32
	// Link is the id of the link. It is 0 if there is none.
	Link uint32
	// Mode is the mode of an XDP program: native, generic, or offloaded.
	Mode string
	// Position starts at 1. It is 0 if there is no order.
	Position int32
	// Priority is the priority of a TC filter.
	Priority int32
}

// Wanted selects the hooks to read: those for which there are programs.
type Wanted struct {
	XDP, TC, Netkit, Dissector, Lookup bool
}

// ErrGone is in the error chain if a namespace's file doesn't lead to it anymore: its process
// ended, and another one can have its id, or its mount was removed. The namespace itself can
// still exist.
var ErrGone = errors.New("the file doesn't lead to the network namespace anymore")

// Found is what was read.
type Found struct {
	Hooks []Hook
	// Unread contains the errors of the namespaces that weren't read completely, by inode
	// number. Hooks can lack some of theirs.
	Unread map[uint64]error
}

// Hooks reads the hooks in the namespaces. It continues after errors.
func Hooks(namespaces []Namespace, wanted Wanted) Found {
	found := Found{Unread: map[uint64]error{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer borrowThread()()
		for _, namespace := range namespaces {
			in, err := read(namespace, wanted)
			if err != nil {
				found.Unread[namespace.Inode] = fmt.Errorf("network namespace %d: %w", namespace.Inode, err)
			}
			found.Hooks = append(found.Hooks, in.hooks...)
		}
	}()
	<-done
	return found
}

// borrowThread lets the goroutine's thread enter other network namespaces, until it returns to its own
// one by calling the result. The main thread never exits, and would otherwise keep a pod's
// namespace. Another thread that can't return stays locked, and exits with its goroutine.
func borrowThread() (giveBack func()) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return func() {}
	}
	return func() {
		defer own.Close()
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}
}

// read reads one namespace. If a change interrupts a list, which can then lack entries
// that didn't change, read repeats it.
func read(namespace Namespace, wanted Wanted) (found look, err error) {
	for range 10 {
		found = look{netns: namespace.Inode, wanted: wanted}
		if err = found.enter(namespace.Path); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}

// look reads one namespace, which is the current namespace of the thread.
type look struct {
	netns      uint64
	wanted     Wanted
	interfaces []Interface
	hooks      []Hook
}

func (l *look) enter(path string) error {
	file, err := open(path, l.netns)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter: %w", err)
	}
	if err := l.links(); err != nil {
		return err
	}
	var failures []error
	if l.wanted.TC {
		failures = append(failures, l.filters(), l.chains(ebpf.AttachTCXIngress, ebpf.AttachTCXEgress))
	}
	if l.wanted.Netkit {
		failures = append(failures, l.chains(ebpf.AttachNetkitPrimary, ebpf.AttachNetkitPeer))
	}
	if l.wanted.Dissector {
		failures = append(failures, l.ofNamespace(int(file.Fd()), ebpf.AttachFlowDissector))
	}
	if l.wanted.Lookup {
		failures = append(failures, l.ofNamespace(int(file.Fd()), ebpf.AttachSkLookup))
	}
	return errors.Join(failures...)
}

// open opens the file of a namespace.
func open(path string, inode uint64) (*os.File, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("open: %w: %w", ErrGone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		file.Close()
		return nil, fmt.Errorf("stat: %w", err)
	}
	if stat.Ino != inode {
		file.Close()
		return nil, fmt.Errorf("open: %w: it leads to %d", ErrGone, stat.Ino)
	}
	return file, nil
}

// skipStats is RTEXT_FILTER_SKIP_STATS of the kernel (linux/rtnetlink.h): the counters are most of what it says about an
// interface.
const skipStats = 1 << 3

// links reads the interfaces with their XDP programs. The list of package netlink has only
// one program for each interface, and much other data. links keeps none of the kernel's
// messages: a pod can have any number of interfaces.
func (l *look) links() error {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	var failed error
	err := request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, func(answer []byte) bool {
		failed = l.link(answer)
		return failed == nil
	})
	if err := cmp.Or(failed, err); err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	return nil
}

// link reads one interface.
func (l *look) link(answer []byte) error {
	if len(answer) < unix.SizeofIfInfomsg {
		return nil
	}
	attributes, err := nl.ParseRouteAttr(answer[unix.SizeofIfInfomsg:])
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	at := Interface{NetNS: l.netns, Index: uint32(nl.DeserializeIfInfomsg(answer).Index)} //nolint:gosec // it isn't negative
	var xdp []byte
	for _, attribute := range attributes {
		switch attribute.Attr.Type &^ unix.NLA_F_NESTED {
		case unix.IFLA_IFNAME:
			at.Name = unix.ByteSliceToString(attribute.Value)
		case unix.IFLA_XDP:
			xdp = attribute.Value
		}
	}
	l.interfaces = append(l.interfaces, at)
	if l.wanted.XDP && len(xdp) > 0 {
		if err := l.xdp(at, xdp); err != nil {
			return fmt.Errorf("read the XDP programs of %s: %w", at.Name, err)
		}
	}
	return nil
}

// xdp reads the programs of an interface, with one for each mode.
func (l *look) xdp(at Interface, nested []byte) error {
	attributes, err := nl.ParseRouteAttr(nested)
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	for _, attribute := range attributes {
		mode := map[uint16]string{unix.IFLA_XDP_DRV_PROG_ID: "native", unix.IFLA_XDP_SKB_PROG_ID: "generic", unix.IFLA_XDP_HW_PROG_ID: "offloaded"}[attribute.Attr.Type]
		if mode != "" && len(attribute.Value) >= 4 {
			l.hooks = append(l.hooks, Hook{Interface: at, Type: kernel.XDP, Program: nl.NativeEndian().Uint32(attribute.Value), Mode: mode})
		}
	}
	return nil
}

// directions maps the parents of filters in clsact and ingress to types.
var directions = map[uint32]string{netlink.HANDLE_MIN_INGRESS: "tc/ingress", netlink.HANDLE_MIN_EGRESS: "tc/egress"}

// filters reads the TC filters of all queueing disciplines.
func (l *look) filters() error {
	disciplines, err := netlink.QdiscList(nil)
	if err != nil {
		return fmt.Errorf("list queueing disciplines: %w", err)
	}
	byIndex := map[int]Interface{}
	for _, at := range l.interfaces {
		byIndex[int(at.Index)] = at
	}
	var failures []error
	for _, discipline := range disciplines {
		at, ok := byIndex[discipline.Attrs().LinkIndex]
		if !ok {
			continue
		}
		parents := []uint32{discipline.Attrs().Handle}
		switch discipline.Type() {
		case "clsact":
			parents = []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}
		case "ingress":
			parents = []uint32{netlink.HANDLE_MIN_INGRESS}
		}
		for _, parent := range parents {
			if parent != 0 {
				failures = append(failures, l.filtersOf(at, parent))
			}
		}
	}
	return errors.Join(failures...)
}

// filtersOf reads the filters of a parent, in the order in which they run.
func (l *look) filtersOf(at Interface, parent uint32) error {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: int(at.Index), Name: at.Name}}
	filters, err := netlink.FilterList(link, parent)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil // the discipline has no filters, or was removed
	}
	if err != nil {
		return fmt.Errorf("list TC filters of %s: %w", at.Name, err)
	}
	direction := directions[parent]
	if direction == "" {
		direction = "tc/egress" // filters of a queue see outgoing packets
	}
	position := int32(0)
	for _, filter := range filters {
		program, ok := filter.(*netlink.BpfFilter)
		if !ok || program.Id <= 0 {
			continue
		}
		position++
		l.hooks = append(l.hooks, Hook{
			Interface: at, Type: direction, Program: uint32(program.Id), //nolint:gosec // it isn't negative
			Position: position, Priority: int32(program.Priority),
		})
	}
	return nil
}

// chains reads the programs at hooks of each interface, in the order in which they run. A
// kernel without such hooks has none.
func (l *look) chains(types ...ebpf.AttachType) error {
	for _, at := range l.interfaces {
		for _, attach := range types {
			result, err := link.QueryPrograms(link.QueryOptions{Target: int(at.Index), Attach: attach})
			if errors.Is(err, unix.EPERM) {
				return fmt.Errorf("query %s of %s: %w", attach, at.Name, err)
			}
			if err != nil {
				continue // the hook doesn't exist
			}
			l.append(at, attach, result)
		}
	}
	return nil
}

// ofNamespace reads the programs that are attached to the namespace itself.
func (l *look) ofNamespace(fd int, attach ebpf.AttachType) error {
	result, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: attach})
	if err != nil {
		return fmt.Errorf("query %s: %w", attach, err)
	}
	l.append(Interface{NetNS: l.netns}, attach, result)
	return nil
}

func (l *look) append(at Interface, attach ebpf.AttachType, result *link.QueryResult) {
	for i, attached := range result.Programs {
		hook := Hook{Interface: at, Type: kernel.AttachType(uint32(attach)), Program: uint32(attached.ID), Position: int32(i) + 1}
		if id, ok := attached.LinkID(); ok {
			hook.Link = uint32(id)
		}
		l.hooks = append(l.hooks, hook)
	}
}
