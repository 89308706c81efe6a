// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ringbuffer

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// written returns the data of a buffer with these bytes at a position.
func written(length int, position uint64, content ...byte) []uint64 {
	memory := make([]byte, length)
	for i, b := range content {
		memory[(position+uint64(i))%uint64(length)] = b
	}
	return inWords(memory)
}

func inWords(memory []byte) []uint64 {
	data := make([]uint64, len(memory)/headerSize)
	for i := range data {
		data[i] = binary.NativeEndian.Uint64(memory[i*headerSize:])
	}
	return data
}

// header returns the header of a record.
func header(length uint32) []byte {
	return append(binary.NativeEndian.AppendUint32(nil, length), 0xaa, 0xaa, 0xaa, 0xaa)
}

func TestAt(t *testing.T) {
	t.Parallel()
	hello := append(header(5), "hello"...)
	for name, c := range map[string]struct {
		data               []uint64
		position, produced uint64
		want               string
		next               uint64
		found              state
	}{
		"a record":                            {data: written(64, 0, hello...), produced: 16, want: "hello", next: 16},
		"one of several":                      {data: written(64, 8, hello...), position: 8, produced: 56, want: "hello", next: 24},
		"one across the end":                  {data: written(64, 56, hello...), position: 56, produced: 72, want: "hello", next: 72},
		"one after many rounds":               {data: written(64, 8, hello...), position: 1<<40 + 8, produced: 1<<40 + 24, want: "hello", next: 1<<40 + 24},
		"one as long as the buffer":           {data: written(64, 0, header(56)...), produced: 64, want: string(make([]byte, 56)), next: 64},
		"an empty one":                        {data: written(64, 0, header(0)...), produced: 8, next: 8},
		"a discarded one":                     {data: written(64, 0, header(5|discarded)...), produced: 16, next: 16},
		"an incomplete one":                   {data: written(64, 0, header(5|busy)...), produced: 16, found: incomplete},
		"a discarded one that isn't complete": {data: written(64, 0, header(5|busy|discarded)...), produced: 16, found: incomplete},
		"longer than what was produced":       {data: written(64, 0, header(9)...), produced: 16, found: nothing},
		"incomplete, and too long":            {data: written(64, 0, header(9|busy)...), produced: 16, found: nothing},
		"discarded, and too long":             {data: written(64, 0, header(9|discarded)...), produced: 16, found: nothing},
		"as long as can be":                   {data: written(64, 0, header(busy-1&^discarded)...), produced: 64, found: nothing},
		"no record":                           {data: written(64, 0), position: 8, produced: 8, found: nothing},
		"not at a word":                       {data: written(64, 4, hello...), position: 4, produced: 24, found: nothing},
		"less than a header":                  {data: written(64, 0, hello...), produced: 4, found: nothing},
		"more than the buffer":                {data: written(64, 0, hello...), produced: 72, found: nothing},
		"after what was produced":             {data: written(64, 16, hello...), position: 16, produced: 0, found: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record, next, found := at(c.data, c.position, c.produced)
			got := ""
			if record != nil {
				got = string(record.Data)
			}
			if got != c.want || next != c.next || found != c.found {
				t.Errorf("%q, %d, %d; want %q, %d, %d", got, next, found, c.want, c.next, c.found)
			}
			if record != nil && int(record.Length) != len(record.Data) {
				t.Errorf("length %d of %d bytes", record.Length, len(record.Data))
			}
		})
	}
}

// Only the beginning of a long record is read.
func TestAtIsBounded(t *testing.T) {
	t.Parallel()
	const length = 4 * MaxData
	record, next, found := at(written(length, 0, header(3*MaxData)...), 0, length)
	if found != complete || record.Length != 3*MaxData || len(record.Data) != MaxData || cap(record.Data) != MaxData+headerSize || next != 3*MaxData+headerSize {
		t.Errorf("%d bytes of %d (capacity %d), next %d, %d", len(record.Data), record.Length, cap(record.Data), next, found)
	}
}

// For any content of a buffer, and any beginning, a walk ends within what was produced.
func FuzzAt(f *testing.F) {
	two := append(append(header(5), "hello\x00\x00\x00"...), append(header(1), '!')...)
	f.Add(two, uint64(0), uint64(32))
	f.Add(two, uint64(1<<32), uint64(32))
	f.Add(header(busy|discarded|4), uint64(64), uint64(8))
	f.Fuzz(func(t *testing.T, content []byte, position, ahead uint64) {
		length := 64 // like all buffers, a power of two
		for length < len(content) {
			length *= 2
		}
		data := written(length, 0, content...)
		produced := position + ahead
		steps := 0
		for here := position; ; steps++ {
			record, next, found := at(data, here, produced)
			if found != complete {
				if record != nil || next != 0 {
					t.Errorf("%d, but %v and %d", found, record, next)
				}
				break
			}
			if next-here < headerSize || next%headerSize != 0 || produced-next > produced-here || next-position > uint64(length) {
				t.Fatalf("from %d to %d of %d to %d", here, next, position, produced)
			}
			if record != nil && (len(record.Data) > int(record.Length) || len(record.Data) != min(int(record.Length), MaxData)) {
				t.Errorf("%d bytes of %d", len(record.Data), record.Length)
			}
			here = next
		}
		if steps > length/headerSize {
			t.Errorf("%d records in %d bytes", steps, length)
		}
	})
}

// What was written is what is read.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("a record|another|"), uint64(8))
	f.Add([]byte("||"), uint64(56))
	f.Fuzz(func(t *testing.T, content []byte, words uint64) {
		start := words * headerSize
		var memory []byte
		records := bytes.Split(content, []byte("|"))
		for _, r := range records {
			memory = append(append(memory, header(uint32(len(r)))...), r...)
			memory = append(memory, make([]byte, (headerSize-len(r)%headerSize)%headerSize)...)
		}
		length := 64
		for length < len(memory) {
			length *= 2
		}
		data, produced := written(length, start, memory...), start+uint64(len(memory))
		here := start
		for _, want := range records {
			record, next, found := at(data, here, produced)
			if found != complete || !bytes.Equal(record.Data, want[:min(len(want), MaxData)]) {
				t.Fatalf("%v, %d, want %q", record, found, want)
			}
			here = next
		}
		if here != produced {
			t.Errorf("ends at %d of %d", here, produced)
		}
	})
}
