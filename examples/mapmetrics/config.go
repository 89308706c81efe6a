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

// Config says which maps are exported, and as which metrics.
type Config struct {
	Maps []Map `json:"maps"`
}

// Map is one file of the volume.
type Map struct {
	// Name is the map's, which is the file's.
	Name string `json:"name"`
	// Labels are those that the key makes, from the first member of the key on, or the key itself where that is a number.
	// Elements that don't differ in labels are added up.
	Labels []string `json:"labels,omitempty"`
	// CPUs says what becomes of per-CPU maps: the values are added up (CPUSum, the default), or have the label cpu
	// (CPULabel).
	CPUs string `json:"cpus,omitempty"`
	// Metrics are what is made of each value.
	Metrics []Metric `json:"metrics"`
}

// What Map.CPUs may be.
const (
	CPUSum   = "sum"
	CPULabel = "label"
)

// Metric is made of one number in a map's values.
type Metric struct {
	Name string `json:"name"`
	Help string `json:"help,omitempty"`
	// Type is TypeCounter, the default, or TypeGauge.
	Type string `json:"type,omitempty"`
	// Field is where the number is in the value's struct: the field's position, counted from 0, as the kernel doesn't
	// print names; 1.2 is a field in a struct in it. It is empty where the value is a number.
	Field string `json:"field,omitempty"`

	path []int
}

// What Metric.Type may be.
const (
	TypeCounter = "counter"
	TypeGauge   = "gauge"
)

const labelCPU = "cpu"

// ParseConfig reads a configuration in YAML. The error names all that is wrong with it.
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

// complete checks a map and fills in its defaults. Names are those that metrics have already.
func (m *Map) complete(names map[string]bool) error {
	var wrong []error
	// It is a file of the volume, and no other.
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
