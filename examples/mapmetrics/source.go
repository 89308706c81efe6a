// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/examples/maptext"
	"github.com/bpfman/bpfman-operator/internal/mapentries"
)

// A map is read with bpf(2), which returns bytes, or as text. Text needs no system call that a seccomp profile could
// forbid, but the kernel prints no sizes, and not every map.

// element is an element of a map.
type element struct {
	key    key
	values []cpuValue
}

type cpuValue struct {
	cpu int // maptext.NoCPU if the map isn't per CPU
	value
}

type key interface {
	// parts returns the parts of the key for the labels.
	parts(labels []Label) ([]part, error)
	String() string
}

// part is a part of a key: its bytes, and what the kernel prints for it. One of them can be missing.
type part struct {
	bytes []byte
	text  string
}

type value interface {
	// numbers returns the number for a metric, or the numbers of its array.
	numbers(m *Metric) ([]float64, error)
}

// elements yields the elements of the map that is pinned at path. It ends after the first error.
func (m *Map) elements(path string) iter.Seq2[element, error] {
	if m.readsText() {
		return textElements(path)
	}
	return func(yield func(element, error) bool) {
		opened, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
		switch {
		case errors.Is(err, unix.EPERM) && !m.readsBytes(): // by a seccomp profile
			textElements(path)(yield)
			return
		case err != nil:
			yield(element{}, fmt.Errorf("open: %w", err))
			return
		}
		defer opened.Close()
		byteElements(opened)(yield)
	}
}

