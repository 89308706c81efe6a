// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/figures"
)

const (
	// agentPrograms is the number of programs of the agent whose memory is measured.
	agentPrograms = 60
	// sampleNodes are two nodes whose reports show the API server's storage format.
	sampleNodes = 2
	// settleTimeout bounds the wait for statuses.
	settleTimeout = 10 * time.Minute
	idleFor       = time.Minute
	// roundNodes is the number of nodes that get reports about writeObjects in a round of writes. roundNodesToAll
	// is the same if every agent receives each write.
	roundNodes, roundNodesToAll = 100, 10
	writeObjects                = 3
)

// bench is one run.
type bench struct {
	options

	started time.Time
	dir     string
	figures map[string]any

	control  *controlPlane
	operator *component
	statuses *statuses
	objects  []v1alpha1.UserObject
	// reporter is for the objects. writes is for other objects that select no node, so their reports don't change
	// a status.
	reporter, writes *reporter
	real             *agents
	// watches are the watches that existed before the agents.
	watches map[string]int
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) put(name string, value float64) { b.figures[name] = figures.Round(value) }

// measure measures everything once.
func (b *bench) measure(ctx context.Context) (err error) {
	b.put("nodes", float64(b.nodes))
	b.put("programs", float64(b.programs))
	b.put("reports", float64(b.nodes*b.programs))
	b.put("agents", float64(b.agents))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if b.control, err = startControlPlane(ctx, b.dir); err != nil {
		return err
	}
	defer func() {
		stop() // open watches would delay it
		err = errors.Join(err, b.control.stop())
	}()
	if err := b.startOperator(); err != nil {
		return err
	}
	defer func() { b.operator.stop(context.WithoutCancel(ctx)) }()
	kwok, err := startKwok(b.control, b.kwok, b.stages)
	if err != nil {
		return err
	}
	defer func() { kwok.stop(context.WithoutCancel(ctx)) }()
	if b.statuses, err = watchStatuses(ctx, b.control, declared("any", allKinds, allKinds, nil)); err != nil {
		return err
	}
	defer func() {
		if b.real != nil {
			err = errors.Join(err, b.real.end())
		}
	}()
	for _, step := range b.steps() {
		b.say("%s", step.name)
		if err := step.do(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", step.name, err), b.operator.running(), kwok.running())
		}
	}
	b.put("took_s", time.Since(b.started).Seconds())
	return nil
}

// step measures something. Each step leaves the cluster in the state that the next one needs.
type step struct {
	name string
	do   func(context.Context) error
}

func (b *bench) steps() []step {
	if b.rolloutOnly {
		return []step{
			{"nodes and their pods", b.allNodes},
			{"a rollout in steps", b.staged},
			{"confirmations of all nodes", b.confirmations},
		}
	}
	steps := []step{
		{"one node: the agent's memory", b.loneAgentAlone},
		{"agents", b.startAgents},
		{"nodes and their pods", b.addNodes},
		{"roll-out", b.rollOut},
		{"idle", b.idle},
		{"the operator's restart", b.restart},
		{"ways to read reports", b.lists},
		{"the agent's memory in the large cluster", b.loneAgentLarge},
		{"writes, and memory of connections", b.connections100},
		{"what else agents could watch", b.alternatives},
	}
	if b.agentOnly {
		return steps[:1]
	}
	return steps
}

func (b *bench) startOperator() error {
	kubeconfig, err := b.control.kubeconfig("operator", b.control.accounts[operatorAccount])
	if err != nil {
		return err
	}
	b.operator, err = startComponent(b.dir, b.options.operator, []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + namespace},
		"--leader-elect", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	return err
}

// lone measures the memory of the agent's executable on the first node, which then has all its programs.
func (b *bench) lone(ctx context.Context, figure string, own int, right func(*v1alpha1.BpfProgramStatusCommon) bool) error {
	objects := declared("lone", own, b.kinds, map[string]string{v1alpha1.LabelHostname: nodeName(0)})
	if err := create(ctx, b.control.client, objects); err != nil {
		return err
	}
	agent, err := startLoneAgent(b.control, b.agent, nodeName(0))
	if err != nil {
		return err
	}
	defer agent.stop(context.WithoutCancel(ctx))
	waitCtx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errors.New("not attached in time"))
	defer cancel()
	if _, err := b.statuses.await(waitCtx, objects, attached(1)); err != nil {
		return errors.Join(err, agent.running())
	}
	if _, err := b.statuses.await(waitCtx, b.objects, right); err != nil {
		return errors.Join(err, agent.running())
	}
	if err := sleep(ctx, 20*time.Second); err != nil {
		return err
	}
	used, err := agent.memory()
	if err != nil {
		return err
	}
	b.put(figure, used.resident)
	b.put(strings.Replace(figure, "rss", "rss_peak", 1), used.peak)
	b.put(strings.Replace(figure, "rss", "rss_files", 1), used.files)
	b.say("  agent with %d programs: %.1f MiB, at most %.1f; %.1f of them are pages of its executable",
		own+len(b.objects), used.resident, used.peak, used.files)

	r, err := newReporter(b.control, objects)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := b.control.client.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete %s: %w", o.GetName(), err)
		}
	}
	return r.gone(ctx, nodeName(0))
}

