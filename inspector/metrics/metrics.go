// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package metrics provides metrics of a node's eBPF: how often and how long programs
// run, the number of programs, and the memory of their maps. The number of series of
// each metric is limited. The smallest values are added up under the holder "other".
package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
)

// maxSeries is the maximum number of series of each metric, without the series for the
// rest.
const maxSeries = 100

// Kernel is queried on each scrape. Its functions return an error for an object that
// no longer exists.
type Kernel struct {
	// Runs returns how often a program ran, and the total time. Runs is nil if the
	// kernel's statistics are disabled.
	Runs func(program uint32) (count uint64, total time.Duration, err error)
	// MapMemory returns the memory of a map according to the kernel, in bytes.
	MapMemory func(id uint32) (uint64, error)
}

var (
	ownerLabels   = []string{"owner_kind", "owner_namespace", "owner_name", "holder"}
	programLabels = append(slices.Clip(ownerLabels), "program")

	runSeconds = prometheus.NewDesc("bpf_program_run_seconds_total",
		"Run time of programs in seconds, while the kernel measures it.", programLabels, nil)
	runs = prometheus.NewDesc("bpf_program_runs_total",
		"Number of runs of programs, while the kernel counts them.", programLabels, nil)
	programs = prometheus.NewDesc("bpf_programs",
		"Number of programs in the kernel, by type, and by the object that they were loaded for or their holder.", append([]string{"type"}, ownerLabels...), nil)
	mapMemory = prometheus.NewDesc("bpf_map_memory_bytes",
		"Memory of maps in bytes, by the object that their program was loaded for or the program's holder.", ownerLabels, nil)
	conflicts = prometheus.NewDesc("bpf_conflicts",
		"Number of conflicts that prevent, or could prevent, programs of bpfman from working, by type.", []string{"type"}, nil)
)

// Collector serves the metrics for the last status that it received.
type Collector struct {
	kernel Kernel

	mu      sync.Mutex
	status  *v1alpha1.BpfNodeStatus
	counted map[uint32]ran         // by program, at the last scrape; nil before the first
	series  map[programKey]*series // by the key that distinguishes programs
	rest    ran
}

// ran is how often programs ran, and how long.
type ran struct {
	count uint64
	total time.Duration
}

func (r *ran) add(other ran) {
	r.count += other.count
	r.total += other.total
}

type series struct {
	ran

	programs int
	// shown means that it has a series, and isn't part of the rest.
	shown bool
}

// ownerKey identifies an object of bpfman, or else the holder of a program.
type ownerKey struct{ kind, namespace, name, holder string }

func (o ownerKey) labels() []string { return []string{o.kind, o.namespace, o.name, o.holder} }

type programKey struct {
	ownerKey

	program string
}

func (p programKey) labels() []string { return append(p.ownerKey.labels(), p.program) }

// other stands for all owners without a series.
var other = ownerKey{holder: "other"}

// New returns a collector without a status.
func New(kernel Kernel) *Collector {
	return &Collector{kernel: kernel, series: map[programKey]*series{}}
}

// Update sets the node's status. It must be complete, and must not change afterwards.
func (c *Collector) Update(status *v1alpha1.BpfNodeStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{runSeconds, runs, programs, mapMemory, conflicts} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status == nil {
		return
	}
	if c.kernel.Runs != nil {
		c.choose(c.count())
		c.collectRuns(out)
	}
	c.collectPrograms(out)
	c.collectMaps(out)
	found := map[string]float64{}
	for _, one := range c.status.Conflicts {
		found[one.Type]++
	}
	for _, kind := range conflict.Types {
		out <- prometheus.MustNewConstMetric(conflicts, prometheus.GaugeValue, found[kind], kind)
	}
}

// ownerOf returns the object that a program was loaded for, or its holder.
func ownerOf(program *v1alpha1.BpfNodeProgram) ownerKey {
	if o := program.Owner; o != nil {
		return ownerKey{kind: o.Kind, namespace: o.Namespace, name: o.Name}
	}
	if program.Bpfman {
		return ownerKey{holder: "bpfman"}
	}
	return ownerKey{holder: holder(program.Holders)}
}

// holder returns the pod or unit of the first process, because that changes less often
// than the process's id. Without a process, it returns the pod of a pin.
func holder(holders []v1alpha1.BpfNodeHolder) string {
	pinned := ""
	for _, h := range holders {
		switch {
		case h.Pod != "":
			return "pod " + h.Namespace + "/" + h.Pod
		case h.Unit != "":
			return "unit " + h.Unit
		case h.PID != 0:
			return "process " + h.Process
		case h.Path != "":
			pinned = "pinned"
		}
	}
	return pinned
}
