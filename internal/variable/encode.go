// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package variable converts the values of global variables that users write, such as numbers and strings, to the bytes
// that the bytecode has in memory, and back.
package variable

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// MaxSize is the maximum size of all variables that an object sets, in bytes. Bytecode can declare larger ones, so it is
// compared with their sizes before there is memory for them.
const MaxSize = 1 << 20

// maxErrors is the maximum number of errors in a message.
const maxErrors = 5

// Order is a byte order.
type Order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Encode returns the bytes of each variable that an object sets, in a byte order. Of an array, the elements without a value
// are zero. The error has a line for each value that doesn't fit its variable.
func Encode(values map[string]json.RawMessage, variables []reader.Variable, order Order) (map[string][]byte, error) {
	byName := map[string]reader.Variable{}
	for _, v := range variables {
		byName[v.Name] = v
	}
	var errs []error
	size := uint64(0)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v, there := byName[name]
		switch size += uint64(v.Size); {
		case !there:
			meant := ""
			if len(errs) < maxErrors { // the others aren't in the message, and comparing names takes time
				meant = nearest.Question(name, maps.Keys(byName))
			}
			errs = append(errs, problem.Errorf(problem.GlobalUnknown, "globals.%s: the bytecode has no global variable %s%s", name, name, meant))
		case v.Type == nil:
			errs = append(errs, problem.Errorf(problem.GlobalWithoutValues, "globals.%s: the bytecode doesn't describe the type of this variable: set its bytes in globaldata", name))
		case !hasValues(*v.Type, v.Size):
			errs = append(errs, problem.Errorf(problem.GlobalWithoutValues, "globals.%s: the type of this variable is %s, which has no values: set its bytes in globaldata", name, v.Type.Name))
		}
	}
	switch {
	case len(errs) > 0:
		return nil, join(errs)
	case size > MaxSize:
		return nil, problem.Errorf(problem.GlobalsTooLarge, "globals: the variables have %d bytes, and at most %d can be set", size, MaxSize)
	}
	encoded := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := byName[name]
		content, err := encode("globals."+name, values[name], element{v.Type.Name, *v.Type}, order, make([]byte, 0, v.Size))
		errs = append(errs, err)
		encoded[name] = content
	}
	return encoded, join(errs)
}

// hasValues reports whether a type describes the values of a variable with a size in bytes.
func hasValues(t reader.Type, size uint32) bool {
	if t.Kind == "" || size == 0 || !slices.Contains([]uint32{1, 2, 4, 8}, t.Width) {
		return false
	}
	all := uint64(t.Width)
	for _, length := range t.Lengths {
		if all *= uint64(length); length == 0 || all > uint64(size) {
			return false
		}
	}
	return all == uint64(size)
}

func join(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more", more))
	}
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return &problem.Error{Reason: problem.Of(errs[0]), Err: errors.New(strings.Join(texts, "; "))}
}

// element is a variable, or a part of an array.
type element struct {
	name string
	reader.Type
}

// part returns the number of elements of an array, and one of them.
func (e element) part() (length int, part element) {
	length, part = int(e.Lengths[0]), e
	part.Lengths = e.Lengths[1:]
	// The name of __u16[2][3] ends with the length of the innermost array.
	if begin, end := strings.Index(e.name, "["), strings.Index(e.name, "]"); begin >= 0 && end > begin {
		part.name = e.name[:begin] + e.name[end+1:]
	}
	return length, part
}

// size returns the size in bytes.
func (e element) size() int {
	size := int(e.Width)
	for _, length := range e.Lengths {
		size *= int(length)
	}
	return size
}

