// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package variable

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

func kind(name string, k reader.Kind, width uint32, lengths ...uint32) reader.Variable {
	size := width
	for _, n := range lengths {
		size *= n
	}
	return reader.Variable{Size: size, Type: &reader.Type{Name: name, Kind: k, Width: width, Lengths: lengths}}
}

var (
	u8  = kind("__u8", reader.Unsigned, 1)
	u16 = kind("__u16", reader.Unsigned, 2)
	s32 = kind("int", reader.Signed, 4)
	u64 = kind("__u64", reader.Unsigned, 8)
	s64 = kind("__s64", reader.Signed, 8)
	yes = kind("_Bool", reader.Bool, 1)
	txt = kind("char[6]", reader.Signed, 1, 6)
	mac = kind("unsigned char[6]", reader.Unsigned, 1, 6)
	two = kind("__u16[2]", reader.Unsigned, 2, 2)
	box = kind("__u16[2][3]", reader.Unsigned, 2, 2, 3)
)

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variable    reader.Variable
		value       string
		little, big string
		err         string
	}{
		{u8, `255`, "\xff", "\xff", ""},
		{u16, `8080`, "\x90\x1f", "\x1f\x90", ""},
		{u16, `"0x1f90"`, "\x90\x1f", "\x1f\x90", ""},
		{s32, `-2`, "\xfe\xff\xff\xff", "\xff\xff\xff\xfe", ""},
		{u64, `"18446744073709551615"`, "\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", ""},
		{s64, `-9223372036854775808`, "\x00\x00\x00\x00\x00\x00\x00\x80", "\x80\x00\x00\x00\x00\x00\x00\x00", ""},
		{yes, `true`, "\x01", "\x01", ""},
		{yes, `0`, "\x00", "\x00", ""},
		{txt, `"eth0"`, "eth0\x00\x00", "eth0\x00\x00", ""},
		{txt, `"abcdef"`, "abcdef", "abcdef", ""},
		{mac, `[2, 66, 172, 17, 0, 2]`, "\x02\x42\xac\x11\x00\x02", "\x02\x42\xac\x11\x00\x02", ""},
		{two, `[1]`, "\x01\x00\x00\x00", "\x00\x01\x00\x00", ""},
		{two, `[]`, "\x00\x00\x00\x00", "\x00\x00\x00\x00", ""},
		{box, `[[1, 2], [3, 4, 5]]`, "\x01\x00\x02\x00\x00\x00\x03\x00\x04\x00\x05\x00", "\x00\x01\x00\x02\x00\x00\x00\x03\x00\x04\x00\x05", ""},

		{u16, `70000`, "", "", "globals.x: 70000 is too large for __u16 (0 to 65535)"},
		{u16, `-1`, "", "", "globals.x: -1 is too small for __u16 (0 to 65535)"},
		{s32, `2147483648`, "", "", "globals.x: 2147483648 is too large for int (-2147483648 to 2147483647)"},
		{s32, `-2147483649`, "", "", "globals.x: -2147483649 is too small for int (-2147483648 to 2147483647)"},
		{u64, `18446744073709551616`, "", "", "globals.x: 18446744073709551616 is too large for __u64 (0 to 18446744073709551615)"},
		{s64, `9223372036854775808`, "", "", "globals.x: 9223372036854775808 is too large for __s64 (-9223372036854775808 to 9223372036854775807)"},
		{u16, `1.5`, "", "", "globals.x: 1.5 isn't a whole number, as __u16 requires (0 to 65535)"},
		{u16, `"eth0"`, "", "", `globals.x: "eth0" isn't a whole number, as __u16 requires (0 to 65535)`},
		{u16, `true`, "", "", "globals.x: true isn't a whole number, as __u16 requires (0 to 65535)"},
		{u16, `[1]`, "", "", "globals.x: [1] isn't a whole number, as __u16 requires (0 to 65535)"},
		{u16, `{"a":1}`, "", "", `globals.x: {"a":1} isn't a whole number, as __u16 requires (0 to 65535)`},
		{yes, `2`, "", "", "globals.x: 2 is neither true nor false"},
		{txt, `"abcdefg"`, "", "", `globals.x: "abcdefg" has 7 bytes, and char[6] 6`},
		{two, `"eth0"`, "", "", `globals.x: "eth0" isn't a list, as __u16[2] requires`},
		{two, `[1, 2, 3]`, "", "", "globals.x: the list has 3 values, and __u16[2] 2"},
		{two, `[1, 70000]`, "", "", "globals.x[1]: 70000 is too large for __u16 (0 to 65535)"},
		{box, `[[1, 2, 3, 4]]`, "", "", "globals.x[0]: the list has 4 values, and __u16[3] 3"},
		{reader.Variable{Size: 8, Type: &reader.Type{Name: "struct limits"}}, `1`, "", "", "globals.x: the type of this variable is struct limits, which has no values: set its bytes in globaldata"},
		{reader.Variable{Size: 4}, `1`, "", "", "globals.x: the bytecode doesn't describe the type of this variable: set its bytes in globaldata"},
		{kind("char[1048577]", reader.Signed, 1, 1<<20+1), `"a"`, "", "", "globals: the variables have 1048577 bytes, and at most 1048576 can be set"},
		{reader.Variable{Size: 4, Type: u16.Type}, `1`, "", "", "globals.x: the type of this variable is __u16, which has no values: set its bytes in globaldata"},
	} {
		for order, want := range map[Order]string{binary.LittleEndian: test.little, binary.BigEndian: test.big} {
			test.variable.Name = "x"
			got, err := Encode(map[string]json.RawMessage{"x": json.RawMessage(test.value)}, []reader.Variable{test.variable}, order)
			switch {
			case err != nil && test.err == "":
				t.Errorf("%s: %v", test.value, err)
			case test.err != "" && (err == nil || err.Error() != test.err):
				t.Errorf("%s: %v, want %s", test.value, err, test.err)
			case test.err == "" && string(got["x"]) != want:
				t.Errorf("%s, %v: % x, want % x", test.value, order, got["x"], want)
			}
		}
	}
}

