// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ringbuffer

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffer is a ring buffer that is read without taking its records.
type Buffer struct {
	memory []byte
	// consumed is the position up to which the application has read. The application writes it, and can write
	// anything. produced is the position at which the next record begins. The kernel writes it.
	consumed, produced *uint64
	data               []uint64
	// next is the position of the next record to read. If lost is true, no record begins there.
	next uint64
	lost bool
}

// Open maps the ring buffer that fd refers to, whose data has the given number of bytes. It begins with the next record
// that a program sends, or if unread is true, with the first one that the application hasn't read.
func Open(fd int, bytes uint32, unread bool) (*Buffer, error) {
	// The kernel maps the page with the consumer's position, then the page with the producer's, and then the data.
	page := os.Getpagesize()
	memory, err := unix.Mmap(fd, 0, 2*page+int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the ring buffer's pages: %w", err)
	}
	b := &Buffer{
		memory:   memory,
		consumed: &words(memory[:page])[0],
		produced: &words(memory[page : 2*page])[0],
		data:     words(memory[2*page:]),
	}
	b.begin(unread)
	return b, nil
}

// words returns the words in memory, which begins at a page.
func words(memory []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/headerSize) //nolint:gosec // pages are aligned
}

func (b *Buffer) begin(unread bool) {
	produced := atomic.LoadUint64(b.produced)
	b.next = produced
	if consumed := atomic.LoadUint64(b.consumed); unread && b.holds(consumed, produced) {
		b.next = consumed
	}
}

// Close unmaps the buffer.
func (b *Buffer) Close() error {
	if err := unix.Munmap(b.memory); err != nil {
		return fmt.Errorf("unmap the ring buffer's pages: %w", err)
	}
	return nil
}

// holds reports whether the buffer still has what was written at a position. The kernel writes the header of a new record
// before it moves the producer's position.
func (b *Buffer) holds(position, produced uint64) bool {
	return position%headerSize == 0 && produced-position <= size(b.data)-headerSize
}

// Resume returns how many bytes were overwritten before Read could read them, and continues after them: at the first
// record that the application hasn't read, because the kernel keeps that, or else with the next one that a program sends.
func (b *Buffer) Resume() (overwritten uint64) {
	produced := atomic.LoadUint64(b.produced)
	if !b.lost && b.holds(b.next, produced) {
		return 0
	}
	to := produced
	// After a position without a record, the one that the application writes isn't trusted either.
	if consumed := atomic.LoadUint64(b.consumed); !b.lost && consumed > b.next && b.holds(consumed, produced) {
		to = consumed
	}
	overwritten = max(to, b.next) - b.next
	b.next, b.lost = to, false
	return overwritten
}

// Read calls take with each record up to the last one that is there when Read begins. It returns before a record that a
// program still writes, and if the records are overwritten faster than it reads.
func (b *Buffer) Read(take func(Record) error) error {
	end := atomic.LoadUint64(b.produced)
	for b.next != end {
		record, next, found := at(b.data, b.next, end)
		if found == incomplete || !b.holds(b.next, atomic.LoadUint64(b.produced)) {
			return nil
		}
		if found == nothing {
			b.lost = true
			return nil
		}
		b.next = next
		if record == nil {
			continue
		}
		if err := take(*record); err != nil {
			return err
		}
	}
	return nil
}

// Unread is what the application hasn't read.
type Unread struct {
	// Position is how far the application has read.
	Position uint64
	// Bytes is how many bytes it hasn't read.
	Bytes uint64
	// Full means that there is no room for another record as long as the first one of these. The kernel then
	// refuses the program's records.
	Full bool
}

// Unread returns what the application hasn't read.
func (b *Buffer) Unread() Unread {
	consumed := atomic.LoadUint64(b.consumed)
	produced := atomic.LoadUint64(b.produced)
	if !b.holds(consumed, produced) {
		return Unread{Position: consumed} // no position that the kernel accepts
	}
	u := Unread{Position: consumed, Bytes: produced - consumed}
	if _, next, found := at(b.data, consumed, produced); found == complete {
		u.Full = !b.holds(consumed, produced+next-consumed)
	}
	return u
}
