// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maptext

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// warning is at the start of each map's text.
const warning = "# WARNING!! The output is for debug purpose only\n# WARNING!! The output format will change\n"

func number(text string) Value { return Value{Scalar: text} }

func group(members ...Value) Value { return Value{Composite: true, Members: members} }

func array(members ...Value) Value { return Value{Composite: true, Array: true, Members: members} }

func single(v Value) []CPUValue { return []CPUValue{{CPU: NoCPU, Value: v}} }

func collect(text string) ([]Entry, error) {
	var entries []Entry
	for entry, err := range Parse(strings.NewReader(text)) {
		if err != nil {
			return entries, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []Entry
	}{
		"an empty hash": {warning, nil},
		"an array of numbers": {
			warning + "0: 7\n1: -8\n",
			[]Entry{{number("0"), single(number("7"))}, {number("1"), single(number("-8"))}},
		},
		"an array of structs": {
			warning + "0: {59,13655,}\n",
			[]Entry{{number("0"), single(group(number("59"), number("13655")))}},
		},
		"a per-CPU array": {
			warning + "0: {\n\tcpu0: {59,13655,}\n\tcpu3: {1,2,}\n}\n",
			[]Entry{{number("0"), []CPUValue{{0, group(number("59"), number("13655"))}, {3, group(number("1"), number("2"))}}}},
		},
		"a per-CPU hash of numbers": {
			warning + "443: {\n\tcpu0: 5\n\tcpu1: 6\n}\n80: {\n\tcpu0: 7\n\tcpu1: 0\n}\n",
			[]Entry{
				{number("443"), []CPUValue{{0, number("5")}, {1, number("6")}}},
				{number("80"), []CPUValue{{0, number("7")}, {1, number("0")}}},
			},
		},
		"a hash with a struct as its key": {
			warning + "{167837953,443,}: {1,{2,3,},}\n",
			[]Entry{{group(number("167837953"), number("443")), single(group(number("1"), group(number("2"), number("3"))))}},
		},
		"arrays, characters, booleans, enumerators, addresses": {
			warning + "0: {['a',':',0,],true,TCP_ESTABLISHED,0xffff,0x0,}\n",
			[]Entry{{number("0"), single(group(array(number("'a'"), number("':'"), number("0")), number("true"),
				number("TCP_ESTABLISHED"), number("0xffff"), number("0x0")))}},
		},
		"members without a comma behind the last": {"0: {1,[2,3]}\n", []Entry{{number("0"), single(group(number("1"), array(number("2"), number("3"))))}}},
		"an empty struct":                         {"0: {}\n", []Entry{{number("0"), single(group())}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect(c.text)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, error %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestParse_SaysWhichLineIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"0: 1\n1\n":                          "line 2: no colon behind the key 1",
		"0: \n":                              "line 1: a value is missing",
		": 1\n":                              `line 1: key: ": 1" is no value`,
		"0: 1 2\n":                           `line 1: " 2" behind a value`,
		"0: {1\n":                            "line 1: no comma behind a member",
		"0: {1,\n":                           "line 1: no } at the end",
		"0: {1]\n":                           "line 1: no comma behind a member",
		"0: {1;2}\n":                         "line 1: no comma behind a member",
		"0: {\n\tcpu0: 1\n":                  "line 2: it ends among the values of CPUs",
		"0: {\n\tcpu: 1\n}\n":                `line 2: "\tcpu: 1" is not a CPU's value`,
		"0: {\n1\n}\n":                       `line 2: "1" is not a CPU's value`,
		"0: " + strings.Repeat("{", 40):      "line 1: more than 32 structs in each other",
		"0: " + strings.Repeat("1", maxLine): "after line 0: bufio.Scanner: token too long",
	} {
		if _, err := collect(text); err == nil || err.Error() != want {
			t.Errorf("%.40q: error %v, want %s", text, err, want)
		}
	}
}

func TestValue_Number(t *testing.T) {
	for text, want := range map[string]float64{"7": 7, "-7": -7, "0x10": 16, "true": 1, "false": 0, "'a'": 97, "18446744073709551615": 1 << 64} {
		if got, err := number(text).Number(); err != nil || got != want {
			t.Errorf("%s is %v, error %v, want %v", text, got, err, want)
		}
	}
	for _, v := range []Value{number("TCP_ESTABLISHED"), number(""), group(), number("0x1000000000000000000000000")} {
		if got, err := v.Number(); err == nil {
			t.Errorf("%v is %v", v, got)
		}
	}
}

func TestValue_At(t *testing.T) {
	v := group(number("1"), group(number("2"), number("3")))
	for want, path := range map[string][]int{"1": {0}, "3": {1, 1}, "{2,3,}": {1}, "{1,{2,3,},}": nil} {
		if got, err := v.At(path...); err != nil || got.String() != want {
			t.Errorf("%v: %v, error %v, want %s", path, got, err, want)
		}
	}
	for _, path := range [][]int{{2}, {-1}, {0, 0}} {
		if got, err := v.At(path...); err == nil {
			t.Errorf("%v: %v", path, got)
		}
	}
}

// FuzzParse checks, for any input, that what was parsed stays the same after it is formatted and
// parsed again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		warning + "0: {\n\tcpu0: {59,13655,}\n\tcpu3: {1,2,}\n}\n", "{1,[2,],}: ['a',0x1,true,]\n", "0: {}\n", "0: {{", "\n#\n: ",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		entries, _ := collect(text)
		var written strings.Builder
		for _, entry := range entries {
			if len(entry.Values) == 1 && entry.Values[0].CPU == NoCPU {
				fmt.Fprintf(&written, "%v: %v\n", entry.Key, entry.Values[0].Value)
				continue
			}
			fmt.Fprintf(&written, "%v: {\n", entry.Key)
			for _, v := range entry.Values {
				fmt.Fprintf(&written, "\tcpu%d: %v\n", v.CPU, v.Value)
			}
			written.WriteString("}\n")
		}
		again, err := collect(written.String())
		if err != nil || !reflect.DeepEqual(again, entries) {
			t.Errorf("%q gives %v, written as %q gives %v, error %v", text, entries, written.String(), again, err)
		}
	})
}