// encode appends a value. path says where it is.
func encode(path string, value json.RawMessage, e element, order Order, to []byte) ([]byte, error) {
	if len(e.Lengths) == 0 {
		return number(path, value, e, order, to)
	}
	start := len(to)
	length, part := e.part()
	if text, is := stringIn(value); is && len(part.Lengths) == 0 && e.Width == 1 && e.Kind != reader.Bool {
		if len(text) > length {
			return nil, problem.Errorf(problem.GlobalOutOfRange, "%s: %s has %d bytes, and %s %d", path, shown(value), len(text), e.name, length)
		}
		return pad(append(to, text...), start+length), nil
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		return nil, problem.Errorf(problem.GlobalOfAnotherType, "%s: %s isn't a list, as %s requires", path, shown(value), e.name)
	}
	if len(list) > length {
		return nil, problem.Errorf(problem.GlobalOutOfRange, "%s: the list has %d values, and %s %d", path, len(list), e.name, length)
	}
	for i, item := range list {
		var err error
		if to, err = encode(fmt.Sprintf("%s[%d]", path, i), item, part, order, to); err != nil {
			return nil, err
		}
	}
	return pad(to, start+length*part.size()), nil
}

func pad(content []byte, size int) []byte { return append(content, make([]byte, size-len(content))...) }

func stringIn(value json.RawMessage) (text string, is bool) {
	return text, bytes.HasPrefix(bytes.TrimSpace(value), []byte{'"'}) && json.Unmarshal(value, &text) == nil
}

// number appends a number, or a boolean. A number can also be a string, because JSON's numbers above 2⁶³-1 aren't exact in
// Kubernetes.
func number(path string, value json.RawMessage, e element, order Order, to []byte) ([]byte, error) {
	text := string(bytes.TrimSpace(value))
	if inside, is := stringIn(value); is {
		text = strings.TrimSpace(inside)
	}
	if e.Kind == reader.Bool {
		switch text {
		case "true", "1":
			return put(1, e.Width, order, to), nil
		case "false", "0":
			return put(0, e.Width, order, to), nil
		}
		return nil, problem.Errorf(problem.GlobalOfAnotherType, "%s: %s is neither true nor false", path, shown(value))
	}
	const bits = 8
	lowest, highest := "0", strconv.FormatUint(1<<(bits*e.Width)-1, 10)
	if e.Kind == reader.Signed {
		lowest, highest = strconv.FormatInt(-1<<(bits*e.Width-1), 10), strconv.FormatInt(1<<(bits*e.Width-1)-1, 10)
	}
	var parsed uint64
	var err error
	if e.Kind == reader.Signed {
		var signed int64
		signed, err = strconv.ParseInt(text, 0, int(bits*e.Width))
		parsed = uint64(signed) //nolint:gosec // the same bits
	} else {
		parsed, err = strconv.ParseUint(text, 0, int(bits*e.Width))
	}
	switch {
	case err == nil:
		return put(parsed, e.Width, order, to), nil
	case isNegative(text):
		return nil, problem.Errorf(problem.GlobalOutOfRange, "%s: %s is too small for %s (%s to %s)", path, text, e.name, lowest, highest)
	case errors.Is(err, strconv.ErrRange):
		return nil, problem.Errorf(problem.GlobalOutOfRange, "%s: %s is too large for %s (%s to %s)", path, text, e.name, lowest, highest)
	}
	return nil, problem.Errorf(problem.GlobalOfAnotherType, "%s: %s isn't a whole number, as %s requires (%s to %s)", path, shown(value), e.name, lowest, highest)
}

// isNegative reports whether a text is a negative number.
func isNegative(text string) bool {
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		return false
	}
	_, err := strconv.ParseUint(digits, 0, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

func put(n uint64, width uint32, order Order, to []byte) []byte {
	switch width {
	case 1:
		return append(to, byte(n)) //nolint:gosec // it was parsed with this width
	case 2: //nolint:mnd // bytes
		return order.AppendUint16(to, uint16(n)) //nolint:gosec // it was parsed with this width
	case 4: //nolint:mnd // bytes
		return order.AppendUint32(to, uint32(n)) //nolint:gosec // it was parsed with this width
	default:
		return order.AppendUint64(to, n)
	}
}

// shown returns a value for a message.
func shown(value json.RawMessage) string {
	const most = 40
	text := string(value)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