func textElements(path string) iter.Seq2[element, error] {
	return func(yield func(element, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(element{}, fmt.Errorf("open: %w", err))
			return
		}
		defer file.Close()
		// The kernel starts again from the first key if the one that it printed was deleted. The text of a struct or an array
		// doesn't tell all bytes, so different keys can have the same.
		repeats := mapentries.Repeats()
		for entry, err := range maptext.Parse(file) {
			if err == nil && !entry.Key.Composite && repeats([]byte(entry.Key.String())) {
				continue
			}
			e := element{key: textKey{entry.Key}}
			for _, v := range entry.Values {
				e.values = append(e.values, cpuValue{v.CPU, textValue{v.Value}})
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func byteElements(m *ebpf.Map) iter.Seq2[element, error] {
	return func(yield func(element, error) bool) {
		for entry, err := range mapentries.All(m) {
			if err != nil {
				yield(element{}, fmt.Errorf("read: %w", err))
				return
			}
			e := element{key: byteKey(entry.Key)}
			for cpu, v := range entry.Values {
				if !mapentries.IsPerCPU(m.Type()) {
					cpu = maptext.NoCPU
				}
				e.values = append(e.values, cpuValue{cpu, byteValue(v)})
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

type textKey struct{ maptext.Value }

func (k textKey) parts(labels []Label) ([]part, error) {
	members := []maptext.Value{k.Value}
	if k.Composite && !k.Array {
		members = k.Members
	}
	if len(members) < len(labels) {
		return nil, fmt.Errorf("%d labels are wanted of a key with %d members", len(labels), len(members))
	}
	parts := make([]part, len(labels))
	for i, label := range labels {
		parts[i] = part{text: members[i].String(), bytes: encode(members[i], label.Size)}
	}
	return parts, nil
}

// encode returns the bytes of a value with a size. It returns nil if the text doesn't tell them, and fewer bytes for a
// text that ends with a zero.
func encode(v maptext.Value, size int) []byte {
	if size == 0 || v.Composite && len(v.Members) == 0 {
		return nil
	}
	if !v.Composite {
		n, err := v.Integer()
		if err != nil {
			return nil
		}
		return integer(n, size)
	}
	if v.Members[0].Composite { // a struct around something, or a union
		return encode(wholeMember(v.Members, size), size)
	}
	if !v.Array && len(v.Members) == 1 {
		return encode(v.Members[0], size)
	}
	each := elementSize(v.Members, size)
	if each == 0 {
		return nil
	}
	var bytes []byte
	for _, m := range v.Members {
		bytes = append(bytes, encode(m, each)...)
	}
	return bytes
}

// elementSize returns the size of the elements of an array, or 0 if the text doesn't tell it. Of an array of bytes, the
// kernel prints no zero, and nothing after it. It prints bytes as characters if it can.
func elementSize(members []maptext.Value, size int) int {
	if len(members) == size {
		return 1
	}
	wide := false
	for _, m := range members {
		if strings.HasPrefix(m.Scalar, "'") {
			return 1
		}
		n, err := m.Integer()
		wide = wide || err == nil && (n == 0 || n > math.MaxUint8)
	}
	each := size / len(members)
	if !wide || each*len(members) != size || each != 2 && each != 4 && each != 8 {
		return 0
	}
	return each
}

// wholeMember returns the member of a union that has all of its bytes: one with large elements, or else the first one.
func wholeMember(members []maptext.Value, size int) maptext.Value {
	whole := members[0]
	for _, m := range members[1:] {
		if n := len(m.Members); n > 0 && n < size && size%n == 0 && !m.Members[0].Composite {
			whole = m
		}
	}
	return whole
}

// integer returns the bytes of an integer in this machine's byte order.
func integer(n uint64, size int) []byte {
	bytes := make([]byte, max(size, 8))
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		binary.NativeEndian.PutUint64(bytes, n)
		return bytes[:size]
	}
	binary.NativeEndian.PutUint64(bytes[len(bytes)-8:], n)
	return bytes[len(bytes)-size:]
}

type textValue struct{ maptext.Value }

func (v textValue) numbers(m *Metric) ([]float64, error) {
	field, err := v.At(m.path...)
	if err != nil {
		return nil, err
	}
	members := []maptext.Value{field}
	if m.Type == TypeHistogram && field.Composite {
		members = field.Members
	}
	numbers := make([]float64, len(members))
	for i, member := range members {
		if numbers[i], err = member.Number(); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

type byteKey []byte

func (k byteKey) String() string { return fmt.Sprintf("%#x", []byte(k)) }

func (k byteKey) parts(labels []Label) ([]part, error) {
	parts, rest := make([]part, len(labels)), []byte(k)
	for i, label := range labels {
		if label.Size > len(rest) {
			return nil, fmt.Errorf("label %s: the key has only %d bytes", label.Name, len(k))
		}
		parts[i].bytes = rest[:label.Size]
		rest = rest[min(label.Size+label.Padding, len(rest)):]
	}
	return parts, nil
}

type byteValue []byte

func (v byteValue) numbers(m *Metric) ([]float64, error) {
	at, size, count := 0, m.Size, 1
	switch {
	case m.Offset != nil:
		at = *m.Offset
		if m.Type == TypeHistogram {
			count = m.BucketMax + 1
		}
	case len(v) <= 8:
		size = len(v) // a plain number
	default:
		return nil, fmt.Errorf("a value of %d bytes isn't a number: set field, or offset and size", len(v))
	}
	numbers := make([]float64, count)
	for i := range numbers {
		if at+size > len(v) {
			return nil, fmt.Errorf("the value has only %d bytes", len(v))
		}
		n, err := unsigned(v[at : at+size])
		if err != nil {
			return nil, err
		}
		numbers[i], at = float64(n), at+size
		if unused := 64 - 8*size; m.Signed {
			numbers[i] = float64(int64(n<<unused) >> unused) //nolint:gosec // only the bits matter
		}
	}
	return numbers, nil
}

// unsigned returns an unsigned integer in this machine's byte order.
func unsigned(bytes []byte) (uint64, error) {
	switch len(bytes) {
	case 1:
		return uint64(bytes[0]), nil
	case 2:
		return uint64(binary.NativeEndian.Uint16(bytes)), nil
	case 4:
		return uint64(binary.NativeEndian.Uint32(bytes)), nil
	case 8:
		return binary.NativeEndian.Uint64(bytes), nil
	}
	return 0, fmt.Errorf("a number can't have %d bytes", len(bytes))
}
