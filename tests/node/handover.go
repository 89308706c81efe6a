// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/examples/counters"
)

// Handover is what became of frames while a program that counts them was replaced by another one.
type Handover struct {
	Sent uint64 `json:"sent"`
	// Missed is the number of frames that no program counted, and Twice the number of those that several counted.
	Missed uint64 `json:"missed"`
	Twice  uint64 `json:"twice"`
	// Gap is the longest time, in nanoseconds, from a counted frame to the next one with others between them.
	Gap time.Duration `json:"gap"`
	// Programs are those that counted, by their IDs.
	Programs []string `json:"programs"`
}

// SendHandover sends a frame on the interface's peer at an interval until EndStream is called. After each one, it looks which
// programs counted it, of all whose map the daemon has pinned with that name. Only one of them may get frames.
func SendHandover(ctx context.Context, iface string, interval time.Duration, mapName string) (h Handover, err error) {
	control, err := listenForEnd(ctx, "stream-"+iface)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	arrivals, err := newTap(iface, unix.ETH_P_ALL)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, arrivals.close()) }()
	sender, err := newSender(Peer(iface))
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, sender.close()) }()

	all := pinnedCounters{name: mapName, maps: map[string]*ebpf.Map{}}
	defer func() { err = errors.Join(err, all.close()) }()
	before, err := all.atRest(ctx, arrivals)
	if err != nil {
		return h, err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	counted := map[string]bool{}
	gap := gap{last: time.Now()}
	for {
		select {
		case <-ctx.Done():
			return h, fmt.Errorf("wait for the end of the stream: %w", ctx.Err())
		case <-control.called:
			for id := range counted {
				h.Programs = append(h.Programs, id)
			}
			return h, nil
		case <-tick.C:
		}
		if err := sender.send(); err != nil {
			return h, err
		}
		sent := time.Now()
		now, err := all.atRest(ctx, arrivals)
		if err != nil {
			return h, err
		}
		var sum uint64
		for id, packets := range now.counted {
			if by := packets - before.counted[id]; by > 0 {
				sum, counted[id] = sum+by, true
			}
		}
		arrived := now.arrived - before.arrived
		h.Sent += arrived
		h.Missed += arrived - min(sum, arrived)
		h.Twice += sum - min(sum, arrived)
		h.Gap = max(h.Gap, gap.after(sent, sum < arrived, sum > 0))
		before = now
	}
}

// gap is a time in which frames weren't counted.
type gap struct {
	last   time.Time // of a counted frame
	missed bool      // since then
}

// after returns the gap that frames of a time end, of which some weren't counted, and some were. It is 0 if they end none.
func (g *gap) after(sent time.Time, missed, counted bool) (length time.Duration) {
	g.missed = g.missed || missed
	if !counted && missed {
		return 0
	}
	if g.missed {
		length = sent.Sub(g.last)
	}
	g.last, g.missed = sent, false
	return length
}

// pinnedCounters are the maps with a name that the daemon has pinned at any time. They are kept open, because the daemon's
// successor removes the pins.
type pinnedCounters struct {
	name string
	maps map[string]*ebpf.Map
}

type counts struct {
	arrived uint64
	counted map[string]uint64
}

// atRest reads what arrived and what was counted, at a time when nothing arrives.
func (p *pinnedCounters) atRest(ctx context.Context, arrivals *tap) (counts, error) {
	for ctx.Err() == nil {
		arrived, err := arrivals.total()
		if err != nil {
			return counts{}, err
		}
		counted, err := p.read()
		if err != nil {
			return counts{}, err
		}
		if now, err := arrivals.total(); err != nil || now == arrived {
			return counts{arrived, counted}, err
		}
	}
	return counts{}, fmt.Errorf("wait until nothing arrives: %w", ctx.Err())
}

func (p *pinnedCounters) read() (map[string]uint64, error) {
	pins, err := filepath.Glob(filepath.Join(nodeRoot, daemonPins, "maps/*", p.name))
	if err != nil {
		return nil, fmt.Errorf("look for pins: %w", err)
	}
	for _, pin := range pins {
		id := filepath.Base(filepath.Dir(pin))
		if p.maps[id] != nil {
			continue
		}
		switch opened, err := ebpf.LoadPinnedMap(pin, nil); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("open %s: %w", pin, err)
		default:
			p.maps[id] = opened
		}
	}
	counted := map[string]uint64{}
	for id, m := range p.maps {
		count, err := counters.Of(m, p.name)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", id, err)
		}
		counted[id] = count.Packets
	}
	return counted, nil
}

func (p *pinnedCounters) close() error {
	var errs []error
	for _, m := range p.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
