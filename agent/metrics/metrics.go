// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package metrics provides Prometheus metrics about the agent: its programs and links,
// the daemon's calls and database, the images that are read, and the work queue.
package metrics

import (
	"context"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const prefix = "bpfman_agent_"

// Metrics contains the agent's metrics. A nil Metrics counts nothing, but must not be
// used for Call.
type Metrics struct {
	factory  promauto.Factory
	calls    *prometheus.HistogramVec
	repaired *prometheus.CounterVec
	read     *prometheus.HistogramVec
	listed   prometheus.Gauge
}

// New registers metrics. The counters of repairs, and the reads, start at 0.
func New(registry prometheus.Registerer) *Metrics {
	factory := promauto.With(registry)
	m := &Metrics{
		factory: factory,
		calls: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "daemon_call_duration_seconds",
			Help: "Duration of calls to the bpfman daemon in seconds, by call and gRPC code.",
			// From an empty list to a program that the kernel verifies for long
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60},
		}, []string{"call", "code"}),
		repaired: factory.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "drift_repaired_total",
			Help: "Number of programs and links that were removed outside of the agent and then restored.",
		}, []string{"what"}),
		read: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "bytecode_read_duration_seconds",
			Help: "Duration of reading an image or its signatures from a registry in seconds, by result: read, unfit, or failed.",
			// From a local registry to one that doesn't respond
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 15, 30},
		}, []string{"result"}),
		listed: factory.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "daemon_list_bytes",
			Help: "Size of the bpfman daemon's list of programs in bytes, which repeats the global data of an object for each of its programs.",
		}),
	}
	for _, what := range []string{"program", "link"} {
		m.repaired.WithLabelValues(what)
	}
	for _, result := range []string{"read", "unfit", "failed"} {
		m.read.WithLabelValues(result)
	}
	return m
}

// Call is an interceptor of the connection to the daemon that measures the duration of
// calls, and the size of the daemon's list. The duration doesn't include the time that a call waits for other calls.
func (m *Metrics) Call(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	start := time.Now()
	err := invoke(ctx, method, request, reply, conn, options...)
	m.calls.WithLabelValues(path.Base(method), status.Code(err).String()).Observe(time.Since(start).Seconds())
	if list, ok := reply.(*gobpfman.ListResponse); ok && err == nil {
		m.listed.Set(float64(proto.Size(list)))
	}
	return err
}

// Repaired counts programs and links that were missing, and were restored.
func (m *Metrics) Repaired(programs, links int) {
	if m != nil {
		m.repaired.WithLabelValues("program").Add(float64(programs))
		m.repaired.WithLabelValues("link").Add(float64(links))
	}
}

// Read counts a read of an image, with its duration and its result.
func (m *Metrics) Read(took time.Duration, result string) {
	if m != nil {
		m.read.WithLabelValues(result).Observe(took.Seconds())
	}
}

// Disk registers gauges of what the agent and the daemon keep on the node's disk: the sizes
// of the store of bytecode, and of the daemon's database, in bytes.
func Disk(registry prometheus.Registerer, store, database func() int64) {
	for name, gauge := range map[string]struct {
		help string
		size func() int64
	}{
		"bytecode_store_bytes":  {"Size of the objects in the node's store of bytecode in bytes.", store},
		"daemon_database_bytes": {"Size of the bpfman daemon's database in the node's /run in bytes. The daemon doesn't shrink it.", database},
	} {
		promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: gauge.help}, func() float64 { return float64(gauge.size()) })
	}
}

// Waiting registers gauges of what waits for the API server: changes of network programs that it hasn't confirmed, and
// objects whose reports aren't written.
func Waiting(registry prometheus.Registerer, unconfirmed, unwritten func() int) {
	for name, gauge := range map[string]struct {
		help  string
		count func() int
	}{
		"unconfirmed_changes": {"Number of changes of network programs that are attached, and after which the API server hasn't responded yet.", unconfirmed},
		"unreported_objects":  {"Number of objects whose reports on this node aren't written yet.", unwritten},
	} {
		promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: gauge.help}, func() float64 { return float64(gauge.count()) })
	}
}

// Daemon is a collector of a metric about the node's daemon.
type Daemon struct {
	// Name returns which daemon the agent has recognized, or "".
	Name func() string
}

var daemonDesc = prometheus.NewDesc(prefix+"daemon_info",
	"Which bpfman daemon answers the agent, with the value 1. It is absent while none has answered.", []string{"daemon"}, nil)

// Describe implements [prometheus.Collector].
func (d *Daemon) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- daemonDesc }

// Collect implements [prometheus.Collector].
func (d *Daemon) Collect(collected chan<- prometheus.Metric) {
	if name := d.Name(); name != "" {
		collected <- prometheus.MustNewConstMetric(daemonDesc, prometheus.GaugeValue, 1, name)
	}
}

// Reports is a collector of metrics about this node's reports.
type Reports struct {
	// List returns the reports. The collector doesn't change them.
	List func() []v1alpha1.ProgramObject
}

// Pending is the state of a program without a condition.
const Pending = "Pending"

var (
	programsDesc = prometheus.NewDesc(prefix+"programs",
		"Number of programs on this node, by the kind of their owner and the type of their condition, or Pending if they have none.", []string{"kind", "state"}, nil)
	linksDesc = prometheus.NewDesc(prefix+"links",
		"Number of attach points on this node, by the kind of the program's owner and their state.", []string{"kind", "state"}, nil)
)

var verdictsDesc = prometheus.NewDesc(prefix+"policy_verdicts",
	"Number of programs on this node, by the BytecodePolicy that matches them and its verdict: Allowed, Denied, Warned, or Unknown.", []string{"policy", "verdict"}, nil)

// Describe implements [prometheus.Collector].
func (r *Reports) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- verdictsDesc
	descriptions <- programsDesc
	descriptions <- linksDesc
}

// Collect implements [prometheus.Collector].
func (r *Reports) Collect(collected chan<- prometheus.Metric) {
	type group struct{ of, state string }
	programs, links, verdicts := map[group]int{}, map[group]int{}, map[group]int{}
	for _, p := range r.List() {
		owner, state := p.GetLabels()[v1alpha1.LabelOwnerKind], Pending
		if conditions := p.GetStatus().Conditions; len(conditions) > 0 {
			state = conditions[0].Type
		}
		programs[group{owner, state}]++
		for _, link := range p.GetStatus().Links {
			links[group{owner, string(link.State)}]++
		}
		for _, said := range policiesOf(p) {
			verdicts[group{said.Name, string(said.Verdict)}]++
		}
	}
	for desc, groups := range map[*prometheus.Desc]map[group]int{programsDesc: programs, linksDesc: links, verdictsDesc: verdicts} {
		for g, n := range groups {
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), g.of, g.state)
		}
	}
}

func policiesOf(p v1alpha1.ProgramObject) []v1alpha1.BpfProgramPolicy {
	if b := p.GetStatus().Bytecode; b != nil {
		return b.Policies
	}
	return nil
}
