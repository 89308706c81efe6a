// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package maptext parses the kernel's text representation of a pinned eBPF map, which a program gets by reading
// the pin as a file. This needs neither the bpf system call nor a capability, only permission to read the file.
//
// The kernel supports this for maps with BTF, of the types array, hash, and LRU hash, per CPU or not. The format
// is that of kernel/bpf/{arraymap,hashtab,btf}.c: a line for each key, and in per-CPU maps, another line for each
// CPU. Structs have no names of fields. According to the first lines of the text, the format can change. This
// package supports the format of Linux 6.18.
package maptext

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// Limits of the parser: the length of a line, which contains one value, and the depth of nested structs.
const (
	maxLine  = 1 << 20
	maxDepth = 32
)

// Entry is one element of a map.
type Entry struct {
	Key Value
	// Values contains one value, or in a per-CPU map, a value for each CPU, in the order of the CPUs.
	Values []CPUValue
}

// NoCPU is the CPU of a value in a map that isn't per CPU.
const NoCPU = -1

// CPUValue is a value with its CPU, which is NoCPU in maps that aren't per CPU.
type CPUValue struct {
	CPU   int
	Value Value
}

// Value is a number or another scalar, as printed by the kernel, or the members of a struct, union, or array.
type Value struct {
	Scalar  string
	Members []Value
	// Composite is true for structs, unions, and arrays, which can have no members. Array is also true for arrays.
	Composite, Array bool
}

// At returns the nested member at a path of positions, starting at 0. Without a path, it returns the value itself.
func (v Value) At(path ...int) (Value, error) {
	for depth, position := range path {
		if position < 0 || position >= len(v.Members) {
			return Value{}, fmt.Errorf("no member %d at depth %d: there are %d", position, depth, len(v.Members))
		}
		v = v.Members[position]
	}
	return v, nil
}

// Number returns a scalar as a number. Characters become their codes, and booleans become 0 and 1.
func (v Value) Number() (float64, error) {
	n, err := v.Integer()
	if strings.HasPrefix(v.Scalar, "-") {
		return float64(int64(n)), err //nolint:gosec // the same bits
	}
	return float64(n), err
}

// Integer returns a scalar as an integer. Negative numbers are in two's complement.
func (v Value) Integer() (uint64, error) {
	if v.Composite {
		return 0, fmt.Errorf("%s is a struct or an array, not a number", v)
	}
	switch s := v.Scalar; {
	case s == "true":
		return 1, nil
	case s == "false":
		return 0, nil
	case len(s) == 3 && s[0] == '\'' && s[2] == '\'':
		return uint64(s[1]), nil
	case strings.HasPrefix(s, "-"):
		n, err := strconv.ParseInt(s, 10, 64)
		return uint64(n), err //nolint:gosec // the same bits
	default:
		return strconv.ParseUint(s, 0, 64)
	}
}

// String returns the value in the kernel's format.
func (v Value) String() string {
	if !v.Composite {
		return v.Scalar
	}
	start := byte('{')
	if v.Array {
		start = '['
	}
	var text strings.Builder
	text.WriteByte(start)
	for _, member := range v.Members {
		text.WriteString(member.String())
		text.WriteByte(',')
	}
	text.WriteByte(closing[start])
	return text.String()
}

// Parse yields entries one by one, so that a large map doesn't have to fit into memory. It ends after the first
// error, which contains the number of the line.
func Parse(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		p := parser{next: func() (string, bool) {
			ok := lines.Scan()
			return lines.Text(), ok
		}}
		for {
			entry, err := p.entry()
			if errors.Is(err, io.EOF) {
				err = lines.Err()
				if err == nil {
					return
				}
				err = fmt.Errorf("after line %d: %w", p.line, err)
			} else if err != nil {
				err = fmt.Errorf("line %d: %w", p.line, err)
			}
			if !yield(entry, err) || err != nil {
				return
			}
		}
	}
}

