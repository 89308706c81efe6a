// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Stream is what became of frames that were sent at one end of a pair of interfaces.
type Stream struct {
	Sent uint64 `json:"sent"`
	// Passed are those that came through the programs at the other end.
	Passed uint64 `json:"passed"`
	// Arrived is all that arrived there, whoever sent it.
	Arrived uint64 `json:"arrived"`
	// Counted is what programs counted meanwhile, by their ids.
	Counted map[string]uint64 `json:"counted"`
}

const (
	// experimental is a protocol for local experiments, which nobody answers.
	experimental = 0x88b5
	// settling is how long frames that were sent may take to come through.
	settling = 5 * time.Second
)

// SendStream sends a frame at the interface's peer at each interval until EndStream is
// called. Programs are told by their ids, with the map that each counts in; the daemon
// must run at the beginning and in the end.
func SendStream(ctx context.Context, iface string, interval time.Duration, programs map[string]string) (s Stream, err error) {
	control, err := (&net.ListenConfig{}).Listen(ctx, "unix", streamSocket(iface))
	if err != nil {
		return s, fmt.Errorf("listen for the end of the stream: %w", err)
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if conn, err := control.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	all, err := newTap(iface, unix.ETH_P_ALL)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	own, err := newTap(iface, experimental)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	sender, err := newSender(Peer(iface))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, sender.close()) }()

	before, arrived, err := countAtRest(ctx, all, programs)
	if err != nil {
		return s, err
	}
	if s.Sent, err = sender.sendUntil(ctx, ended, interval); err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for s.Passed < s.Sent && ctx.Err() == nil {
		if s.Passed, err = own.total(); err != nil {
			return s, err
		}
	}
	after, arrivedAfter, err := countAtRest(ctx, all, programs)
	if err != nil {
		return s, err
	}
	s.Arrived, s.Counted = arrivedAfter-arrived, map[string]uint64{}
	for id := range programs {
		s.Counted[id] = after[id] - before[id]
	}
	return s, nil
}

// EndStream ends the stream of frames at an interface's peer.
func EndStream(ctx context.Context, iface string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", streamSocket(iface))
	if err != nil {
		return fmt.Errorf("end the stream of %s: %w", iface, err)
	}
	return conn.Close()
}

// streamSocket is an abstract one, of the network namespace that the interface is in.
func streamSocket(iface string) string { return "@node-probe-stream-" + iface }

// countAtRest reads what programs have counted and what has arrived at a moment when
// nothing arrives.
func countAtRest(ctx context.Context, arrivals *tap, programs map[string]string) (counted map[string]uint64, arrived uint64, err error) {
	for ctx.Err() == nil {
		if arrived, err = arrivals.total(); err != nil {
			return nil, 0, err
		}
		counted = map[string]uint64{}
		for id, mapName := range programs {
			count, err := Count(id, mapName)
			if err != nil {
				return nil, 0, err
			}
			counted[id] = count.Packets
		}
		if now, err := arrivals.total(); err != nil || now == arrived {
			return counted, arrived, err
		}
	}
	return nil, 0, fmt.Errorf("wait until nothing arrives: %w", ctx.Err())
}

// tap is a packet socket of which nothing is read: the kernel counts what it is given,
// also when it has no room for it.
type tap struct {
	socket int
	seen   uint64
}

// newTap taps what arrives at an interface: all of it before TC programs see it, or what
// they let through of a protocol.
func newTap(iface string, protocol uint16) (*tap, error) {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", iface, err)
	}
	// Bound before it has a protocol, it sees no other interface.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	err = unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err == nil {
		bigEndian := protocol<<8 | protocol>>8
		err = unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: bigEndian, Ifindex: link.Attrs().Index})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tap interface %s: %w", iface, err), unix.Close(socket))
	}
	return &tap{socket: socket}, nil
}

// total is how many frames it has been given so far.
func (t *tap) total() (uint64, error) {
	// Reading sets the kernel's numbers back.
	stats, err := unix.GetsockoptTpacketStats(t.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("count what arrives: %w", err)
	}
	t.seen += uint64(stats.Packets)
	return t.seen, nil
}

func (t *tap) close() error { return unix.Close(t.socket) }

// sender sends frames at an interface.
type sender struct {
	socket int
	to     unix.SockaddrLinklayer
	frame  []byte
}

func newSender(iface string) (*sender, error) {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", iface, err)
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	frame := make([]byte, 64)
	for i := range 6 { // to all
		frame[i] = 0xff
	}
	copy(frame[6:], link.Attrs().HardwareAddr)
	frame[12], frame[13] = experimental>>8, experimental&0xff
	return &sender{socket: socket, to: unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}, frame: frame}, nil
}

func (s *sender) send() error {
	if err := unix.Sendto(s.socket, s.frame, 0, &s.to); err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	return nil
}

// sendUntil sends a frame at each interval and returns how many these were.
func (s *sender) sendUntil(ctx context.Context, ended <-chan struct{}, interval time.Duration) (sent uint64, err error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return sent, fmt.Errorf("wait for the end of the stream: %w", ctx.Err())
		case <-ended:
			return sent, nil
		case <-tick.C:
			if err := s.send(); err != nil {
				return sent, err
			}
			sent++
		}
	}
}

func (s *sender) close() error { return unix.Close(s.socket) }