func (b *bench) loneAgentAlone(ctx context.Context) error {
	if err := addNodes(ctx, b.control, 0, 1); err != nil {
		return err
	}
	return b.lone(ctx, "agent_rss_one_node_mb", agentPrograms, nil)
}

func (b *bench) loneAgentLarge(ctx context.Context) error {
	return b.lone(ctx, "agent_rss_mb", max(0, agentPrograms-b.programs), attached(b.nodes))
}

func (b *bench) addNodes(ctx context.Context) error {
	if err := addNodes(ctx, b.control, 1+b.agents, b.nodes); err != nil {
		return err
	}
	used, err := b.operator.memory()
	if err != nil {
		return err
	}
	b.put("operator_rss_no_reports_mb", used.resident)
	return nil
}

func (b *bench) startAgents(ctx context.Context) (err error) {
	// Agents watch the kinds that have objects.
	objects := declared("writes", writeObjects, b.kinds, map[string]string{"pool": "none"})
	if err := create(ctx, b.control.client, objects); err != nil {
		return err
	}
	if b.writes, err = newReporter(b.control, objects); err != nil {
		return err
	}
	if err := addNodes(ctx, b.control, 1, 1+b.agents); err != nil {
		return err
	}
	// The API server's memory for each agent is only measurable if little else changes it.
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	before, err := b.control.load(ctx)
	if err != nil {
		return err
	}
	b.watches = before.watches
	if b.real, err = startAgents(ctx, b.control, 1, 1+b.agents); err != nil {
		return err
	}
	// All agents have started when each has listed its node, and no more watches are added.
	if err := b.watchesSettle(ctx); err != nil {
		return err
	}
	return b.perAgent(ctx, "apiserver_kb_per_real_agent", b.agents, before)
}

