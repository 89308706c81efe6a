// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"
)

// Config lists the maps to export, and their metrics.
type Config struct {
	Maps []Map `json:"maps"`
}

// Map describes one file of the volume.
type Map struct {
	// Name is the name of the map, and of its file.
	Name string `json:"name"`
	// Labels are the names of the labels that come from the key: from its members, starting with the first, or
	// from the key itself if it is a number. Elements with the same labels are added up.
	Labels []string `json:"labels,omitempty"`
	// CPUs decides how values of per-CPU maps are exported: as a sum (CPUSum, the default), or with the label cpu
	// (CPULabel).
	CPUs string `json:"cpus,omitempty"`
	// Metrics are the metrics that come from each value.
	Metrics []Metric `json:"metrics"`
}

// Values of Map.CPUs.
const (
	CPUSum   = "sum"
	CPULabel = "label"
)

// Metric describes a metric that comes from one number in a map's values.
type Metric struct {
	Name string `json:"name"`
	Help string `json:"help,omitempty"`
	// Type is TypeCounter, the default, or TypeGauge.
	Type string `json:"type,omitempty"`
	// Field is the position of the number in the value's struct, starting at 0, because the kernel doesn't print
	// names. For example, 1.2 is a field in a nested struct. It is empty if the value is a number.
	Field string `json:"field,omitempty"`

	path []int
}

// Values of Metric.Type.
const (
	TypeCounter = "counter"
	TypeGauge   = "gauge"
)

const labelCPU = "cpu"

// ParseConfig parses a configuration in YAML. The error lists everything that is wrong.
func ParseConfig(text []byte) (*Config, error) {
	c := &Config{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		return nil, fmt.Errorf("parse the configuration: %w", err)
	}
	var wrong []error
	if len(c.Maps) == 0 {
		wrong = append(wrong, errors.New("maps: none is named"))
	}
	names := map[string]bool{metricReadable: true, metricElements: true}
	for i := range c.Maps {
		if err := c.Maps[i].complete(names); err != nil {
			wrong = append(wrong, fmt.Errorf("map %q: %w", c.Maps[i].Name, err))
		}
	}
	return c, errors.Join(wrong...)
}

// complete validates a map, and sets defaults. names contains the names of metrics that are already in use.
func (m *Map) complete(names map[string]bool) error {
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
	labels := map[string]bool{labelCPU: m.CPUs == CPULabel}
	for _, label := range m.Labels {
		if !model.LegacyValidation.IsValidLabelName(label) || strings.HasPrefix(label, "__") {
			wrong = append(wrong, fmt.Errorf("labels: %q is not the name of a label", label))
		}
		if labels[label] {
			wrong = append(wrong, fmt.Errorf("labels: %q is there twice", label))
		}
		labels[label] = true
	}
	if len(m.Metrics) == 0 {
		wrong = append(wrong, errors.New("metrics: none is named"))
	}
	for i := range m.Metrics {
		metric := &m.Metrics[i]
		if names[metric.Name] {
			wrong = append(wrong, fmt.Errorf("metric %q is there twice", metric.Name))
		}
		names[metric.Name] = true
		if err := metric.complete(); err != nil {
			wrong = append(wrong, fmt.Errorf("metric %q: %w", metric.Name, err))
		}
	}
	return errors.Join(wrong...)
}

func (m *Metric) complete() error {
	var wrong []error
	if !model.LegacyValidation.IsValidMetricName(m.Name) {
		wrong = append(wrong, errors.New("not the name of a metric"))
	}
	if m.Type == "" {
		m.Type = TypeCounter
	}
	if m.Type != TypeCounter && m.Type != TypeGauge {
		wrong = append(wrong, fmt.Errorf("type: %q is neither %s nor %s", m.Type, TypeCounter, TypeGauge))
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
