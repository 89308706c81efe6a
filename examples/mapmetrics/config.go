// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/internal/globals"
)

// Config lists the maps to export, and their metrics. It has two forms: Maps, and the form of ebpf_exporter.
type Config struct {
	// Prefix is put in front of the names of all metrics. ebpf_exporter's own prefix is ebpf_exporter_.
	Prefix string `json:"prefix,omitempty"`
	Maps   []Map  `json:"maps,omitempty"`
	// Metrics is what ebpf_exporter's configuration has. ParseConfig adds it to Maps.
	Metrics *ExporterMetrics `json:"metrics,omitempty"`
}

// Map describes one file of the volume.
type Map struct {
	// Name is the name of the map, and of its file.
	Name string `json:"name"`
	// Labels come from the key: from its members, starting with the first, or from the key itself if it is a number.
	// Elements with the same labels are added up.
	Labels []Label `json:"labels,omitempty"`
	// CPUs decides how values of per-CPU maps are exported: as a sum (CPUSum, the default), or with the label cpu
	// (CPULabel).
	CPUs string `json:"cpus,omitempty"`
	// Metrics are the metrics that come from each value.
	Metrics []Metric `json:"metrics"`

	// buckets means that the last label isn't a label, but the bucket of a histogram. lastIsCPU means that the last
	// label isn't in the key if the map is per CPU.
	buckets, lastIsCPU bool
}

// Values of Map.CPUs.
const (
	CPUSum   = "sum"
	CPULabel = "label"
)

