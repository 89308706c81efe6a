// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ringbuffer

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
)

// made returns a buffer of 64 bytes whose application has read up to a position.
func made(consumed uint64) *Buffer {
	produced := consumed
	b := &Buffer{consumed: &consumed, produced: &produced, data: make([]uint64, 8)}
	b.begin(false)
	return b
}

// send writes a record, without respect for the application.
func (b *Buffer) send(text string, flags uint32) {
	record := append(header(uint32(len(text))|flags), text...)
	record = append(record, make([]byte, (headerSize-len(record)%headerSize)%headerSize)...)
	for word := range slices.Chunk(record, headerSize) {
		b.data[*b.produced/headerSize%uint64(len(b.data))] = binary.NativeEndian.Uint64(word)
		*b.produced += headerSize
	}
}

// read returns what can be read, in words.
func read(t *testing.T, b *Buffer) string {
	t.Helper()
	var all []string
	if err := b.Read(func(r Record) error {
		all = append(all, string(r.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestBuffer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		consumed    uint64
		happens     func(*Buffer)
		overwritten uint64
		want        string
		then        string // what is read of "last", which is sent afterward
	}{
		"nothing":              {happens: func(*Buffer) {}, then: "last"},
		"records":              {happens: func(b *Buffer) { b.send("one", 0); b.send("two", 0) }, want: "one two", then: "last"},
		"the buffer is full":   {happens: func(b *Buffer) { b.send(strings.Repeat("x", 48), 0) }, want: strings.Repeat("x", 48), then: "last"},
		"across the end":       {consumed: 56, happens: func(b *Buffer) { b.send("around", 0) }, want: "around", then: "last"},
		"a discarded record":   {happens: func(b *Buffer) { b.send("one", 0); b.send("two", discarded); b.send("three", 0) }, want: "one three", then: "last"},
		"an incomplete record": {happens: func(b *Buffer) { b.send("one", 0); b.send("two", busy); b.send("three", 0) }, want: "one"},
		"overwritten by one word": {
			happens:     func(b *Buffer) { b.send("one", 0); b.send(strings.Repeat("x", 32), 0); b.send("", 0) },
			overwritten: 64, then: "last",
		},
		"overwritten, and the application has read the first ones": {
			happens: func(b *Buffer) {
				b.send("one", 0)
				*b.consumed = *b.produced
				b.send(strings.Repeat("x", 32), 0)
				b.send("two", 0)
			},
			overwritten: 16, want: strings.Repeat("x", 32) + " two", then: "last",
		},
		"overwritten, and the application pretends to be behind": {
			happens: func(b *Buffer) {
				for range 9 {
					b.send("one", 0)
				}
				*b.consumed = 8
			},
			overwritten: 144, then: "last",
		},
		"overwritten, and the application pretends to be ahead": {
			happens: func(b *Buffer) {
				for range 9 {
					b.send("one", 0)
				}
				*b.consumed = 1 << 63
			},
			overwritten: 144, then: "last",
		},
		"overwritten, and the application pretends to be at data": {
			happens: func(b *Buffer) {
				for range 9 {
					b.send("\xff\xff\xff\x3f", 0)
				}
				*b.consumed = 9*16 - 8
			},
			overwritten: 136, then: "last", // after another 8 bytes
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := made(c.consumed)
			c.happens(b)
			if got := b.Resume(); got != c.overwritten {
				t.Errorf("%d bytes were overwritten, want %d", got, c.overwritten)
			}
			if got := read(t, b); got != c.want {
				t.Errorf("read %q, want %q", got, c.want)
			}
			b.Resume()
			*b.consumed = *b.produced
			b.send("last", 0)
			if got := read(t, b); got != c.then {
				t.Errorf("then read %q, want %q", got, c.then)
			}
		})
	}
}

// After an application has pretended to be where no record begins, its position isn't used to continue.
func TestNoRecordWhereTheApplicationIs(t *testing.T) {
	t.Parallel()
	b := made(0)
	for range 9 {
		b.send("\xff\xff\xff\x3f", 0)
	}
	for _, step := range []struct{ pretended, overwritten uint64 }{{7*16 + 8, 120}, {8*16 + 8, 24}} {
		*b.consumed = step.pretended
		if got := b.Resume(); got != step.overwritten {
			t.Errorf("%d bytes were overwritten, want %d", got, step.overwritten)
		}
		if got := read(t, b); got != "" {
			t.Errorf("read %q", got)
		}
	}
	b.send("last", 0)
	if got := read(t, b); got != "last" {
		t.Errorf("then read %q", got)
	}
}

// What is overwritten while it is read isn't shown.
func TestOverwrittenMeanwhile(t *testing.T) {
	t.Parallel()
	b := made(0)
	for range 3 {
		b.send("old", 0)
	}
	var got []string
	overwrite := func(r Record) error {
		got = append(got, string(r.Data))
		for _, text := range []string{"a", "b", "c"} {
			b.send(text, 0)
		}
		return nil
	}
	if err := b.Read(overwrite); err != nil || !slices.Equal(got, []string{"old"}) {
		t.Errorf("%q, %v", got, err)
	}
	*b.consumed = 64
	if lost := b.Resume(); lost != 48 || read(t, b) != "b c" {
		t.Errorf("%d bytes were overwritten", lost)
	}
}

func TestReadEndsWithAnError(t *testing.T) {
	t.Parallel()
	b, failed := made(0), errors.New("failed")
	b.send("one", 0)
	b.send("two", 0)
	if err := b.Read(func(Record) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if got := read(t, b); got != "two" {
		t.Errorf("then %q", got)
	}
}

func TestBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		consumed uint64
		unread   bool
		want     string
	}{
		"with the next one":                        {want: ""},
		"with the first unread one":                {unread: true, want: "one two"},
		"with the second":                          {consumed: 16, unread: true, want: "two"},
		"if the application has read everything":   {consumed: 32, unread: true, want: ""},
		"if the application pretends to be ahead":  {consumed: 40, unread: true, want: ""},
		"if the application isn't at a word":       {consumed: 20, unread: true, want: ""},
		"if the application pretends to be behind": {consumed: 1<<64 - 64, unread: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := made(0)
			b.send("one", 0)
			b.send("two", 0)
			*b.consumed = c.consumed
			b.begin(c.unread)
			if got := read(t, b); got != c.want {
				t.Errorf("read %q, want %q", got, c.want)
			}
		})
	}
}

func TestUnread(t *testing.T) {
	t.Parallel()
	b := made(16)
	for n, want := range []Unread{
		{Position: 16},
		{Position: 16, Bytes: 16},
		{Position: 16, Bytes: 32},
		{Position: 16, Bytes: 48, Full: true}, // the kernel leaves a byte free
	} {
		if got := b.Unread(); got != want {
			t.Errorf("after %d records: %+v, want %+v", n, got, want)
		}
		b.send("one", 0)
	}
	for _, invalid := range []uint64{1, 1 << 62} {
		*b.consumed = invalid
		if got, want := b.Unread(), (Unread{Position: invalid}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