// What can't be a type in C has no values, and takes no memory.
func TestEncodeHostileTypes(t *testing.T) {
	t.Parallel()
	large := reader.Variable{Name: "large", Size: 1<<32 - 1, Type: &reader.Type{Name: "char[4294967295]", Kind: reader.Signed, Width: 1, Lengths: []uint32{1<<32 - 1}}}
	many := []reader.Variable{large}
	values := map[string]json.RawMessage{"large": json.RawMessage(`""`)}
	for _, name := range []string{"a", "b", "c"} {
		values[name], large.Name = json.RawMessage(`[]`), name
		many = append(many, large)
	}
	_, err := Encode(values, many, binary.LittleEndian)
	if err == nil || err.Error() != "globals: the variables have 17179869180 bytes, and at most 1048576 can be set" {
		t.Error(err)
	}
	for name, v := range map[string]reader.Variable{
		"larger than the variable": {Size: 4, Type: &reader.Type{Kind: reader.Signed, Width: 4, Lengths: []uint32{1 << 30}}},
		"overflow":                 {Size: 4, Type: &reader.Type{Kind: reader.Signed, Width: 4, Lengths: []uint32{1 << 31, 1 << 31, 4}}},
		"nothing":                  {Size: 4, Type: &reader.Type{Kind: reader.Signed, Width: 4, Lengths: []uint32{1 << 31, 0}}},
		"of three bytes":           {Size: 3, Type: &reader.Type{Kind: reader.Signed, Width: 3}},
	} {
		v.Name = "x"
		if got, err := Encode(map[string]json.RawMessage{"x": json.RawMessage("[]")}, []reader.Variable{v}, binary.LittleEndian); err == nil {
			t.Errorf("%s: %d bytes", name, len(got["x"]))
		}
	}
}

func TestErrorsOfSeveralVariables(t *testing.T) {
	t.Parallel()
	u16, values := u16, map[string]json.RawMessage{}
	u16.Name = "port"
	values["prt"] = json.RawMessage("1")
	_, err := Encode(values, []reader.Variable{u16}, binary.LittleEndian)
	if err == nil || err.Error() != "globals.prt: the bytecode has no global variable prt; did you mean port?" {
		t.Error(err)
	}
	for name := range strings.FieldsSeq("aaaaaaaa bbbbbbbb cccccccc dddddddd eeeeeeee ffffffff") {
		values[name] = json.RawMessage("1")
	}
	if _, err = Encode(values, nil, binary.LittleEndian); err == nil || !strings.HasSuffix(err.Error(), "no global variable eeeeeeee; and 2 more") {
		t.Error(err)
	}
}

