// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package mapcontent reads the content of maps in the kernel, and decodes it with the
// types from their BTF.
package mapcontent

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/cilium/ebpf/btf"
)

// object is a struct, with its fields in order.
type object []field

type field struct {
	name  string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// The types come from the program that loaded the map, which isn't trusted: a small
// value can consist of endlessly nested unions, and a large one of a union whose members
// all have its size. Data beyond these limits becomes hexadecimal digits.
const (
	maxDepth  = 32
	maxValues = 1 << 14
)

// elided stands for the members and elements of a value that has too much text.
const elided = "…"

// maxText limits the names and the data in the text of a value, in bytes. It is enough for a
// struct whose names are much longer than its data.
func maxText(data []byte) int { return 1<<16 + 32*len(data) }

// decode decodes data according to its type, and returns a value that can be marshaled
// to JSON. Data that doesn't fit the type, and types without data, become hexadecimal
// digits.
func decode(typ btf.Type, data []byte) any {
	d := decoder{left: maxValues, text: maxText(data)}
	return d.decode(typ, data, 0)
}

// decoder counts the values that it can still create, and the bytes of text.
type decoder struct{ left, text int }

func (d *decoder) decode(typ btf.Type, data []byte, depth int) any {
	if typ == nil {
		return d.hexadecimal(data)
	}
	size, err := btf.Sizeof(typ)
	if err != nil || size > len(data) {
		return d.hexadecimal(data)
	}
	data = data[:size]
	if depth > maxDepth || d.left <= 0 {
		return d.hexadecimal(data)
	}
	d.left--
	switch t := btf.UnderlyingType(typ).(type) {
	case *btf.Array:
		return d.array(t, data, depth)
	case *btf.Struct:
		if _, is := address(typ, data); !is {
			return d.members(t.Members, data, depth)
		}
	case *btf.Union:
		return d.members(t.Members, data, depth)
	}
	if !d.spend(len(data)) {
		return elided
	}
	return leaf(typ, data)
}

// spend reports whether there is room for the text of so many bytes of data.
func (d *decoder) spend(bytes int) bool {
	d.text -= 8 + bytes
	return d.text > 0
}

func (d *decoder) hexadecimal(data []byte) string {
	if !d.spend(len(data)) {
		return elided
	}
	return hexadecimal(data)
}

// leaf decodes data whose type has no parts, or that is an address.
func leaf(typ btf.Type, data []byte) any {
	if address, ok := address(typ, data); ok {
		return address
	}
	switch t := btf.UnderlyingType(typ).(type) {
	case *btf.Int:
		return integer(t, data, bigEndian(typ))
	case *btf.Enum:
		return enumerator(t, data)
	case *btf.Float:
		return float(data)
	default: // pointers, mostly
		return hexadecimal(data)
	}
}

// address decodes the types that only addresses have: the kernel's in_addr, __be32, and in6_addr are IP addresses, and
// an array of six bytes is a MAC address (ETH_ALEN). What the compiler knows as a plain integer stays one.
func address(typ btf.Type, data []byte) (string, bool) {
	switch t := btf.UnderlyingType(typ).(type) {
	case *btf.Int:
		if t.Size == 4 && typedef(typ, "__be32") {
			return netip.AddrFrom4([4]byte(data)).String(), true
		}
	case *btf.Struct:
		switch {
		case t.Name == "in_addr" && len(data) == 4:
			return netip.AddrFrom4([4]byte(data)).String(), true
		case t.Name == "in6_addr" && len(data) == 16:
			return netip.AddrFrom16([16]byte(data)).String(), true
		}
	case *btf.Array:
		element, ok := btf.UnderlyingType(t.Type).(*btf.Int)
		if ok && element.Size == 1 && element.Name != "char" && len(data) == 6 {
			return net.HardwareAddr(data).String(), true
		}
	}
	return "", false
}

func hexadecimal(data []byte) string { return "0x" + hex.EncodeToString(data) }

// bigEndian reports whether a type is one of the kernel's typedefs for integers in
// network byte order.
func bigEndian(typ btf.Type) bool { return typedef(typ, "__be16", "__be64") }

// typedef reports whether a type is one of the named typedefs, or a typedef of one.
func typedef(typ btf.Type, names ...string) bool {
	t, ok := btf.As[*btf.Typedef](typ)
	for ok {
		if slices.Contains(names, t.Name) {
			return true
		}
		t, ok = btf.As[*btf.Typedef](t.Type)
	}
	return false
}

func integer(t *btf.Int, data []byte, network bool) any {
	if t.Encoding&btf.Bool != 0 {
		return slices.ContainsFunc(data, func(b byte) bool { return b != 0 })
	}
	order := binary.ByteOrder(binary.NativeEndian)
	if network {
		order = binary.BigEndian
	}
	var n uint64
	switch len(data) {
	case 1:
		n = uint64(data[0])
	case 2:
		n = uint64(order.Uint16(data))
	case 4:
		n = uint64(order.Uint32(data))
	case 8:
		n = order.Uint64(data)
	default: // __int128
		return hexadecimal(data)
	}
	return number(n, len(data)*8, t.Encoding&btf.Signed != 0)
}

// number returns an integer with the given number of bits.
func number(n uint64, bits int, signed bool) any {
	if !signed {
		return n
	}
	return int64(n<<(64-bits)) >> (64 - bits) //nolint:gosec // only the bits matter
}

func enumerator(t *btf.Enum, data []byte) any {
	value := integer(&btf.Int{Size: t.Size, Encoding: signedness(t.Signed)}, data, false)
	for _, v := range t.Values {
		named := number(v.Value, 64, t.Signed)
		if len(data) < 8 {
			named = number(v.Value&(1<<(8*len(data))-1), 8*len(data), t.Signed)
		}
		if named == value {
			return v.Name
		}
	}
	return value
}

func signedness(signed bool) btf.IntEncoding {
	if signed {
		return btf.Signed
	}
	return btf.Unsigned
}

func float(data []byte) any {
	var f float64
	switch len(data) {
	case 4:
		f = float64(math.Float32frombits(binary.NativeEndian.Uint32(data)))
	case 8:
		f = math.Float64frombits(binary.NativeEndian.Uint64(data))
	default:
		return hexadecimal(data)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64) // JSON has no such number
	}
	return f
}

