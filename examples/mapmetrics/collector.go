// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package mapmetrics converts the content of maps to Prometheus metrics. It reads maps with bpf(2), or as the text that
// the kernel prints for them (see package maptext).
package mapmetrics

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bpfman/bpfman-operator/examples/maptext"
	"github.com/bpfman/bpfman-operator/internal/globals"
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
	host  *Host
	descs []*prometheus.Desc
}

// NewCollector returns a collector for the maps in dir, which is the mount path of a volume of csi.bpfman.io.
func NewCollector(dir string, config *Config, host *Host, log *slog.Logger) *Collector {
	c := &Collector{
		dir: dir, log: log,
		readable: prometheus.NewDesc(metricReadable, "Whether the map could be read, 1 or 0.", []string{"map"}, nil),
		elements: prometheus.NewDesc(metricElements, "Elements of the map.", []string{"map"}, nil),
	}
	for _, m := range config.Maps {
		var labels []string
		for _, label := range m.Labels {
			labels = append(labels, label.Name)
		}
		if m.buckets {
			labels = labels[:len(labels)-1]
		}
		if m.CPUs == CPULabel {
			labels = append(labels, labelCPU)
		}
		e := exported{Map: m, host: host}
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
		read, err := m.read(filepath.Join(c.dir, globals.File(m.Name)))
		if err != nil {
			c.log.Error("read map", "map", m.Name, "error", err)
			metrics <- prometheus.MustNewConstMetric(c.readable, prometheus.GaugeValue, 0, m.Name)
			continue
		}
		metrics <- prometheus.MustNewConstMetric(c.readable, prometheus.GaugeValue, 1, m.Name)
		metrics <- prometheus.MustNewConstMetric(c.elements, prometheus.GaugeValue, float64(read.elements), m.Name)
		for _, series := range read.series {
			for i, number := range series.numbers {
				if m.Metrics[i].Type == TypeHistogram {
					h := m.Metrics[i].histogram(series.buckets[i])
					metrics <- prometheus.MustNewConstHistogram(m.descs[i], h.count, h.sum, h.buckets, series.labels...)
					continue
				}
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

// series is the sum of all elements with the same labels, with a number for each metric, or the counts of buckets.
type series struct {
	labels  []string
	numbers []float64
	buckets []map[float64]float64
}

// read opens the file each time, because it refers to another map after a reload. If it can't read the whole map,
// it returns no data, because partial data would look like counters that were reset.
func (m *exported) read(path string) (reading, error) {
	r := reading{series: map[string]*series{}}
	for e, err := range m.elements(path) {
		if err != nil {
			return reading{}, err
		}
		r.elements++
		if err := m.add(r.series, e); err != nil {
			return reading{}, fmt.Errorf("element %s: %w", e.key, err)
		}
	}
	return r, nil
}

func (m *exported) add(all map[string]*series, e element) error {
	perCPU := len(e.values) > 0 && e.values[0].cpu != maptext.NoCPU
	labels, bucket, err := m.labelsOf(e.key, perCPU && m.lastIsCPU)
	if errors.Is(err, errSkip) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, v := range e.values {
		own := labels
		if m.CPUs == CPULabel || perCPU && m.lastIsCPU {
			cpu := ""
			if perCPU {
				cpu = strconv.Itoa(v.cpu)
			}
			own = append(slices.Clone(labels), cpu)
		}
		id := fmt.Sprintf("%q", own)
		s := all[id]
		if s == nil {
			if len(all) == maxSeries {
				return fmt.Errorf("more than %d combinations of labels", maxSeries)
			}
			s = &series{labels: own, numbers: make([]float64, len(m.Metrics)), buckets: make([]map[float64]float64, len(m.Metrics))}
			all[id] = s
		}
		if err := m.addTo(s, v, bucket); err != nil {
			return err
		}
	}
	return nil
}

func (m *exported) addTo(s *series, v value, bucket float64) error {
	for i := range m.Metrics {
		metric := &m.Metrics[i]
		numbers, err := v.numbers(metric)
		if err != nil {
			return fmt.Errorf("metric %s: %w", metric.Name, err)
		}
		if metric.Type != TypeHistogram {
			s.numbers[i] += numbers[0]
			continue
		}
		if s.buckets[i] == nil {
			s.buckets[i] = map[float64]float64{}
		}
		if m.buckets {
			s.buckets[i][bucket] += numbers[0]
			continue
		}
		for n, count := range numbers {
			s.buckets[i][float64(n)] += count
		}
	}
	return nil
}

// labelsOf returns the values of the labels that come from the key, and the bucket if it is in the key. With cpu, the
// last label isn't in the key.
func (m *exported) labelsOf(k key, cpu bool) (values []string, bucket float64, err error) {
	wanted := m.Labels
	if cpu {
		wanted = wanted[:len(wanted)-1]
	}
	parts, err := k.parts(wanted)
	if err != nil {
		return nil, 0, err
	}
	for i := range wanted {
		text, err := wanted[i].value(parts[i], m.host)
		if err != nil {
			return nil, 0, fmt.Errorf("label %s: %w", wanted[i].Name, err)
		}
		values = append(values, text)
	}
	if !m.buckets {
		return values, 0, nil
	}
	last := len(values) - 1
	bucket, err = strconv.ParseFloat(values[last], 64)
	if err != nil {
		return nil, 0, fmt.Errorf("bucket %q isn't a number", values[last])
	}
	return values[:last], bucket, nil
}
