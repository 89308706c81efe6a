// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Stream is the result of sending frames on one end of a pair of interfaces.
type Stream struct {
	Sent uint64 `json:"sent"`
	// Passed is the number of frames that passed the programs at the other end.
	Passed uint64 `json:"passed"`
	// Arrived is the number of all frames that arrived there, from any sender.
	Arrived uint64 `json:"arrived"`
	// Counted is what programs counted in the meantime, by their ids.
	Counted map[string]uint64 `json:"counted"`
}

const (
	// experimental is a protocol number for local experiments. No host answers it.
	experimental = 0x88b5
	// settling is the maximum time that sent frames need to arrive.
	settling = 5 * time.Second
)

// SendStream sends a frame on the interface's peer at an interval until EndStream is
// called. programs maps the ids of programs to the maps in which they count. The daemon
// must run at the start and at the end.
func SendStream(ctx context.Context, iface string, interval time.Duration, programs map[string]string) (s Stream, err error) {
	control, err := listenForEnd(ctx, "stream-"+iface)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
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
	if s.Sent, err = sender.sendUntil(ctx, control.called, interval); err != nil {
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

// EndStream ends the stream of frames on an interface's peer.
func EndStream(ctx context.Context, iface string) error { return end(ctx, "stream-"+iface) }

// countAtRest reads what programs have counted, and what has arrived, at a time when
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

// tap is a packet socket that is never read. The kernel counts the packets for it, even
// if they don't fit into its buffer.
type tap struct {
	socket int
	seen   uint64
}

// newTap creates a tap for an interface. It gets all packets before TC programs see
// them, or for a protocol, those that TC programs let pass.
func newTap(iface string, protocol uint16) (*tap, error) {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", iface, err)
	}
	// It is bound before it has a protocol, so that it gets no packets of other
	// interfaces.
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

// total returns the number of frames so far.
func (t *tap) total() (uint64, error) {
	// Reading resets the kernel's counters.
	stats, err := unix.GetsockoptTpacketStats(t.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("count what arrives: %w", err)
	}
	t.seen += uint64(stats.Packets)
	return t.seen, nil
}

func (t *tap) close() error { return unix.Close(t.socket) }

// sender sends frames on an interface.
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
	for i := range 6 { // broadcast
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

// sendUntil sends a frame at each interval, and returns their number.
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
