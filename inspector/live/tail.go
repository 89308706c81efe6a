// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/bpfman/bpfman-operator/inspector/mapcontent"
	"github.com/bpfman/bpfman-operator/inspector/process"
	"github.com/bpfman/bpfman-operator/inspector/ringbuffer"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// TailOptions are the options of Tail.
type TailOptions struct {
	// Map is the kernel's id of the ring buffer. Instead, it can be specified by the path where it is pinned.
	Map  uint32
	Path string
	// Type and Unread are those of [mapcontent.EventOptions].
	Type   string
	Unread bool
	// HostProc is the path of the host's /proc.
	HostProc string
}

const (
	// pollPace is the interval at which Tail looks for events. The kernel only wakes readers that have read everything, so
	// it can't tell Tail.
	pollPace = 10 * time.Millisecond
	// neglectedAfter is how long a buffer can be full before nobody is known to read it.
	neglectedAfter = time.Second
	// replacedPace is the interval at which Tail looks for the map's pin.
	replacedPace = time.Second
)

// Tail writes the events in a ring buffer, from now on. It doesn't take them from the application that reads the buffer.
// It returns an [os.ErrNotExist] error when the map isn't pinned at its path anymore.
func Tail(ctx context.Context, o TailOptions, in io.Reader, out io.Writer) error {
	ctx, cancel := whileRead(ctx, in, silence)
	defer cancel()
	events, err := o.open()
	if err != nil {
		return err
	}
	return errors.Join(tail(ctx, events, linesTo(out)), events.Close())
}

func (o TailOptions) open() (*mapcontent.Events, error) {
	events := mapcontent.EventOptions{Type: o.Type, Unread: o.Unread, Readers: func(id uint32) []string { return readers(o.HostProc, id) }}
	if o.Path != "" {
		return mapcontent.OpenPinnedEvents(o.Path, events)
	}
	return mapcontent.OpenEvents(o.Map, events)
}

// maxReaders is the maximum number of processes in a message.
const maxReaders = 8

// readers returns the processes that have a map open. If they can't be read, it returns none.
func readers(proc string, id uint32) []string {
	table, err := process.Scan(proc)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range table.Processes {
		if len(names) < maxReaders && slices.ContainsFunc(p.Open, func(d process.Descriptor) bool { return d.Behind.Map == id }) {
			names = append(names, fmt.Sprintf("%s[%d]", p.Name, p.PID))
		}
	}
	return names
}

func tail(ctx context.Context, events *mapcontent.Events, answers lines) error {
	described := events.Map()
	if err := answers.write(live.TailLine{Map: &described}); err != nil {
		return err
	}
	emit := func(line live.TailLine) error { return answers.write(line) }
	polls, looks := time.NewTicker(pollPace), time.NewTicker(replacedPace)
	defer polls.Stop()
	defer looks.Stop()
	var n neglect
	for {
		var replaced error
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
			replaced = events.Replaced() // before the last events are read
		case <-polls.C:
		}
		err := events.Poll(emit)
		if unread := events.Unread(); err == nil && n.began(unread, time.Now()) {
			err = emit(live.TailLine{Neglected: &live.Neglected{Bytes: unread.Bytes}})
		}
		if err := errors.Join(err, answers.flush(), replaced); err != nil {
			return err
		}
	}
}

// neglect finds out that nobody reads a full buffer.
type neglect struct {
	position uint64
	since    time.Time
	said     bool
}

// began reports whether nobody is known to read the buffer since the last call.
func (n *neglect) began(u ringbuffer.Unread, now time.Time) bool {
	if !u.Full {
		*n = neglect{}
		return false
	}
	if n.since.IsZero() || u.Position != n.position {
		*n = neglect{position: u.Position, since: now}
	}
	if n.said || now.Sub(n.since) < neglectedAfter {
		return false
	}
	n.said = true
	return true
}
