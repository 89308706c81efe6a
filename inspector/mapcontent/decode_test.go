// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapcontent

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

var (
	u8    = &btf.Int{Name: "unsigned char", Size: 1}
	char  = &btf.Int{Name: "char", Size: 1, Encoding: btf.Signed}
	u16   = &btf.Int{Name: "unsigned short", Size: 2}
	u32   = &btf.Int{Name: "unsigned int", Size: 4}
	s32   = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	u64   = &btf.Int{Name: "unsigned long", Size: 8}
	u128  = &btf.Int{Name: "unsigned __int128", Size: 16}
	truth = &btf.Int{Name: "_Bool", Size: 1, Encoding: btf.Bool}
	be16  = &btf.Typedef{Name: "__be16", Type: &btf.Typedef{Name: "__u16", Type: u16}}
	port  = &btf.Typedef{Name: "port", Type: be16}
)

func arrayOf(n uint32, t btf.Type) *btf.Array { return &btf.Array{Type: t, Nelems: n, Index: u32} }

// laidOut returns values one after the other, in the machine's byte order.
func laidOut(t *testing.T, values ...any) []byte {
	t.Helper()
	var out []byte
	var err error
	for _, v := range values {
		if out, err = binary.Append(out, binary.NativeEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestDecode(t *testing.T) {
	counters := &btf.Struct{Name: "datarec", Size: 16, Members: []btf.Member{
		{Name: "rx_packets", Type: u64}, {Name: "rx_bytes", Type: u64, Offset: 64},
	}}
	verdict := &btf.Enum{Name: "verdict", Size: 4, Signed: true, Values: []btf.EnumValue{{Name: "UNSPEC", Value: math.MaxUint64}, {Name: "OK", Value: 0}}}
	for name, test := range map[string]struct {
		typ  btf.Type
		data []byte
		want string
	}{
		"no type":              {nil, []byte{1, 0xab}, `"0x01ab"`},
		"u8":                   {u8, []byte{200}, `200`},
		"signed":               {s32, laidOut(t, int32(-5)), `-5`},
		"largest":              {u64, laidOut(t, uint64(math.MaxUint64)), `18446744073709551615`},
		"128 bits":             {u128, make([]byte, 16), `"0x00000000000000000000000000000000"`},
		"boolean":              {truth, []byte{1}, `true`},
		"network order":        {port, []byte{0x1f, 0x90}, `8080`},
		"IPv4":                 {&btf.Typedef{Name: "__be32", Type: u32}, []byte{10, 97, 0, 2}, `"10.97.0.2"`},
		"IPv4 in a structure":  {&btf.Struct{Name: "in_addr", Size: 4, Members: []btf.Member{{Name: "s_addr", Type: &btf.Typedef{Name: "__be32", Type: u32}}}}, []byte{10, 97, 0, 2}, `"10.97.0.2"`},
		"IPv6":                 {&btf.Struct{Name: "in6_addr", Size: 16}, []byte{0xfd, 0, 15: 1}, `"fd00::1"`},
		"MAC":                  {arrayOf(6, u8), []byte{2, 0, 0, 0, 0, 0xfe}, `"02:00:00:00:00:fe"`},
		"no MAC":               {arrayOf(6, char), []byte("abc\x00\x00\x00"), `"abc"`},
		"qualified":            {&btf.Const{Type: &btf.Volatile{Type: u32}}, laidOut(t, uint32(9)), `9`},
		"enumerator":           {verdict, laidOut(t, int32(-1)), `"UNSPEC"`},
		"no enumerator":        {verdict, laidOut(t, int32(7)), `7`},
		"string":               {arrayOf(8, char), []byte("eth0\x00\x00\x00\x00"), `"eth0"`},
		"string before others": {arrayOf(6, char), []byte("sh\x00pe\x00"), `"sh"`},
		"no string":            {arrayOf(4, char), []byte("\x00b\x00\x00"), `"0x00620000"`},
		"not UTF-8":            {arrayOf(2, char), []byte{0xff, 0}, `"0xff00"`},
		"escape sequence":      {arrayOf(5, char), []byte("\x1b[2J\x00"), `"\u001b[2J"`},
		"bytes":                {arrayOf(4, u8), []byte{10, 0, 0, 1}, `"0x0a000001"`},
		"numbers":              {arrayOf(2, u16), laidOut(t, uint16(1), uint16(2)), `[1,2]`},
		"structure":            {counters, laidOut(t, uint64(3), uint64(180)), `{"rx_packets":3,"rx_bytes":180}`},
		"too short":            {counters, []byte{1, 2}, `"0x0102"`},
		"longer than its type": {u32, laidOut(t, uint32(1), uint32(2)), `1`},
		"pointer":              {&btf.Pointer{Target: u32}, laidOut(t, uint64(0)), `"0x0000000000000000"`},
		"float":                {&btf.Float{Size: 8}, laidOut(t, 1.5), `1.5`},
		"no number":            {&btf.Float{Size: 4}, laidOut(t, float32(math.Inf(1))), `"+Inf"`},
		"union": {
			&btf.Union{Size: 4, Members: []btf.Member{{Name: "word", Type: u32}, {Name: "bytes", Type: arrayOf(4, u8)}}},
			[]byte{0, 0, 0, 0},
			`{"word":0,"bytes":"0x00000000"}`,
		},
		"anonymous member": {&btf.Struct{Size: 8, Members: []btf.Member{
			{Type: &btf.Struct{Size: 4, Members: []btf.Member{{Name: "a", Type: u32}}}}, {Name: "b", Type: u32, Offset: 32},
		}}, laidOut(t, uint32(1), uint32(2)), `{"a":1,"b":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(decode(test.typ, test.data))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestBitfields(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the data is that of a little-endian machine")
	}
	flags := &btf.Struct{Size: 4, Members: []btf.Member{
		{Name: "low", Type: u32, BitfieldSize: 3},
		{Name: "across", Type: u32, Offset: 3, BitfieldSize: 10},
		{Name: "signed", Type: s32, Offset: 13, BitfieldSize: 4},
		{Name: "outside", Type: u32, Offset: 30, BitfieldSize: 8},
	}}
	got, err := json.Marshal(decode(flags, laidOut(t, uint32(5|(700<<3)|(0xf<<13)))))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"low":5,"across":700,"signed":-1,"outside":null}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The type of a small value can be endlessly nested.
func TestDecodeIsBounded(t *testing.T) {
	var inner btf.Type = u32
	for range maxDepth - 1 {
		inner = &btf.Union{Size: 4, Members: []btf.Member{{Name: "a", Type: inner}, {Name: "b", Type: inner}}}
	}
	got, err := json.Marshal(decode(inner, make([]byte, 4)))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > 1<<20 {
		t.Errorf("4 bytes became %d", len(got))
	}
}

// A union can have as many members as its type describes, each of them as large as the value.
func TestDecodeOfManyLargeMembersIsBounded(t *testing.T) {
	const size, members = 1 << 17, 1 << 16
	for name, inner := range map[string]btf.Type{
		"bytes": arrayOf(size, u8), "text": arrayOf(size, char), "numbers": arrayOf(size/4, u32),
		"pointer":    &btf.Struct{Size: size, Members: []btf.Member{{Name: "p", Type: &btf.Pointer{Target: u32}}}},
		"structures": arrayOf(size, &btf.Struct{Size: 1, Members: []btf.Member{{Name: "byte", Type: u8}}}),
	} {
		t.Run(name, func(t *testing.T) {
			outer := &btf.Union{Size: size}
			for range members {
				outer.Members = append(outer.Members, btf.Member{Name: "member", Type: inner})
			}
			got, err := json.Marshal(decode(outer, make([]byte, size)))
			if err != nil {
				t.Fatal(err)
			}
			if most := 4 * maxText(make([]byte, size)); len(got) > most {
				t.Errorf("%d bytes became %d, more than %d", size, len(got), most)
			}
			if !strings.HasSuffix(string(got), `"…":"…"}`) {
				t.Errorf("the text doesn't say that it lacks members: …%s", got[len(got)-40:])
			}
		})
	}
}

// Values of a usual shape are decoded as a whole, even large ones.
func TestDecodeOfALargeValue(t *testing.T) {
	element := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "a_counter_of_packets", Type: u32}, {Name: "a_counter_of_bytes", Type: u32, Offset: 32}}}
	got, err := json.Marshal(decode(arrayOf(4096, element), make([]byte, 8*4096)))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(got), elided) || strings.Count(string(got), "packets") != 4096 {
		t.Errorf("%d bytes of text lack values", len(got))
	}
}

func TestSum(t *testing.T) {
	for name, test := range map[string]struct {
		values []any
		want   string
	}{
		"none":         {nil, `null`},
		"numbers":      {[]any{uint64(1), uint64(2)}, `3`},
		"structures":   {[]any{object{{"n", int64(1)}, {"who", "a"}}, object{{"n", int64(-3)}, {"who", "a"}}}, `{"n":-2,"who":"a"}`},
		"what differs": {[]any{object{{"n", 1.5}, {"who", "a"}}, object{{"n", 1.5}, {"who", "b"}}}, `{"n":3,"who":null}`},
		"lists":        {[]any{[]any{uint64(1), uint64(2)}, []any{uint64(3), uint64(4)}}, `[4,6]`},
		"other shapes": {[]any{uint64(1), "x"}, `null`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(sum(test.values))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(uint32(3), uint32(5), uint8(4), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, offset, bits uint32, size uint8, data []byte) {
		s := &btf.Struct{Size: uint32(len(data)), Members: []btf.Member{
			{Name: "bits", Type: s32, Offset: btf.Bits(offset), BitfieldSize: btf.Bits(bits)},
			{Name: "int", Type: &btf.Int{Size: uint32(size)}, Offset: btf.Bits(offset)},
			{Name: "text", Type: arrayOf(uint32(size), char)},
			{Name: "float", Type: &btf.Float{Size: uint32(size)}},
			{Name: "list", Type: arrayOf(uint32(size), u16)},
		}}
		text, err := json.Marshal(decode(s, data))
		if err != nil || !json.Valid(text) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
