// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package metrics tells what a node's eBPF costs: how often and how long programs run,
// how many there are, and the memory of their maps. Each has a bounded number of
// series: what is least is summed under the holder "other".
package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
)

// maxSeries is how many series each metric has, besides those of the rest.
const maxSeries = 100

// Kernel is asked at each scrape. What has gone meanwhile is an error.
type Kernel struct {
	// Runs returns how often a program ran, and for how long in all; nil where the
	// kernel doesn't count.
	Runs func(program uint32) (count uint64, total time.Duration, err error)
	// MapMemory returns the bytes that the kernel accounts to a map.
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

// Collector serves the metrics of the node that it was last told of.
type Collector struct {
	kernel Kernel

	mu      sync.Mutex
	status  *v1alpha1.BpfNodeStatus
	counted map[uint32]ran         // by program, at the last scrape
	series  map[programKey]*series // by what programs are told apart by
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
	// shown tells that it isn't part of the rest.
	shown bool
}

// ownerKey names an object of bpfman, or else who holds a program.
type ownerKey struct{ kind, namespace, name, holder string }

func (o ownerKey) labels() []string { return []string{o.kind, o.namespace, o.name, o.holder} }

type programKey struct {
	ownerKey

	program string
}

func (p programKey) labels() []string { return append(p.ownerKey.labels(), p.program) }

// other are all that have no series of their own.
var other = ownerKey{holder: "other"}

// New returns a collector that knows of no node yet.
func New(kernel Kernel) *Collector {
	return &Collector{kernel: kernel, counted: map[uint32]ran{}, series: map[programKey]*series{}}
}

// See takes a node's status, with nothing left out, which must not change any more.
func (c *Collector) See(status *v1alpha1.BpfNodeStatus) {
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

// ownerOf is the object that a program was loaded for, or who holds it.
func ownerOf(program *v1alpha1.BpfNodeProgram) ownerKey {
	if o := program.Owner; o != nil {
		return ownerKey{kind: o.Kind, namespace: o.Namespace, name: o.Name}
	}
	if program.Bpfman {
		return ownerKey{holder: "bpfman"}
	}
	return ownerKey{holder: holder(program.Holders)}
}

// holder is the pod or unit of the first process, which restarts less often than the
// process gets another id; then that of a pin.
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