func (d *decoder) array(t *btf.Array, data []byte, depth int) any {
	if element, ok := btf.UnderlyingType(t.Type).(*btf.Int); ok && element.Size == 1 {
		if !d.spend(len(data)) {
			return elided
		}
		if address, ok := address(t, data); ok {
			return address
		}
		if text, ok := text(data); ok && element.Name == "char" {
			return text
		}
		return hexadecimal(data)
	}
	size, err := btf.Sizeof(t.Type)
	if err != nil || size == 0 {
		return d.hexadecimal(data)
	}
	out := []any{}
	for len(data) >= size {
		if d.text <= 0 {
			return append(out, elided)
		}
		out = append(out, d.decode(t.Type, data[:size], depth+1))
		data = data[size:]
	}
	return out
}

// text returns data as a C string, and whether it is one. What follows the first zero doesn't matter, as in bpftool:
// helpers such as bpf_probe_read_kernel_str leave there what was in the buffer before.
func text(data []byte) (string, bool) {
	before, after, _ := bytes.Cut(data, []byte{0})
	return string(before), utf8.Valid(before) && (len(before) > 0 || len(bytes.Trim(after, "\x00")) == 0)
}

func (d *decoder) members(ms []btf.Member, data []byte, depth int) any {
	out := object{}
	for _, m := range ms {
		if !d.spend(len(m.Name)) {
			return append(out, field{elided, elided})
		}
		var value any
		if m.BitfieldSize > 0 {
			value = bitfield(m, data)
		} else if offset := int(m.Offset.Bytes()); offset <= len(data) {
			value = d.decode(m.Type, data[offset:], depth+1)
		}
		if nested, ok := value.(object); ok && m.Name == "" { // an anonymous struct or union
			out = append(out, nested...)
			continue
		}
		out = append(out, field{m.Name, value})
	}
	return out
}

// bitfield reads bits, starting with the least significant bit on little-endian
// machines, and with the most significant bit on others. C compilers use this layout.
func bitfield(m btf.Member, data []byte) any {
	offset, bits := int(m.Offset), int(m.BitfieldSize)
	if bits > 64 || (offset+bits+7)/8 > len(data) {
		return nil
	}
	window := slices.Clone(data[offset/8 : (offset+bits+7)/8])
	shift := offset % 8
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		slices.Reverse(window)
	} else {
		shift = (8 - (offset+bits)%8) % 8
	}
	n := new(big.Int).Rsh(new(big.Int).SetBytes(window), uint(shift))
	n.And(n, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(bits)), big.NewInt(1)))
	signed := false
	if t, ok := btf.UnderlyingType(m.Type).(*btf.Int); ok {
		signed = t.Encoding&btf.Signed != 0
	}
	return number(n.Uint64(), bits, signed)
}

// sum adds the values of several CPUs, number by number. Other values are kept if they
// are the same on all CPUs, and are nil otherwise.
func sum(values []any) any {
	if len(values) == 0 {
		return nil
	}
	total := values[0]
	for _, v := range values[1:] {
		total = plus(total, v)
	}
	return total
}

func plus(a, b any) any {
	switch a := a.(type) {
	case uint64:
		return added(a, b)
	case int64:
		return added(a, b)
	case float64:
		return added(a, b)
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			out := make([]any, len(a))
			for i := range a {
				out[i] = plus(a[i], b[i])
			}
			return out
		}
	case object:
		if b, ok := b.(object); ok && len(a) == len(b) {
			out := make(object, len(a))
			for i := range a {
				out[i] = field{a[i].name, plus(a[i].value, b[i].value)}
			}
			return out
		}
	default: // strings and booleans
		if a == b {
			return a
		}
	}
	return nil
}

// added returns nil if b isn't a number of the same type.
func added[N uint64 | int64 | float64](a N, b any) any {
	if b, ok := b.(N); ok {
		return a + b
	}
	return nil
}
