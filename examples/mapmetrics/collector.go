// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package mapmetrics converts the kernel's text representation of maps (see package maptext) to Prometheus
// metrics.
package mapmetrics

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bpfman/bpfman-operator/examples/maptext"
)

// Metrics about the maps themselves.
const (
	metricReadable = "bpf_map_readable"
	metricElements = "bpf_map_elements"
)

// maxSeries is the maximum number of combinations of labels for one map. It protects Prometheus from hashes that
// grow with traffic.
const maxSeries = 10000

// Collector reads the maps on each scrape. For a map that can't be read, it only exports bpf_map_readable, with
// the value 0.
type Collector struct {
	dir                string
	maps               []exported
	readable, elements *prometheus.Desc
	log                *slog.Logger
}

// exported is a map with the descriptions of its metrics, in the same order.
type exported struct {
	Map
	descs []*prometheus.Desc
}

// NewCollector returns a collector for the maps in dir, which is the mount path of a volume of csi.bpfman.io.
func NewCollector(dir string, config *Config, log *slog.Logger) *Collector {
	c := &Collector{
		dir: dir, log: log,
		readable: prometheus.NewDesc(metricReadable, "Whether the map could be read, 1 or 0.", []string{"map"}, nil),
		elements: prometheus.NewDesc(metricElements, "Elements of the map.", []string{"map"}, nil),
	}
	for _, m := range config.Maps {
		labels := slices.Clone(m.Labels)
		if m.CPUs == CPULabel {
			labels = append(labels, labelCPU)
		}
		e := exported{Map: m}
		for _, metric := range m.Metrics {
			e.descs = append(e.descs, prometheus.NewDesc(metric.Name, metric.Help, labels, nil))
		}
		c.maps = append(c.maps, e)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.readable
	descs <- c.elements
	for _, m := range c.maps {
		for _, desc := range m.descs {
			descs <- desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, m := range c.maps {
		read, err := m.read(filepath.Join(c.dir, m.Name))
		if err != nil {
			c.log.Error("read map", "map", m.Name, "error", err)
			metrics <- prometheus.MustNewConstMetric(c.readable, prometheus.GaugeValue, 0, m.Name)
			continue
		}
		metrics <- prometheus.MustNewConstMetric(c.readable, prometheus.GaugeValue, 1, m.Name)
		metrics <- prometheus.MustNewConstMetric(c.elements, prometheus.GaugeValue, float64(read.elements), m.Name)
		for _, series := range read.series {
			for i, number := range series.numbers {
				valueType := prometheus.CounterValue
				if m.Metrics[i].Type == TypeGauge {
					valueType = prometheus.GaugeValue
				}
				metrics <- prometheus.MustNewConstMetric(m.descs[i], valueType, number, series.labels...)
			}
		}
	}
}

// reading is the content of a map at one time.
type reading struct {
	elements int
	series   map[string]*series
}

// series is the sum of all elements with the same labels, with a number for each metric.
type series struct {
	labels  []string
	numbers []float64
}

// read opens the file each time, because it refers to another map after a reload. If it can't read the whole map,
// it returns no data, because partial data would look like counters that were reset.
func (m *exported) read(path string) (r reading, err error) {
	file, err := os.Open(path)
	if err != nil {
		return reading{}, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r.series = map[string]*series{}
	for entry, err := range maptext.Parse(file) {
		if err != nil {
			return reading{}, err
		}
		r.elements++
		if err := m.add(r.series, entry); err != nil {
			return reading{}, fmt.Errorf("element %s: %w", entry.Key, err)
		}
	}
	return r, nil
}

func (m *exported) add(all map[string]*series, entry maptext.Entry) error {
	labels, err := m.labelsOf(entry.Key)
	if err != nil {
		return err
	}
	for _, value := range entry.Values {
		own := labels
		if m.CPUs == CPULabel {
			cpu := ""
			if value.CPU != maptext.NoCPU {
				cpu = strconv.Itoa(value.CPU)
			}
			own = append(slices.Clone(labels), cpu)
		}
		id := fmt.Sprintf("%q", own)
		s := all[id]
		if s == nil {
			if len(all) == maxSeries {
				return fmt.Errorf("more than %d combinations of labels", maxSeries)
			}
			s = &series{labels: own, numbers: make([]float64, len(m.Metrics))}
			all[id] = s
		}
		if err := m.addTo(s, value.Value); err != nil {
			return err
		}
	}
	return nil
}

func (m *exported) addTo(s *series, value maptext.Value) error {
	for i, metric := range m.Metrics {
		field, err := value.At(metric.path...)
		if err != nil {
			return fmt.Errorf("metric %s: %w", metric.Name, err)
		}
		number, err := field.Number()
		if err != nil {
			return fmt.Errorf("metric %s: %w", metric.Name, err)
		}
		s.numbers[i] += number
	}
	return nil
}

// labelsOf returns the values of the labels that come from the key.
func (m *exported) labelsOf(key maptext.Value) ([]string, error) {
	members := []maptext.Value{key}
	if key.Composite {
		members = key.Members
	}
	if len(members) < len(m.Labels) {
		return nil, fmt.Errorf("%d labels are wanted of a key with %d members", len(m.Labels), len(members))
	}
	labels := make([]string, len(m.Labels))
	for i := range labels {
		labels[i] = members[i].String()
	}
	return labels, nil
}
