// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package ringbuffer reads the records of the kernel's ring buffers without taking them from the application that
// reads a buffer: it maps the buffer's pages read-only, so it can't change how far the application has read.
package ringbuffer

import (
	"encoding/binary"
	"sync/atomic"
)

// A record begins with the kernel's struct bpf_ringbuf_hdr, whose first half is the length of the data and two flags.
// Records begin at multiples of its size.
const (
	headerSize = 8
	busy       = 1 << 31
	discarded  = 1 << 30
)

// MaxData is the maximum number of bytes of a record that are read. A record can be almost as long as its buffer.
const MaxData = 64 << 10

// Record is what a program sent.
type Record struct {
	// Data is the data, or its first MaxData bytes.
	Data []byte
	// Length is the number of bytes that the program sent.
	Length uint32
}

// state is what is at a position.
type state int

const (
	complete   state = iota
	incomplete       // a record that the program still writes
	nothing          // no record
)

// at returns what is at a position: the record, unless the program discarded it, and the position after it. data is the
// buffer in words, and produced is the position at which the next record begins. Positions count bytes from the creation
// of the buffer on.
//
// The kernel can overwrite data in the meantime. For any data, the result is within the limits: the next position is a
// multiple of headerSize after position, and not after produced.
func at(data []uint64, position, produced uint64) (record *Record, next uint64, s state) {
	left := produced - position
	if position%headerSize != 0 || left < headerSize || left > size(data) {
		return nil, 0, nothing
	}
	header := load(data, position)
	flagged := binary.NativeEndian.Uint32(header[:])
	length := flagged &^ (busy | discarded)
	occupied := occupies(length)
	switch {
	case occupied > left:
		return nil, 0, nothing
	case flagged&busy != 0:
		return nil, 0, incomplete
	case flagged&discarded != 0:
		return nil, position + occupied, complete
	}
	read := min(length, MaxData)
	record = &Record{Data: make([]byte, 0, occupies(read)), Length: length}
	for from := position + headerSize; len(record.Data) < int(read); from += headerSize {
		word := load(data, from)
		record.Data = append(record.Data, word[:]...)
	}
	record.Data = record.Data[:read]
	return record, position + occupied, complete
}

// occupies returns the number of bytes that a record takes in the buffer.
func occupies(length uint32) uint64 {
	return headerSize + (uint64(length)+headerSize-1)/headerSize*headerSize
}

func size(data []uint64) uint64 { return uint64(len(data)) * headerSize }

// load returns the bytes of the word at a position. It is atomic, so that no CPU loads it after the producer's position that
// says whether the kernel had overwritten the word.
func load(data []uint64, position uint64) [headerSize]byte {
	var bytes [headerSize]byte
	word := atomic.LoadUint64(&data[position/headerSize%uint64(len(data))])
	binary.NativeEndian.PutUint64(bytes[:], word)
	return bytes
}
