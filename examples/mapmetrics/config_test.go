// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig([]byte(`maps: [{name: m, labels: [port], metrics: [{name: packets_total, field: "1.2"}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{Maps: []Map{{
		Name: "m", Labels: []string{"port"}, CPUs: CPUSum,
		Metrics: []Metric{{Name: "packets_total", Type: TypeCounter, Field: "1.2", path: []int{1, 2}}},
	}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
}

func TestParseConfig_NamesAllThatIsWrong(t *testing.T) {
	for text, want := range map[string][]string{
		"":                  {"maps: none is named"},
		"maps: 1":           {"parse the configuration"},
		"maps: [{nam: m}]":  {`unknown field "nam"`},
		"maps: [{name: m}]": {`map "m": metrics: none is named`},
		"maps: [{name: ../m, cpus: some, labels: [0, __a, a, a], metrics: [{name: 1, type: some, field: a}]}]": {
			"not the name of a map", `cpus: "some"`, `"0" is not the name of a label`, `"__a" is not`, `"a" is there twice`,
			"not the name of a metric", `type: "some"`, `field: "a"`,
		},
		"maps: [{name: m, cpus: label, labels: [cpu], metrics: [{name: a}, {name: a}]}]": {`labels: "cpu" is there twice`, `metric "a" is there twice`},
		"maps: [{name: m, metrics: [{name: bpf_map_readable, field: '-1'}]}]":            {`metric "bpf_map_readable" is there twice`, `field: "-1"`},
	} {
		_, err := ParseConfig([]byte(text))
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: error %v lacks %q", text, err, words)
			}
		}
	}
}