// Of names that are equally similar, the message always has the same one: it is in a status, which is written if it differs.
func TestTheNearestVariableStays(t *testing.T) {
	t.Parallel()
	variables := make([]reader.Variable, 20)
	for i := range variables {
		variables[i] = u16
		variables[i].Name = "port" + string(rune('a'+i))
	}
	for range 20 {
		_, err := Encode(map[string]json.RawMessage{"portX": json.RawMessage("1")}, variables, binary.LittleEndian)
		if err == nil || !strings.HasSuffix(err.Error(), "; did you mean porta?") {
			t.Fatal(err)
		}
	}
}

// A decoded value is encoded to the same bytes.
func TestDecode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variable reader.Variable
		bytes    string
		want     string
	}{
		{u16, "\x90\x1f", "8080"},
		{s32, "\xfe\xff\xff\xff", "-2"},
		{u64, "\xff\xff\xff\xff\xff\xff\xff\xff", `"18446744073709551615"`},
		{yes, "\x01", "true"},
		{txt, "eth0\x00\x00", `"eth0"`},
		{txt, "\x00\x00\x00\x00\x00\x00", "[0]"},
		{txt, "\xff\x00\x00\x00\x00\x00", "[-1, 0]"},
		{mac, "\x02\x42\xac\x11\x00\x02", "[2, 66, 172, 17, 0, 2]"},
		{box, "\x01\x00\x02\x00\x00\x00\x03\x00\x04\x00\x05\x00", "[[1, 2, 0], [3, 4, 5]]"},
	} {
		got, ok := Decode([]byte(test.bytes), *test.variable.Type, binary.LittleEndian)
		if !ok || got != test.want {
			t.Errorf("% x: %s, want %s", test.bytes, got, test.want)
		}
		test.variable.Name = "x"
		again, err := Encode(map[string]json.RawMessage{"x": json.RawMessage(got)}, []reader.Variable{test.variable}, binary.LittleEndian)
		if err != nil || !bytes.Equal(again["x"], []byte(test.bytes)) {
			t.Errorf("%s: % x, %v", got, again["x"], err)
		}
	}
	if got, ok := Decode([]byte{1}, *u16.Type, binary.LittleEndian); ok {
		t.Errorf("a byte of two: %s", got)
	}
}

// The message says how to write what was probably meant.
func TestCheckBytes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variable reader.Variable
		little   string
		want     string
	}{
		{u16, "\x90\x1f", ""},
		{u16, "\x07", "globaldata.x has 1 byte, and the variable has 2 bytes (__u16): to set a value instead of bytes, write globals: {x: 7}"},
		{u16, "\x07\x00\x00\x00", "globaldata.x has 4 bytes, and the variable has 2 bytes (__u16): to set a value instead of bytes, write globals: {x: 7}"},
		{txt, "eth0", `globaldata.x has 4 bytes, and the variable has 6 bytes (char[6]): to set a value instead of bytes, write globals: {x: "eth0"}`},
		{txt, "abcdefghi", "globaldata.x has 9 bytes, and the variable has 6 bytes (char[6]): to set a value instead of bytes, write globals: {x: […]}"},
		{kind("char[257]", reader.Signed, 1, 257), "a", "globaldata.x has 1 byte, and the variable has 257 bytes (char[257]): to set a value instead of bytes, write globals: {x: […]}"},
		{kind("char[2097152]", reader.Signed, 1, 2<<20), "a", "globaldata.x has 1 byte, and the variable has 2097152 bytes (char[2097152]): to set a value instead of bytes, write globals: {x: […]}"},
		{reader.Variable{Size: 8, Type: &reader.Type{Name: "struct limits"}}, "a", "globaldata.x has 1 byte, and the variable has 8 bytes"},
	} {
		test.variable.Name = "x"
		err := CheckBytes(map[string][]byte{"x": []byte(test.little), "static": nil}, []reader.Variable{test.variable}, binary.LittleEndian)
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
	u16 := u16
	u16.Name = "x"
	err := CheckBytes(map[string][]byte{"x": {7}}, []reader.Variable{u16}, binary.BigEndian)
	if err == nil || !strings.HasSuffix(err.Error(), "{x: 7}") {
		t.Errorf("big endian: %v", err)
	}
}
