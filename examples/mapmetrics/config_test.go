// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bpfman/bpfman-operator/internal/globals"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig([]byte(`maps: [{name: m, labels: [port], metrics: [{name: packets_total, field: "1.2"}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{Maps: []Map{{
		Name: "m", Labels: []Label{{Name: "port"}}, CPUs: CPUSum,
		Metrics: []Metric{{Name: "packets_total", Type: TypeCounter, Field: "1.2", Size: 8, path: []int{1, 2}}},
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
		`maps: [{name: ../m, cpus: some, labels: ["0", __a, a, a], metrics: [{name: 1, type: some, field: a}]}]`: {
			"not the name of a map", `cpus: "some"`, `"0" is not the name of a label`, `"__a" is not`, `"a" is there twice`,
			"not the name of a metric", `type: "some"`, `field: "a"`,
		},
		"maps: [{name: m, cpus: label, labels: [cpu], metrics: [{name: a}, {name: a}]}]":                         {`labels: "cpu" is there twice`, `metric "a" is there twice`},
		"maps: [{name: m, metrics: [{name: bpf_map_readable, field: '-1'}]}]":                                    {`metric "bpf_map_readable" is there twice`, `field: "-1"`},
		"metrics: {counters: [{name: a, perf_event_array: true}]}":                                               {"perf_event_array isn't supported", "CAP_PERFMON"},
		"metrics: {histograms: [{name: a}]}":                                                                     {"the last one must be the bucket"},
		"metrics: {histograms: [{name: a, bucket_type: exp3, labels: [{name: b, size: 8}]}]}":                    {`bucket_type: "exp3"`},
		"metrics: {histograms: [{name: a, bucket_type: linear, bucket_max: 999, labels: [{name: b, size: 8}]}]}": {"at most 256"},
		"maps: [{name: m, labels: [{name: a, decoders: [{name: uint}]}], metrics: [{name: a}]}]":                 {"decoders need a size"},
		"maps: [{name: m, labels: [{name: a, size: 8, decoders: [{name: kstack}]}], metrics: [{name: a}]}]":      {`"kstack" isn't supported: a reader`},
		"maps: [{name: m, labels: [{name: a, size: 8, decoders: [{name: x}]}], metrics: [{name: a}]}]":           {`"x" isn't supported: use cgroup,`},
		"maps: [{name: m, labels: [{name: a, siz: 8}], metrics: [{name: a}]}]":                                   {`unknown field "siz"`},
		`maps: [{name: m, metrics: [{name: a, offset: 8}, {name: b, field: "1"}]}]`:                              {"use only one of them"},
		"maps: [{name: m, metrics: [{name: a}]}, {name: m, metrics: [{name: b}]}]":                               {`map "m" is there twice: list`},
		"maps: [{name: .bss, metrics: [{name: a}]}, {name: bss, metrics: [{name: b}]}]":                          {`map "bss" is there twice: list`},
		"maps: [{name: m, labels: [le, bucket], metrics: [{name: a, type: histogram}]}]":                         {"can't have the label le"},
		"maps: [{name: m, labels: [bucket], metrics: [{name: a, type: histogram}, {name: a_count}]}]":            {`metric "a_count" is there twice`},
		"maps: [{name: m, labels: [bucket], metrics: [{name: a}]}]":                                              {"it must be histogram"},
	} {
		_, err := ParseConfig([]byte(text))
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: error %v lacks %q", text, err, words)
			}
		}
	}
}

// FuzzParseConfig checks that any configuration that is accepted can be used.
func FuzzParseConfig(f *testing.F) {
	f.Add(exporterConfig)
	f.Add(`maps: [{name: m, labels: [port], metrics: [{name: packets_total, field: "1.2"}]}]`)
	f.Add(`maps: [{name: m, labels: [port], metrics: [{name: a}]}, {name: n, cpus: label, labels: [port, bucket], metrics: [{name: b, type: histogram, bucket_type: linear, bucket_max: 9}]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConfig([]byte(text))
		if err != nil {
			return
		}
		dir := t.TempDir()
		for i, m := range c.Maps { // numbers as keys and values, per CPU or not
			content := []string{"1: 2\n", "{1,2,}: {\n\tcpu0: 3\n\tcpu1: 4\n}\n"}[i%2]
			_ = os.WriteFile(filepath.Join(dir, globals.File(m.Name)), []byte(content), 0o600) // no map has some names
		}
		registry := prometheus.NewPedanticRegistry()
		_ = registry.Register(NewCollector(dir, c, &Host{}, slog.New(slog.DiscardHandler)))
		if _, err := registry.Gather(); err != nil {
			t.Error(err)
		}
	})
}