// watchesSettle waits until the number of watches stays the same for some seconds.
func (b *bench) watchesSettle(ctx context.Context) error {
	for last, same := -1, 0; same < 3; {
		watches, err := b.control.watches(ctx)
		if err != nil {
			return err
		}
		sum := 0
		for _, count := range watches {
			sum += count
		}
		if sum == last {
			same++
		} else {
			last, same = sum, 0
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// perAgent records the API server's memory for each connected agent.
func (b *bench) perAgent(ctx context.Context, figure string, count int, before load) error {
	now, err := b.control.load(ctx)
	if err != nil {
		return err
	}
	heap, resident := (now.heap-before.heap)/float64(count), (now.resident-before.resident)*1024/float64(count)
	b.put(figure, heap)
	b.put(strings.Replace(figure, "apiserver_kb", "apiserver_rss_kb", 1), resident)
	b.say("  %d agents: %.0f KiB each in use, %.0f resident; watches of all agents: %s", count, heap, resident, b.agentWatches(now.watches))
	return nil
}

// agentWatches returns the number of additional watches since before the agents, by resource.
func (b *bench) agentWatches(watches map[string]int) string {
	texts := make([]string, 0, len(watches))
	for _, resource := range slices.Sorted(maps.Keys(watches)) {
		if more := watches[resource] - b.watches[resource]; more > 0 {
			texts = append(texts, fmt.Sprintf("%s %d", resource, more))
		}
	}
	return strings.Join(texts, ", ")
}

// rollOut creates the objects, and waits until each is attached on all nodes.
func (b *bench) rollOut(ctx context.Context) error {
	before, err := measureBackground(ctx, b.control.apiServer)
	if err != nil {
		return err
	}
	b.statuses.countAgain()
	received, sent := b.real.traffic.received.Load(), b.real.traffic.sent.Load()
	start := time.Now()
	b.objects = declared("scale", b.programs, b.kinds, poolLabel)
	cost, err := before.cost(ctx, func() (err error) {
		if err := create(ctx, b.control.client, b.objects); err != nil {
			return err
		}
		if b.reporter, err = newReporter(b.control, b.objects); err != nil {
			return err
		}
		return b.report(ctx, start)
	})
	if err != nil {
		return err
	}
	b.put("rollout_apiserver_cpu_s", cost.Seconds())
	if b.through >= b.nodes*b.programs {
		b.put("rollout_apiserver_us_per_report", float64(cost.Microseconds())/float64(b.nodes*b.programs))
	}
	mean, most := b.statuses.writesPerObject(b.objects)
	b.put("rollout_status_writes_per_object", mean)
	b.put("rollout_status_writes_per_object_most", most)
	b.put("rollout_kb_to_each_agent", float64(b.real.traffic.received.Load()-received)/1024/float64(b.agents))
	b.put("rollout_kb_from_each_agent", float64(b.real.traffic.sent.Load()-sent)/1024/float64(b.agents))
	b.say("  %.1f status writes an object, %.0f at most; %.0f KiB sent to an agent, %.0f by it", mean, most,
		b.figures["rollout_kb_to_each_agent"], b.figures["rollout_kb_from_each_agent"])
	used, err := b.operator.memory()
	if err != nil {
		return err
	}
	b.put("operator_rss_rollout_mb", used.resident)
	b.put("operator_rss_rollout_peak_mb", used.peak)
	return nil
}

// report writes the reports of all nodes without an agent, and waits for the statuses.
func (b *bench) report(ctx context.Context, start time.Time) error {
	// The reports of the sample nodes, and those of the last nodes, go through the API server. The statuses are
	// complete some time after these.
	sample := 1 + b.agents
	if _, err := b.reporter.nodes(ctx, 0, 1); err != nil {
		return err
	}
	if _, err := b.reporter.nodes(ctx, sample, sample+sampleNodes); err != nil {
		return err
	}
	s, err := openStore(ctx, b.control, b.reporter, nodeName(sample))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.check(ctx, b.reporter, nodeName(sample+1)); err != nil {
		return err
	}
	b.put("etcd_bytes_per_report", s.bytesPerReport())
	next, bulk := sample+sampleNodes, max(0, b.nodes-max(sample+sampleNodes+1, b.through/b.programs))
	if bulk > 0 {
		if err := s.nodes(ctx, b.reporter, next, next+bulk); err != nil {
			return err
		}
		b.say("  %d nodes' reports are in etcd", bulk)
		if err := s.seen(ctx, b.control, b.reporter, nodeName(next+bulk-1)); err != nil {
			return err
		}
		b.say("  the API server has seen them")
	}
	last, err := b.reporter.nodes(ctx, next+bulk, b.nodes)
	if err != nil {
		return err
	}
	settled, err := b.settled(ctx, attached(b.nodes))
	if err != nil {
		return err
	}
	if agents := b.real.lastReport(); agents.After(last) {
		last = agents
	}
	b.put("rollout_s", last.Sub(start).Seconds())
	b.put("settle_s", settled.Sub(last).Seconds())
	b.say("  %d reports in %.1f s; statuses complete %.3f s after the last", b.nodes*b.programs, last.Sub(start).Seconds(), settled.Sub(last).Seconds())
	for i := range b.agents {
		if err := b.reporter.sameAsAgents(ctx, nodeName(1+i)); err != nil {
			return err
		}
	}
	return nil
}

// settled waits until the statuses of all objects are right, and returns the time when they were.
func (b *bench) settled(ctx context.Context, right func(*v1alpha1.BpfProgramStatusCommon) bool) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errors.New("not so in time"))
	defer cancel()
	return b.statuses.await(ctx, b.objects, right)
}

func (b *bench) await(ctx context.Context, right func(*v1alpha1.BpfProgramStatusCommon) bool) error {
	_, err := b.settled(ctx, right)
	return err
}

// idle measures what is sent to agents while nothing changes, and the operator's memory.
func (b *bench) idle(ctx context.Context) error {
	received, sent := b.real.traffic.received.Load(), b.real.traffic.sent.Load()
	if err := sleep(ctx, idleFor); err != nil {
		return err
	}
	b.put("idle_kb_per_minute_to_each_agent", float64(b.real.traffic.received.Load()-received)/1024/float64(b.agents)/idleFor.Minutes())
	b.put("idle_kb_per_minute_from_each_agent", float64(b.real.traffic.sent.Load()-sent)/1024/float64(b.agents)/idleFor.Minutes())
	used, err := b.operator.memory()
	if err != nil {
		return err
	}
	b.put("operator_rss_mb", used.resident)
	b.say("  operator %.0f MiB, %.0f at most", used.resident, used.peak)
	return nil
}

// restart stops the operator, makes every object fail on a node, and measures the time from the operator's start
// until each object's status contains the failure.
func (b *bench) restart(ctx context.Context) error {
	b.operator.stop(ctx)
	failing := nodeName(b.nodes - 1)
	if err := b.reporter.set(ctx, failing, v1alpha1.BpfProgCondNotLoaded.Condition("made to fail by the benchmark")); err != nil {
		return err
	}
	start := time.Now()
	if err := b.startOperator(); err != nil {
		return err
	}
	right, err := b.settled(ctx, failedOn(1, b.nodes))
	if err != nil {
		return err
	}
	b.put("operator_restart_s", right.Sub(start).Seconds())
	cpu, err := b.operator.cpu()
	if err != nil {
		return err
	}
	b.put("operator_restart_cpu_s", cpu.Seconds())
	if err := b.reporter.set(ctx, failing, v1alpha1.BpfProgCondLoaded.Condition()); err != nil {
		return err
	}
	if err := b.await(ctx, attached(b.nodes)); err != nil {
		return err
	}
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	used, err := b.operator.memory()
	if err != nil {
		return err
	}
	b.put("operator_rss_restarted_mb", used.resident)
	b.put("operator_rss_peak_mb", used.peak)
	without, _ := b.figures["operator_rss_no_reports_mb"].(float64)
	b.put("operator_mb_per_1000_reports", (used.resident-without)*1000/float64(b.nodes*b.programs))
	b.say("  right again after %.1f s (%.1f s of CPU); %.0f MiB, %.0f at most", right.Sub(start).Seconds(), cpu.Seconds(), used.resident, used.peak)
	return nil
}
