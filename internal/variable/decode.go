// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package variable

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// Decode returns a variable's bytes as a value, in JSON. It returns false if there are no values of the type.
func Decode(content []byte, t reader.Type, order Order) (string, bool) {
	if !hasValues(t, uint32(len(content))) { //nolint:gosec // of an object file
		return "", false
	}
	return decode(content, element{t.Name, t}, order), true
}

func decode(content []byte, e element, order Order) string {
	if len(e.Lengths) == 0 {
		return decodeNumber(content, e, order)
	}
	length, part := e.part()
	if len(part.Lengths) == 0 && e.Width == 1 && e.Kind == reader.Signed {
		if text, is := printable(content); is {
			return strconv.Quote(text)
		}
	}
	items := []string{}
	for i := range length {
		items = append(items, decode(content[i*part.size():(i+1)*part.size()], part, order))
	}
	// What is left out is zero.
	for len(items) > 1 && items[len(items)-1] == items[len(items)-2] && items[len(items)-1] == decode(make([]byte, part.size()), part, order) {
		items = items[:len(items)-1]
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// printable returns a text without the zeros at its end.
func printable(content []byte) (string, bool) {
	text := string(bytes.TrimRight(content, "\x00"))
	return text, text != "" && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func decodeNumber(content []byte, e element, order Order) string {
	var n uint64
	switch e.Width {
	case 1:
		n = uint64(content[0])
	case 2: //nolint:mnd // bytes
		n = uint64(order.Uint16(content))
	case 4: //nolint:mnd // bytes
		n = uint64(order.Uint32(content))
	default:
		n = order.Uint64(content)
	}
	const bits = 8
	if e.Kind == reader.Bool {
		return strconv.FormatBool(n != 0)
	}
	if e.Kind == reader.Signed {
		unused := bits * (8 - e.Width)                         //nolint:mnd // bytes of n
		return strconv.FormatInt(int64(n<<unused)>>unused, 10) //nolint:gosec // the same bits
	}
	const exact = 1<<63 - 1
	if n > exact {
		return strconv.Quote(strconv.FormatUint(n, 10))
	}
	return strconv.FormatUint(n, 10)
}