// Label is a label whose value comes from a part of the key. In YAML, it can be only a name.
type Label struct {
	Name string `json:"name"`
	// Size and Padding are the bytes of this part, and those to skip after it. A size is necessary to read the key's
	// bytes, and for decoders.
	Size    int `json:"size,omitempty"`
	Padding int `json:"padding,omitempty"`
	// Decoders turn the bytes into text, each what the one before it returned. Without decoders, a number is shown as
	// such.
	Decoders []Decoder `json:"decoders,omitempty"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Label) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &l.Name); err == nil {
		return nil
	}
	type plain Label
	fields := json.NewDecoder(bytes.NewReader(text))
	fields.DisallowUnknownFields()
	return fields.Decode((*plain)(l))
}

// Metric describes a metric that comes from one number in a map's values, or a histogram.
type Metric struct {
	Name string `json:"name"`
	Help string `json:"help,omitempty"`
	// Type is TypeCounter, the default, TypeGauge, or TypeHistogram.
	Type string `json:"type,omitempty"`
	// Field is the position of the number in the value's struct, starting at 0, because the kernel doesn't print
	// names. For example, 1.2 is a field in a nested struct. It is empty if the value is a number.
	Field string `json:"field,omitempty"`
	// Offset and Size are the place of the number in the bytes of the value, as an alternative to Field. Size is 8 by
	// default.
	Offset *int `json:"offset,omitempty"`
	Size   int  `json:"size,omitempty"`
	// Signed means that the number can be negative. The kernel's text shows that, but bytes don't.
	Signed bool `json:"signed,omitempty"`
	Buckets

	path []int
}

// Values of Metric.Type.
const (
	TypeCounter   = "counter"
	TypeGauge     = "gauge"
	TypeHistogram = "histogram"
)

const (
	labelCPU    = "cpu"
	labelBucket = "bucket"
	labelLimit  = "le" // what Prometheus adds to the buckets of a histogram
)

// ExporterMetrics are the metrics in ebpf_exporter's form: each has a map of its name.
type ExporterMetrics struct {
	Counters   []ExporterCounter   `json:"counters,omitempty"`
	Histograms []ExporterHistogram `json:"histograms,omitempty"`
}

// ExporterCounter is a map whose values are counters.
type ExporterCounter struct {
	Name           string  `json:"name"`
	Help           string  `json:"help,omitempty"`
	PerfEventArray bool    `json:"perf_event_array,omitempty"`
	FlushInterval  string  `json:"flush_interval,omitempty"`
	Labels         []Label `json:"labels,omitempty"`
}

// ExporterHistogram is a map whose values are counts of buckets. The last label is the bucket.
type ExporterHistogram struct {
	Name string `json:"name"`
	Help string `json:"help,omitempty"`
	Buckets
	Labels []Label `json:"labels,omitempty"`
}

// ParseConfig parses a configuration in YAML. The error lists everything that is wrong.
func ParseConfig(text []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("parse the configuration: %w", err)
	}
	var wrong []error
	c.Maps = append(c.Maps, c.Metrics.maps(&wrong)...)
	c.Metrics = nil
	if len(c.Maps) == 0 {
		wrong = append(wrong, errors.New("maps: none is named"))
	}
	names, files := map[string]bool{metricReadable: true, metricElements: true}, map[string]bool{}
	for i := range c.Maps {
		// Each entry has series with the map's name.
		file := globals.File(c.Maps[i].Name)
		if files[file] {
			wrong = append(wrong, fmt.Errorf("map %q is there twice: list all of its metrics in one entry", c.Maps[i].Name))
		}
		files[file] = true
		if err := c.Maps[i].complete(c.Prefix, names); err != nil {
			wrong = append(wrong, fmt.Errorf("map %q: %w", c.Maps[i].Name, err))
		}
	}
	return c, errors.Join(wrong...)
}

// maps returns the maps that have the metrics.
func (m *ExporterMetrics) maps(wrong *[]error) []Map {
	if m == nil {
		return nil
	}
	var maps []Map
	add := func(labels []Label, metric Metric) {
		last := len(labels) - 1
		maps = append(maps, Map{Name: metric.Name, Labels: labels, Metrics: []Metric{metric}, lastIsCPU: last >= 0 && labels[last].Name == labelCPU})
	}
	for _, c := range m.Counters {
		if c.PerfEventArray {
			*wrong = append(*wrong, fmt.Errorf("counter %q: perf_event_array isn't supported: only processes with CAP_PERFMON can read a perf event array", c.Name))
		}
		add(c.Labels, Metric{Name: c.Name, Help: c.Help})
	}
	for _, h := range m.Histograms {
		if len(h.Labels) == 0 {
			*wrong = append(*wrong, fmt.Errorf("histogram %q: labels: the last one must be the bucket", h.Name))
			continue
		}
		h.Labels[len(h.Labels)-1].Name = labelBucket
		add(h.Labels, Metric{Name: h.Name, Help: h.Help, Type: TypeHistogram, Buckets: h.Buckets})
	}
	return maps
}

// complete validates a map, and sets defaults. names contains the names of metrics that are already in use.
func (m *Map) complete(prefix string, names map[string]bool) error {
	var wrong []error
	// Map names must not lead to files outside of the volume.
	if m.Name == "" || m.Name == "." || m.Name == ".." || filepath.Base(m.Name) != m.Name {
		wrong = append(wrong, errors.New("not the name of a map"))
	}
	if m.CPUs == "" {
		m.CPUs = CPUSum
	}
	if m.CPUs != CPUSum && m.CPUs != CPULabel {
		wrong = append(wrong, fmt.Errorf("cpus: %q is neither %s nor %s", m.CPUs, CPUSum, CPULabel))
	}
	wrong = append(wrong, m.completeLabels())
	if len(m.Metrics) == 0 {
		wrong = append(wrong, errors.New("metrics: none is named"))
	}
	m.buckets = len(m.Labels) > 0 && m.Labels[len(m.Labels)-1].Name == labelBucket
	for i := range m.Metrics {
		metric := &m.Metrics[i]
		metric.Name = prefix + metric.Name
		for _, name := range metric.families() {
			if names[name] {
				wrong = append(wrong, fmt.Errorf("metric %q is there twice", name))
			}
			names[name] = true
		}
		if err := metric.complete(m.buckets); err != nil {
			wrong = append(wrong, fmt.Errorf("metric %q: %w", metric.Name, err))
		}
	}
	if m.readsText() && m.readsBytes() {
		wrong = append(wrong, errors.New("field needs the map as text, and offset needs its bytes: use only one of them"))
	}
	return errors.Join(wrong...)
}

// families returns the names that a metric takes in Prometheus' format.
func (m *Metric) families() []string {
	if m.Type != TypeHistogram {
		return []string{m.Name}
	}
	return []string{m.Name, m.Name + "_bucket", m.Name + "_sum", m.Name + "_count"}
}

func (m *Map) completeLabels() error {
	var wrong []error
	isHistogram := func(m Metric) bool { return m.Type == TypeHistogram }
	labels := map[string]bool{labelCPU: m.CPUs == CPULabel}
	for i := range m.Labels {
		label := &m.Labels[i]
		if !model.LegacyValidation.IsValidLabelName(label.Name) || strings.HasPrefix(label.Name, "__") {
			wrong = append(wrong, fmt.Errorf("labels: %q is not the name of a label", label.Name))
		}
		if labels[label.Name] {
			wrong = append(wrong, fmt.Errorf("labels: %q is there twice", label.Name))
		}
		labels[label.Name] = true
		if label.Name == labelLimit && slices.ContainsFunc(m.Metrics, isHistogram) {
			wrong = append(wrong, fmt.Errorf("labels: a histogram can't have the label %s, which Prometheus adds", labelLimit))
		}
		if err := label.complete(); err != nil {
			wrong = append(wrong, fmt.Errorf("labels: %s: %w", label.Name, err))
		}
	}
	return errors.Join(wrong...)
}

// readsText reports whether the map can only be read as text.
func (m *Map) readsText() bool {
	for _, label := range m.Labels {
		if label.Size == 0 {
			return true
		}
	}
	for _, metric := range m.Metrics {
		if metric.Field != "" || metric.Type == TypeHistogram && !m.buckets && metric.Offset == nil { // only the text tells how long the array is
			return true
		}
	}
	return false
}

// readsBytes reports whether the map can only be read with bpf(2).
func (m *Map) readsBytes() bool {
	for _, metric := range m.Metrics {
		if metric.Offset != nil {
			return true
		}
	}
	return false
}

// maxSize is the maximum size of a part of a key.
const maxSize = 4096

func (l *Label) complete() error {
	var wrong []error
	if l.Size < 0 || l.Size > maxSize || l.Padding < 0 || l.Padding > maxSize {
		wrong = append(wrong, fmt.Errorf("size and padding must be from 0 to %d", maxSize))
	}
	if len(l.Decoders) > 0 && l.Size == 0 {
		wrong = append(wrong, errors.New("decoders need a size"))
	}
	for i := range l.Decoders {
		wrong = append(wrong, l.Decoders[i].complete())
	}
	return errors.Join(wrong...)
}

// complete validates a metric, and sets defaults. bucketsInKeys means that the map's keys contain buckets.
func (m *Metric) complete(bucketsInKeys bool) error {
	var wrong []error
	if !model.LegacyValidation.IsValidMetricName(m.Name) {
		wrong = append(wrong, errors.New("not the name of a metric"))
	}
	if m.Type == "" {
		m.Type = TypeCounter
	}
	switch m.Type {
	case TypeCounter, TypeGauge:
		if bucketsInKeys {
			wrong = append(wrong, fmt.Errorf("type: with the label %s, it must be %s", labelBucket, TypeHistogram))
		}
	case TypeHistogram:
		wrong = append(wrong, m.Buckets.complete(bucketsInKeys || m.Offset != nil))
	default:
		wrong = append(wrong, fmt.Errorf("type: %q is neither %s, %s, nor %s", m.Type, TypeCounter, TypeGauge, TypeHistogram))
	}
	if m.Offset != nil && *m.Offset < 0 {
		wrong = append(wrong, errors.New("offset must not be negative"))
	}
	switch m.Size {
	case 0:
		m.Size = 8
	case 1, 2, 4, 8:
	default:
		wrong = append(wrong, errors.New("size must be 1, 2, 4, or 8"))
	}
	if m.Field == "" {
		return errors.Join(wrong...)
	}
	for text := range strings.SplitSeq(m.Field, ".") {
		position, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("field: %q is not positions separated by dots", m.Field))
			break
		}
		m.path = append(m.path, int(position))
	}
	return errors.Join(wrong...)
}
