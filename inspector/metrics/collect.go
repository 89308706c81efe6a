// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// count adds what ran since the last scrape to the series, and returns it. Several programs can share
// a series, and programs are unloaded. A sum of the kernel's counters would decrease then, which
// looks like a reset of the counter, so count adds up the differences. At the first scrape, it starts
// with 0, because after a restart the kernel's counters are less than the sums with the unloaded
// programs were, which would look like a reset to a large value.
func (c *Collector) count() map[programKey]ran {
	for _, s := range c.series {
		s.programs = 0
	}
	counted := make(map[uint32]ran, len(c.status.Programs))
	since := map[programKey]ran{}
	for i := range c.status.Programs {
		program := &c.status.Programs[i]
		count, total, err := c.kernel.Runs(program.ID)
		if err != nil {
			continue // it was unloaded
		}
		now, before := ran{count, total}, c.counted[program.ID]
		if c.counted == nil {
			before = now
		}
		counted[program.ID] = now
		key := programKey{ownerOf(program), program.Name}
		if c.series[key] == nil {
			c.series[key] = &series{}
		}
		c.series[key].programs++
		if now.count >= before.count && now.total >= before.total {
			one := since[key]
			one.add(ran{now.count - before.count, now.total - before.total})
			since[key] = one
		}
	}
	for key, s := range c.series {
		s.add(since[key])
		if s.programs == 0 {
			delete(c.series, key)
		}
	}
	c.counted = counted
	return since
}

// choose selects the series of the programs that ran longest, and adds what other programs ran since
// the last scrape to the rest. If one of those gets a series later, the rest keeps its value, because
// a counter must not decrease.
func (c *Collector) choose(since map[programKey]ran) {
	times := map[programKey]time.Duration{}
	for key, s := range c.series {
		times[key] = s.total
	}
	for i, key := range largest(times, programKey.labels) {
		c.series[key].shown = i < maxSeries
		if !c.series[key].shown {
			c.rest.add(since[key])
		}
	}
}

func (c *Collector) collectRuns(out chan<- prometheus.Metric) {
	tell := func(r ran, labels []string) {
		out <- prometheus.MustNewConstMetric(runSeconds, prometheus.CounterValue, r.total.Seconds(), labels...)
		out <- prometheus.MustNewConstMetric(runs, prometheus.CounterValue, float64(r.count), labels...)
	}
	for key, s := range c.series {
		if s.shown {
			tell(s.ran, key.labels())
		}
	}
	tell(c.rest, programKey{ownerKey: other}.labels())
}

type typedOwner struct {
	kind string
	ownerKey
}

func (c *Collector) collectPrograms(out chan<- prometheus.Metric) {
	counts := map[typedOwner]float64{}
	for i := range c.status.Programs {
		counts[typedOwner{c.status.Programs[i].Type, ownerOf(&c.status.Programs[i])}]++
	}
	rest := map[string]float64{}
	for i, key := range largest(counts, func(t typedOwner) []string { return append([]string{t.kind}, t.labels()...) }) {
		if i >= maxSeries {
			rest[key.kind] += counts[key]
			continue
		}
		out <- prometheus.MustNewConstMetric(programs, prometheus.GaugeValue, counts[key], append([]string{key.kind}, key.labels()...)...)
	}
	for kind, n := range rest {
		out <- prometheus.MustNewConstMetric(programs, prometheus.GaugeValue, n, append([]string{kind}, other.labels()...)...)
	}
}

func (c *Collector) collectMaps(out chan<- prometheus.Metric) {
	// If several owners use a map, it belongs to the program that was loaded first.
	owners := map[uint32]ownerKey{}
	for i := range c.status.Programs {
		program := &c.status.Programs[i]
		for _, id := range program.MapIDs {
			if _, known := owners[id]; !known {
				owners[id] = ownerOf(program)
			}
		}
	}
	bytes := map[ownerKey]float64{}
	for _, m := range c.status.Maps {
		if n, err := c.kernel.MapMemory(m.ID); err == nil {
			bytes[owners[m.ID]] += float64(n)
		}
	}
	rest := 0.0
	for i, key := range largest(bytes, ownerKey.labels) {
		if i >= maxSeries {
			rest += bytes[key]
			continue
		}
		out <- prometheus.MustNewConstMetric(mapMemory, prometheus.GaugeValue, bytes[key], key.labels()...)
	}
	if rest > 0 {
		out <- prometheus.MustNewConstMetric(mapMemory, prometheus.GaugeValue, rest, other.labels()...)
	}
}

// largest returns the keys, sorted by descending values.
func largest[K comparable, V cmp.Ordered](values map[K]V, labels func(K) []string) []K {
	return slices.SortedFunc(maps.Keys(values), func(a, b K) int {
		return cmp.Or(cmp.Compare(values[b], values[a]), slices.Compare(labels(a), labels(b)))
	})
}
