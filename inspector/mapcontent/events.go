// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/inspector/ringbuffer"
	"github.com/bpfman/bpfman-operator/internal/live"
)

// Events are the events in a ring buffer. They stay there for the application that reads the buffer.
type Events struct {
	info   live.Map
	buffer *ringbuffer.Buffer
	types  eventTypes
	pin    string // empty if the map was opened by its id
}

// EventOptions are the options of Events.
type EventOptions struct {
	// Type is the name of the events' type in the types of the programs that use the map. If it is empty, an event
	// has the only struct of its length.
	Type string
	// Unread means to begin with the first event that no application has read, instead of the next one.
	Unread bool
	// Readers returns the processes that have a map open, as far as they are known.
	Readers func(id uint32) []string
}

// OpenEvents opens a ring buffer by the kernel's id.
func OpenEvents(id uint32, o EventOptions) (*Events, error) {
	m, err := opened(id)
	if err != nil {
		return nil, err
	}
	return eventsOf(m, o)
}

// OpenPinnedEvents opens a ring buffer by the path of its pin.
func OpenPinnedEvents(path string, o EventOptions) (*Events, error) {
	id, err := pinnedID(path)
	if err != nil {
		return nil, err
	}
	e, err := OpenEvents(id, o) // the kernel maps no pages of a map that was opened read-only, as pins are
	if err != nil {
		return nil, err
	}
	e.pin = path
	return e, nil
}

// pinnedID returns the kernel's id of a map that is pinned.
func pinnedID(path string) (uint32, error) {
	m, err := openedPin(path)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return 0, fmt.Errorf("get information on the map pinned at %s: %w", path, err)
	}
	return message(info).ID, nil
}

// refuse returns why the events in a map can't be shown, and what to do, or nil if they can.
func (o EventOptions) refuse(typ ebpf.MapType, m live.Map) error {
	var why string
	switch typ {
	case ebpf.RingBuf:
		return nil
	case ebpf.PerfEventArray:
		readers := cmp.Or(strings.Join(o.Readers(m.ID), ", "), "the application")
		why = "reading it would take its events from " + readers + "; have the program send them to a ring buffer (BPF_MAP_TYPE_RINGBUF), or look at the application's output"
	case ebpf.UserRingbuf:
		why = "an application sends its events, and only the program can read them; look at the maps to which the program writes"
	default:
		why = "it has no events; to show its content, use kubectl bpfman dump"
	}
	return fmt.Errorf("a map of type %s can't be tailed: %s", m.Type, why)
}

// eventsOf closes the map: the mapped pages stay.
func eventsOf(m *ebpf.Map, o EventOptions) (*Events, error) {
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return nil, fmt.Errorf("get information on a map: %w", err)
	}
	e := &Events{info: message(info)}
	if err := o.refuse(info.Type, e.info); err != nil {
		return nil, err
	}
	if e.types, err = eventTypesOf(e.info.ID, o.Type); err != nil {
		return nil, err
	}
	e.info.HasBTF = e.types.known()
	e.buffer, err = ringbuffer.Open(m.FD(), info.MaxEntries, o.Unread)
	if err != nil {
		return nil, fmt.Errorf("read map %d: %w", e.info.ID, err)
	}
	return e, nil
}

// Map describes the ring buffer.
func (e *Events) Map() live.Map { return e.info }

// Close closes the ring buffer.
func (e *Events) Close() error { return e.buffer.Close() }

// Poll calls emit with the events since the last call.
func (e *Events) Poll(emit func(live.TailLine) error) error {
	if overwritten := e.buffer.Resume(); overwritten > 0 {
		if err := emit(live.TailLine{Overwritten: overwritten}); err != nil {
			return err
		}
	}
	return e.buffer.Read(func(r ringbuffer.Record) error {
		event := live.Event{Time: time.Now(), Length: r.Length}
		typ, fits := e.types.of(r.Length)
		event.Type, event.Fits = typ.name, fits
		var err error
		if event.Value, err = json.Marshal(decode(typ.Type, r.Data)); err != nil {
			return fmt.Errorf("encode an event: %w", err)
		}
		return emit(live.TailLine{Event: &event})
	})
}

// Unread returns what the application hasn't read.
func (e *Events) Unread() ringbuffer.Unread { return e.buffer.Unread() }

// Replaced returns an [os.ErrNotExist] error if the map isn't pinned at its path anymore, because its program was
// reloaded or unloaded. No more events come then.
func (e *Events) Replaced() error {
	if e.pin == "" {
		return nil
	}
	id, err := pinnedID(e.pin)
	if err != nil {
		return err
	}
	if id != e.info.ID {
		return errors.Join(fmt.Errorf("another map is pinned at %s now", e.pin), os.ErrNotExist)
	}
	return nil
}
