// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package network finds the programs that are attached to network interfaces, in the
// network namespaces of the host and of pods.
package network

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
	// Host means that it is the host's. Pods can create any number of interfaces and filters in others.
	Host bool
	// Container is the container whose processes alone keep it, or empty. A container can create any number.
	Container string
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

// Hooks reads the hooks in the namespaces, as far as the limits allow. It continues after errors.
func Hooks(namespaces []Namespace, wanted Wanted) Found {
	found := Found{Unread: map[uint64]error{}}
	admitted, others := admit(namespaces)
	for _, namespace := range others {
		found.Unread[namespace.Inode] = ErrManyNamespaces
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer borrowThread()()
		left := maxOfPods
		for _, namespace := range admitted {
			limit := math.MaxInt
			if !namespace.Host {
				limit = max(minOfPod, min(maxOfPod, left))
			}
			in, entries, err := read(namespace, wanted, limit)
			if err != nil {
				found.Unread[namespace.Inode] = fmt.Errorf("network namespace %d: %w", namespace.Inode, err)
			}
			if !namespace.Host {
				left -= entries
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
// that didn't change, read repeats it, as long as all lists together have fewer entries than the limit. It returns their number.
func read(namespace Namespace, wanted Wanted, limit int) (found look, entries int, err error) {
	for range 10 {
		found = look{netns: namespace.Inode, wanted: wanted, limit: limit}
		err = found.enter(namespace.Path)
		entries += found.entries
		if !errors.Is(err, netlink.ErrDumpInterrupted) || entries >= limit {
			break
		}
	}
	return found, entries, err
}

// look reads one namespace, which is the current namespace of the thread.
type look struct {
	netns  uint64
	wanted Wanted
	// limit is the maximum number of entries of each list: of interfaces, of queueing disciplines, and of all filters. entries
	// is the number of all that were read, and filters that of filters.
	limit, entries, filters int
	interfaces              []Interface
	hooks                   []Hook
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
	crowded := l.links()
	if crowded != nil && !errors.Is(crowded, errCrowded) {
		return crowded
	}
	failures := []error{crowded}
	if l.wanted.TC {
		failures = append(failures, l.classifiers(), l.chains(ebpf.AttachTCXIngress, ebpf.AttachTCXEgress))
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
	count := 0
	err := l.list(&count, unix.RTM_GETLINK, unix.RTM_NEWLINK, l.link, nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	return nil
}

// list has the kernel list something, and calls entry with each message. count is how many entries of this kind were read.
func (l *look) list(count *int, request int, answer uint16, entry func([]byte) error, about ...nl.NetlinkRequestData) error {
	dump := nl.NewNetlinkRequest(request, unix.NLM_F_DUMP)
	for _, data := range about {
		dump.AddData(data)
	}
	var failed error
	err := dump.ExecuteIter(unix.NETLINK_ROUTE, answer, func(message []byte) bool {
		if *count >= l.limit {
			failed = errCrowded
			return false
		}
		*count++
		l.entries++
		failed = entry(message)
		return failed == nil
	})
	return cmp.Or(failed, err) //nolint:wrapcheck // the caller wraps it
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

// hooksOfParents maps the parents of filters in clsact and ingress to types. The filters of another queueing discipline are a
// chain of their own, which the kernel runs after those of its hooks.
var hooksOfParents = map[uint32]string{netlink.HANDLE_MIN_INGRESS: "tc/ingress", netlink.HANDLE_MIN_EGRESS: "tc/egress"}

// discipline is a queueing discipline of an interface.
type discipline struct {
	at     Interface
	handle uint32
	kind   string
}

// classifiers reads the TC filters of all queueing disciplines. Of the kernel's messages, it reads only what it needs: a pod can
// have filters of any kind.
func (l *look) classifiers() error {
	byIndex := map[uint32]Interface{}
	for _, at := range l.interfaces {
		byIndex[at.Index] = at
	}
	var disciplines []discipline
	count := 0
	failures := []error{nil}
	if err := l.list(&count, unix.RTM_GETQDISC, unix.RTM_NEWQDISC, func(message []byte) error {
		head, kind, _, err := parseTC(message)
		if at, ok := byIndex[uint32(head.Ifindex)]; ok { //nolint:gosec // it isn't negative
			disciplines = append(disciplines, discipline{at, head.Handle, kind})
		}
		return err
	}, &nl.TcMsg{Family: nl.FAMILY_ALL}); err != nil {
		failures[0] = fmt.Errorf("list queueing disciplines: %w", err)
	}
	for _, of := range disciplines {
		parents := []uint32{of.handle}
		switch of.kind {
		case "clsact":
			parents = []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}
		case "ingress":
			parents = []uint32{netlink.HANDLE_MIN_INGRESS}
		}
		for _, parent := range parents {
			if parent != 0 {
				failures = append(failures, l.filtersOf(of.at, parent))
			}
		}
		if l.filters >= l.limit {
			break
		}
	}
	return errors.Join(failures...)
}

// filtersOf reads the filters of a parent, in the order in which they run.
func (l *look) filtersOf(at Interface, parent uint32) error {
	hook := cmp.Or(hooksOfParents[parent], "tc/qdisc")
	position := int32(0)
	err := l.list(&l.filters, unix.RTM_GETTFILTER, unix.RTM_NEWTFILTER, func(message []byte) error {
		head, kind, options, err := parseTC(message)
		if err != nil || kind != "bpf" {
			return err
		}
		program, err := programOfFilter(options)
		if err != nil || program == 0 {
			return err
		}
		position++
		l.hooks = append(l.hooks, Hook{
			Interface: at, Type: hook, Program: program, Position: position, Priority: int32(head.Info >> 16),
		})
		return nil
	}, &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(at.Index), Parent: parent}) //nolint:gosec // the kernel's numbers fit
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil // the discipline has no filters, or was removed
	}
	if err != nil {
		return fmt.Errorf("list TC filters of %s: %w", at.Name, err)
	}
	return nil
}

// parseTC parses a message about a queueing discipline or a filter.
func parseTC(message []byte) (head nl.TcMsg, kind string, options []byte, err error) {
	if len(message) < nl.SizeofTcMsg {
		return head, "", nil, nil
	}
	attributes, err := nl.ParseRouteAttr(message[nl.SizeofTcMsg:])
	for _, attribute := range attributes {
		switch attribute.Attr.Type &^ unix.NLA_F_NESTED {
		case nl.TCA_KIND:
			kind = unix.ByteSliceToString(attribute.Value)
		case nl.TCA_OPTIONS:
			options = attribute.Value
		}
	}
	return *nl.DeserializeTcMsg(message), kind, options, err //nolint:wrapcheck // the caller wraps it
}

// programOfFilter returns the program of a BPF filter, or 0 if the message isn't about one of its programs.
func programOfFilter(options []byte) (uint32, error) {
	attributes, err := nl.ParseRouteAttr(options)
	for _, attribute := range attributes {
		if attribute.Attr.Type == nl.TCA_BPF_ID && len(attribute.Value) >= 4 {
			return nl.NativeEndian().Uint32(attribute.Value), nil
		}
	}
	return 0, err //nolint:wrapcheck // the caller wraps it
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
