// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"strings"
	"testing"
)

func TestDifference(t *testing.T) {
	const table = "NAME      STATUS    AGE\npackets   Success   1s\n"
	for name, c := range map[string]struct {
		page, output string
		// want is a part of the difference, or "" if there is none.
		want string
	}{
		"equal":                      {"one\ntwo\n", "one\ntwo\n", ""},
		"blanks at the ends":         {"\none \ntwo", "one\ntwo\t\n\n", ""},
		"nothing at all":             {"", "", ""},
		"numbers":                    {"0: {59,13655,}", "0: {7,421,}", ""},
		"addresses":                  {"http://10.99.0.5:80/", "http://192.168.17.200:8080/", ""},
		"ages and widths of columns": {table, "NAME       STATUS     AGE\npackets    Success    2m15s\n", ""},
		"durations":                  {"took 1.5ms", "took 2m0.25s", ""},
		"any text":                   {"pod/reader-… created", "pod/reader-x7k2p created", ""},
		"any lines":                  {"one\n…\nfive", "one\ntwo\nthree\nfive", ""},
		"no lines":                   {"one\n…\ntwo", "one\ntwo", ""},
		"other text":                 {"packets Success", "packets Failure", `the page's line "packets Success" isn't there`},
		"a number that isn't one":    {"packets 5", "packets none", "isn't there"},
		"signs are literal":          {"{1.5} (a)?", "{1x5} (a)?", "isn't there"},
		"counts of nodes":            {"1          1   0", "3   12  0", ""},
		"a failure":                  {"1          1   0", "1   1   1", "isn't there"},
		"nothing is attached":        {"1          1   0", "1   0   0", "isn't there"},
		"a number within a word":     {"v0 10.0.0.1 0x0", "v1 10.1.2.3 0x7", ""},
		"a line is missing":          {"one\ntwo\nthree", "one\ntwo", `the page's line "three" isn't there`},
		"a line too many":            {"one", "one\ntwo", "more than the page shows"},
		"nothing, but output":        {"", "one", "isn't there"},
		"output, but nothing":        {"one", "", `the page's line "one" isn't there`},
		"any text within one line":   {"one …", "one\ntwo", "isn't there"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Difference(c.page, c.output)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("said %q, not %q", got, c.want)
			}
		})
	}
}
