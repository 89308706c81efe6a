// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// exporterConfig is in ebpf_exporter's form.
const exporterConfig = `
prefix: ebpf_exporter_
metrics:
  counters:
  - name: syscalls_total
    help: Total number of executed syscalls by name
    labels:
    - name: syscall
      size: 8
      decoders: [{name: uint}, {name: syscall}]
  histograms:
  - name: latency_seconds
    help: Latency histogram
    bucket_type: exp2
    bucket_min: 0
    bucket_max: 3
    bucket_multiplier: 0.5
    labels:
    - name: operation
      size: 1
      padding: 3
      decoders:
      - name: uint
      - name: static_map
        static_map: {0: read, 1: write}
    - name: bucket
      size: 4
      decoders: [{name: uint}]
`

const exporterMetrics = `
# HELP ebpf_exporter_latency_seconds Latency histogram
# TYPE ebpf_exporter_latency_seconds histogram
ebpf_exporter_latency_seconds_bucket{operation="read",le="0.5"} 0
ebpf_exporter_latency_seconds_bucket{operation="read",le="1"} 7
ebpf_exporter_latency_seconds_bucket{operation="read",le="2"} 7
ebpf_exporter_latency_seconds_bucket{operation="read",le="4"} 9
ebpf_exporter_latency_seconds_bucket{operation="read",le="+Inf"} 9
ebpf_exporter_latency_seconds_sum{operation="read"} 15
ebpf_exporter_latency_seconds_count{operation="read"} 9
ebpf_exporter_latency_seconds_bucket{operation="write",le="0.5"} 1
ebpf_exporter_latency_seconds_bucket{operation="write",le="1"} 1
ebpf_exporter_latency_seconds_bucket{operation="write",le="2"} 1
ebpf_exporter_latency_seconds_bucket{operation="write",le="4"} 1
ebpf_exporter_latency_seconds_bucket{operation="write",le="+Inf"} 1
ebpf_exporter_latency_seconds_sum{operation="write"} 0
ebpf_exporter_latency_seconds_count{operation="write"} 1
# HELP ebpf_exporter_syscalls_total Total number of executed syscalls by name
# TYPE ebpf_exporter_syscalls_total counter
ebpf_exporter_syscalls_total{syscall="kill"} 12
`

func check(t *testing.T, dir, config, want string, metrics ...string) {
	t.Helper()
	parsed, err := ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	collector := NewCollector(dir, parsed, &Host{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), metrics...); err != nil {
		t.Error(err)
	}
}