type parser struct {
	next func() (string, bool)
	line int
}

// entry returns the next entry, or io.EOF if there is none.
func (p *parser) entry() (Entry, error) {
	text, err := p.content()
	if err != nil {
		return Entry{}, err
	}
	key, rest, err := value(text, 0)
	if err != nil {
		return Entry{}, fmt.Errorf("key: %w", err)
	}
	rest, ok := strings.CutPrefix(rest, ": ")
	if !ok {
		return Entry{}, fmt.Errorf("no colon behind the key %s", key)
	}
	if rest == "{" {
		values, err := p.perCPU()
		return Entry{Key: key, Values: values}, err
	}
	v, err := whole(rest)
	return Entry{Key: key, Values: []CPUValue{{CPU: NoCPU, Value: v}}}, err
}

// content returns the next line that isn't empty or a comment.
func (p *parser) content() (string, error) {
	for {
		text, ok := p.next()
		if !ok {
			return "", io.EOF
		}
		p.line++
		if text != "" && text[0] != '#' {
			return text, nil
		}
	}
}

// perCPU parses the values for the CPUs, up to the closing brace.
func (p *parser) perCPU() ([]CPUValue, error) {
	var values []CPUValue
	for {
		text, ok := p.next()
		if !ok {
			return nil, errors.New("it ends among the values of CPUs")
		}
		p.line++
		if text == "}" {
			return values, nil
		}
		rest, ok := strings.CutPrefix(text, "\tcpu")
		if !ok {
			return nil, fmt.Errorf("%.40q is not a CPU's value", text)
		}
		number, rest, ok := strings.Cut(rest, ": ")
		cpu, err := strconv.ParseUint(number, 10, 31)
		if !ok || err != nil {
			return nil, fmt.Errorf("%.40q is not a CPU's value", text)
		}
		v, err := whole(rest)
		if err != nil {
			return nil, err
		}
		values = append(values, CPUValue{CPU: int(cpu), Value: v})
	}
}

// whole parses a text that consists of exactly one value.
func whole(text string) (Value, error) {
	v, rest, err := value(text, 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("%.40q behind a value", rest)
	}
	return v, err
}

var closing = map[byte]byte{'{': '}', '[': ']'}

// value parses the value at the start of text, and returns the rest of the text.
func value(text string, depth int) (Value, string, error) {
	if text == "" {
		return Value{}, "", errors.New("a value is missing")
	}
	end, composite := closing[text[0]]
	if !composite {
		return scalar(text)
	}
	if depth == maxDepth {
		return Value{}, "", fmt.Errorf("more than %d structs in each other", maxDepth)
	}
	v, rest := Value{Composite: true, Array: end == ']'}, text[1:]
	for rest != "" && rest[0] != end {
		var member Value
		var err error
		if member, rest, err = value(rest, depth+1); err != nil {
			return Value{}, "", err
		}
		v.Members = append(v.Members, member)
		// A comma follows each member, including the last one. After the last one, it is optional.
		if comma, ok := strings.CutPrefix(rest, ","); ok {
			rest = comma
		} else if rest == "" || rest[0] != end {
			return Value{}, "", errors.New("no comma behind a member")
		}
	}
	if rest == "" {
		return Value{}, "", fmt.Errorf("no %c at the end", end)
	}
	return v, rest[1:], nil
}

// scalar parses a number, a quoted character, or the name of an enumerator.
func scalar(text string) (Value, string, error) {
	if len(text) >= 3 && text[0] == '\'' && text[2] == '\'' {
		return Value{Scalar: text[:3]}, text[3:], nil
	}
	end := strings.IndexFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-'
	})
	if end < 0 {
		end = len(text)
	}
	if end == 0 {
		return Value{}, "", fmt.Errorf("%.40q is no value", text)
	}
	return Value{Scalar: text[:end]}, text[end:], nil
}
