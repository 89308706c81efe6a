// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package events reads the events of the program kill_events from its ring buffer, and forwards them to any number of
// clients. A ring buffer has one position for all its readers, so each event goes to only one of them. Therefore one
// process for each node reads it, and the others are its clients. It needs no capability, only permission to read and
// write the pin.
package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/bpfman/bpfman-operator/examples/counters"
)

// Event is a call of kill(2): what the program sends.
type Event struct {
	// PID is the process that sends the signal, and Target the one that gets it.
	PID     uint32 `json:"pid"`
	Target  int32  `json:"target"`
	Signal  int32  `json:"signal"`
	Process string `json:"process"`
}

// parse returns the event in a record of the ring buffer.
func parse(record []byte) (Event, error) {
	var raw struct {
		PID            uint32
		Target, Signal int32
		Process        [16]byte
	}
	if err := binary.Read(bytes.NewReader(record), binary.NativeEndian, &raw); err != nil {
		return Event{}, fmt.Errorf("an event has %d bytes: %w", len(record), err)
	}
	process, _, _ := bytes.Cut(raw.Process[:], []byte{0})
	return Event{raw.PID, raw.Target, raw.Signal, strings.ToValidUTF8(string(process), "\uFFFD")}, nil
}

// lookInterval is how long to wait for an event before looking whether the map was replaced.
const lookInterval = time.Second

// Read calls emit with each event of the ring buffer that is pinned at path, until the context ends. After a reload of
// the program, it continues with the new buffer, once it has read what is left in the old one.
func Read(ctx context.Context, path string, emit func(Event)) error {
	pin := &counters.Pin{Path: path, Writable: true}
	defer pin.Close()
	for ctx.Err() == nil {
		if err := readOne(ctx, pin, emit); err != nil {
			return err
		}
	}
	return nil
}

// readOne reads from the current map until it was replaced.
func readOne(ctx context.Context, pin *counters.Pin, emit func(Event)) error {
	m, err := pin.Map()
	if err != nil {
		return err
	}
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("read ring buffer %s: %w", pin.Path, err)
	}
	defer reader.Close()
	stop := context.AfterFunc(ctx, func() { _ = reader.Close() })
	defer stop()
	var record ringbuf.Record
	for {
		reader.SetDeadline(time.Now().Add(lookInterval))
		err := reader.ReadInto(&record)
		switch {
		case errors.Is(err, ringbuf.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			// Nothing is left. If the map was replaced, nothing comes anymore.
			if replaced, err := pin.Replaced(); replaced || err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("read ring buffer %s: %w", pin.Path, err)
		default:
			event, err := parse(record.RawSample)
			if err != nil {
				return err
			}
			emit(event)
		}
	}
}