func printed(t *testing.T, maps map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range maps {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A configuration of ebpf_exporter is used as it is, with maps in bytes. Their files can only be made as root.
func TestExporterConfigOfBytes(t *testing.T) {
	prerequisite.NeedsRoot(t, "maps of the kernel are for root alone")
	dir := t.TempDir()
	sandbox.MountBPFFS(t, dir)
	pin := func(name string, keySize uint32, elements map[string]uint64) {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: keySize, ValueSize: 8, MaxEntries: 16})
		if err != nil {
			prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
		}
		t.Cleanup(func() { m.Close() })
		for k, v := range elements {
			if err := m.Put([]byte(k), v); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Pin(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	bucket := func(operation byte, n uint64) string {
		return string([]byte{operation, 9, 9, 9}) + string(integer(n, 4))
	}
	pin("syscalls_total", 8, map[string]uint64{string(integer(62, 8)): 12})
	pin("latency_seconds", 8, map[string]uint64{bucket(0, 1): 7, bucket(0, 3): 2, bucket(0, 4): 30, bucket(1, 0): 1})
	check(t, dir, exporterConfig, exporterMetrics, "ebpf_exporter_latency_seconds", "ebpf_exporter_syscalls_total")

	pin(`globals`, 4, map[string]uint64{string(integer(0, 4)): 5 | 6<<32})
	check(t, dir, "maps: [{name: globals, metrics: [{name: high, offset: 4, size: 4, type: gauge}]}]", "# HELP high \n# TYPE high gauge\nhigh 6\n", "high")
}

// The same, with the text that the kernel prints.
func TestExporterConfigOfText(t *testing.T) {
	dir := printed(t, map[string]string{
		"syscalls_total":  "62: 12\n",
		"latency_seconds": "{0,1,}: 7\n{0,3,}: 2\n{0,4,}: 30\n{1,0,}: 1\n",
	})
	parsed, err := ParseConfig([]byte(exporterConfig))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range parsed.Maps {
		e := exported{Map: m, host: &Host{}}
		all := map[string]*series{}
		for element, err := range textElements(filepath.Join(dir, m.Name)) {
			if err != nil {
				t.Fatal(err)
			}
			if err := e.add(all, element); err != nil {
				t.Fatal(err)
			}
		}
		switch m.Name {
		case "syscalls_total":
			if s := all[`["kill"]`]; s == nil || s.numbers[0] != 12 {
				t.Errorf("got %v", all)
			}
		default:
			h := m.Metrics[0].histogram(all[`["read"]`].buckets[0])
			if h.count != 9 || h.sum != 15 || h.buckets[1] != 7 || h.buckets[4] != 9 {
				t.Errorf("got %+v", h)
			}
		}
	}
}

// bcc's tools keep the buckets in an array of the value.
func TestHistogramOfSlots(t *testing.T) {
	dir := printed(t, map[string]string{"hists": "{8388609,}: {[0,3,0,1,],}\n{8388609,}: {[1,0,0,0,],}\n"})
	check(t, dir, `maps:
- name: hists
  labels: [device]
  metrics:
  - {name: io_seconds, type: histogram, field: "0", bucket_type: log2, bucket_multiplier: 0.5}
`, `
# HELP io_seconds 
# TYPE io_seconds histogram
io_seconds_bucket{device="8388609",le="0.5"} 1
io_seconds_bucket{device="8388609",le="1.5"} 4
io_seconds_bucket{device="8388609",le="3.5"} 4
io_seconds_bucket{device="8388609",le="7.5"} 5
io_seconds_bucket{device="8388609",le="+Inf"} 5
io_seconds_sum{device="8388609"} 0
io_seconds_count{device="8388609"} 5
`, "io_seconds")
}

// A per-CPU map has the label cpu if it is the last one.
func TestExporterConfigPerCPU(t *testing.T) {
	dir := printed(t, map[string]string{"softirqs_total": "1: {\n\tcpu0: 5\n\tcpu1: 6\n}\n"})
	check(t, dir, `metrics: {counters: [{name: softirqs_total, labels: [{name: vec}, {name: cpu}]}]}`,
		"# HELP softirqs_total \n# TYPE softirqs_total counter\nsoftirqs_total{cpu=\"0\",vec=\"1\"} 5\nsoftirqs_total{cpu=\"1\",vec=\"1\"} 6\n", "softirqs_total")
}

// A per-CPU map can have both the label cpu and a bucket in its key.
func TestHistogramPerCPU(t *testing.T) {
	dir := printed(t, map[string]string{"latency": "{7,1,}: {\n\tcpu0: 5\n\tcpu1: 6\n}\n"})
	check(t, dir, `maps: [{name: latency, cpus: label, labels: [device, bucket], metrics: [{name: latency, type: histogram, bucket_type: linear, bucket_max: 1}]}]`, `
# HELP latency 
# TYPE latency histogram
latency_bucket{cpu="0",device="7",le="0"} 0
latency_bucket{cpu="0",device="7",le="1"} 5
latency_bucket{cpu="0",device="7",le="+Inf"} 5
latency_sum{cpu="0",device="7"} 0
latency_count{cpu="0",device="7"} 5
latency_bucket{cpu="1",device="7",le="0"} 0
latency_bucket{cpu="1",device="7",le="1"} 6
latency_bucket{cpu="1",device="7",le="+Inf"} 6
latency_sum{cpu="1",device="7"} 0
latency_count{cpu="1",device="7"} 6
`, "latency")
}

// TestSameWithoutBPF reads maps with bpf(2) and as text, which a seccomp profile decides.
func TestSameWithoutBPF(t *testing.T) {
	prerequisite.NeedsRoot(t, "maps of the kernel are for root alone")
	number := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	pair := &btf.Struct{Name: "pair", Size: 16, Members: []btf.Member{{Name: "a", Type: number}, {Name: "b", Type: number, Offset: 64}}}
	slots := &btf.Struct{Name: "slots", Size: 16, Members: []btf.Member{
		{Name: "slots", Type: &btf.Array{Type: &btf.Int{Name: "unsigned int", Size: 4}, Nelems: 4, Index: &btf.Int{Name: "unsigned int", Size: 4}}},
	}}
	for name, c := range map[string]struct {
		value  btf.Type
		put    any
		metric string
		want   float64
		fails  bool
	}{
		"negative":             {number, int64(-5), "{name: a, type: gauge, signed: true}", -5, false},
		"positive":             {number, int64(5), "{name: a}", 5, false},
		"struct without field": {pair, []int64{1, 2}, "{name: a}", 0, true},
		"histogram in a value": {slots, []uint32{0, 1, 0, 0}, `{name: a, type: histogram, bucket_type: log2, field: "0"}`, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sandbox.MountBPFFS(t, dir)
			size, err := btf.Sizeof(c.value)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "m", Type: ebpf.Hash, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1, Key: &btf.Int{Name: "unsigned int", Size: 4}, Value: c.value})
			if err != nil {
				prerequisite.Missing(t, "make a map: "+err.Error(), prerequisite.BPF)
			}
			defer m.Close()
			path := filepath.Join(dir, "m")
			if err := errors.Join(m.Put(uint32(1), c.put), m.Pin(path)); err != nil {
				t.Fatal(err)
			}
			config, err := ParseConfig([]byte("maps: [{name: m, metrics: [" + c.metric + "]}]"))
			if err != nil {
				t.Fatal(err)
			}
			for source, elements := range map[string]func(func(element, error) bool){"chosen": config.Maps[0].elements(path), "text": textElements(path)} {
				for e, err := range elements {
					if err != nil {
						t.Fatal(err)
					}
					numbers, err := e.values[0].numbers(&config.Maps[0].Metrics[0])
					if (err != nil) != c.fails || err == nil && numbers[0] != c.want {
						t.Errorf("%s: %v, %v", source, numbers, err)
					}
				}
			}
		})
	}
}

func TestBuckets(t *testing.T) {
	for name, c := range map[string]struct {
		b    Buckets
		want []float64
	}{
		bucketExp2:     {Buckets{BucketType: bucketExp2, BucketMax: 3}, []float64{1, 2, 4, 8}},
		bucketExp2Zero: {Buckets{BucketType: bucketExp2Zero, BucketMax: 3}, []float64{0, 1, 2, 4}},
		bucketLinear:   {Buckets{BucketType: bucketLinear, BucketMin: 1, BucketMax: 3, BucketMultiplier: 50}, []float64{50, 100, 150}},
		bucketFixed:    {Buckets{BucketType: bucketFixed, BucketKeys: []float64{3, 7}}, []float64{3, 7}},
		bucketLog2:     {Buckets{BucketType: bucketLog2, BucketMax: 2}, []float64{1, 3, 7}},
	} {
		if err := c.b.complete(true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, n := range c.b.numbers(0) {
			if got := c.b.limit(n); i >= len(c.want) || got != c.want[i] {
				t.Errorf("%s: bucket %v ends at %v, want %v", name, n, got, c.want)
			}
		}
	}
}
