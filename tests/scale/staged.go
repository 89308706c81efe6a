// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

const (
	// stagedSteps is the number of steps of a rollout, each on another tenth of the nodes.
	stagedSteps = 10
	// interrupted is the step in which the operator restarts.
	interrupted = 5
	// confirmWithin is the default of the ConfigMap's key bpfman.agent.confirm.timeout.
	confirmWithin = 30 * time.Second
)

// allNodes adds all nodes, without agents.
func (b *bench) allNodes(ctx context.Context) error { return addNodes(ctx, b.control, 0, b.nodes) }

// confirmations sends the requests of all nodes after a change that selects all of them, as the agents do.
func (b *bench) confirmations(ctx context.Context) error {
	asker, err := confirm.NewAsker(b.control.as(agentAccount), "")
	if err != nil {
		return err
	}
	before, err := measureBackground(ctx, b.control.apiServer)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var took []float64
	seconds := map[int]int{}
	start := time.Now()
	cost, err := before.cost(ctx, func() error {
		asking, ctx := errgroup.WithContext(ctx)
		for range b.nodes {
			asking.Go(func() error {
				if err := sleep(ctx, confirm.Delay(confirmWithin)); err != nil {
					return err
				}
				sent := time.Now()
				if asker.Ask(ctx) != confirm.Responded {
					return errors.New("the API server didn't respond")
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, float64(time.Since(sent).Microseconds())/1000)
				seconds[int(sent.Sub(start).Seconds())]++
				return nil
			})
		}
		return asking.Wait()
	})
	if err != nil {
		return err
	}
	most := 0
	for _, n := range seconds {
		most = max(most, n)
	}
	slices.Sort(took)
	b.put("confirmations", float64(len(took)))
	b.put("confirmations_per_second_most", float64(most))
	b.put("confirmation_ms_median", took[len(took)/2])
	b.put("confirmation_ms_p99", took[len(took)*99/100])
	b.put("confirmation_ms_most", took[len(took)-1])
	b.put("confirmations_apiserver_cpu_s", cost.Seconds())
	b.put("confirmation_apiserver_us", float64(cost.Microseconds())/float64(len(took)))
	b.say("  %d requests over new connections, at most %d a second; half of them within %.1f ms, all within %.0f ms; %.1f s of CPU in the API server",
		len(took), most, took[len(took)/2], took[len(took)-1], cost.Seconds())
	return nil
}

// stagedFleet simulates the agents of all nodes, which run and report what the status of one object assigns to them.
type stagedFleet struct {
	b        *bench
	object   *v1alpha1.TcxProgram
	reporter *reporter
	// reports are the reports of the nodes, by their numbers. changed are the nodes that report the newest revision.
	reports []v1alpha1.ProgramObject
	changed []bool
}

// stagedStep is what was measured of a step.
type stagedStep struct {
	// took is the time until the next step. reporting is the part of it until all nodes of the step have reported.
	took, reporting time.Duration
	reports, writes int
}

// staged rolls out a change in ten steps, and restarts the operator in one of them.
func (b *bench) staged(ctx context.Context) error {
	f, err := b.newStagedFleet(ctx)
	if err != nil {
		return err
	}
	if err := b.control.client.Create(ctx, stagedPolicy()); err != nil {
		return fmt.Errorf("create the RolloutPolicy: %w", err)
	}
	if _, err := f.await(ctx, func(s *v1alpha1.RolloutStatus) bool { return s.State == v1alpha1.RolloutComplete }); err != nil {
		return err
	}
	if err := b.control.client.Get(ctx, keyOf(f.object), f.object); err != nil {
		return fmt.Errorf("get the object: %w", err)
	}
	b.statuses.countAgain()
	f.object.Spec.BpfFunctionName = "another"
	start := time.Now()
	if err := b.control.client.Update(ctx, f.object); err != nil {
		return fmt.Errorf("change the object: %w", err)
	}
	var steps []stagedStep
	for step := int32(1); step <= stagedSteps; step++ {
		measured, err := f.step(ctx, step)
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		b.say("  step %d: %d reports in %.1f s, %.2f s more until the next step, %d writes of the object's status", step, measured.reports,
			measured.reporting.Seconds(), (measured.took - measured.reporting).Seconds(), measured.writes)
		steps = append(steps, measured)
	}
	after, err := b.operator.cpu()
	if err != nil {
		return err
	}
	b.putSteps(steps, time.Since(start))
	b.put("staged_operator_cpu_s", after.Seconds())
	return nil
}

func (b *bench) putSteps(steps []stagedStep, took time.Duration) {
	reports, writes, most := 0, 0, 0
	var waits []float64
	for i, s := range steps {
		reports, writes, most = reports+s.reports, writes+s.writes, max(most, s.writes)
		if wait := (s.took - s.reporting).Seconds(); i+1 == interrupted {
			b.put("staged_restart_s", wait)
		} else {
			waits = append(waits, wait)
		}
	}
	b.put("staged_s", took.Seconds())
	b.put("staged_reports", float64(reports))
	b.put("staged_object_writes", float64(writes))
	b.put("staged_object_writes_per_step", float64(writes)/float64(len(steps)))
	b.put("staged_object_writes_per_step_most", float64(most))
	b.put("staged_next_step_s_median", figures.Median(waits, func(s float64) float64 { return s }))
	b.put("staged_next_step_s_most", slices.Max(waits))
}

func stagedPolicy() *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "staged"}}
	for i := range stagedSteps - 1 {
		p.Spec.Steps = append(p.Spec.Steps, v1alpha1.RolloutStep{Nodes: intstr.FromString(fmt.Sprintf("%d%%", (i+1)*100/stagedSteps))})
	}
	return p
}

// newStagedFleet creates an object that is attached on all nodes.
func (b *bench) newStagedFleet(ctx context.Context) (*stagedFleet, error) {
	f := &stagedFleet{b: b, reports: make([]v1alpha1.ProgramObject, b.nodes), changed: make([]bool, b.nodes)}
	f.object = &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "staged"}}
	f.object.Spec.BpfFunctionName, f.object.Spec.Direction, f.object.Spec.Priority = "count_packets", "ingress", 50
	f.object.Spec.InterfaceSelector.Interfaces = &[]string{networkInterface}
	f.object.Spec.ByteCode.Path = new("/opt/bytecode/staged.o")
	f.object.Spec.NodeSelector.MatchLabels = poolLabel
	b.objects = []v1alpha1.UserObject{f.object}
	if err := create(ctx, b.control.client, b.objects); err != nil {
		return nil, err
	}
	var err error
	if f.reporter, err = newReporter(b.control, b.objects); err != nil {
		return nil, err
	}
	err = f.each(ctx, func(ctx context.Context, i int) error {
		f.reports[i] = reportsOf(f.reporter.owners[0], 0, nodeName(i))[0]
		return f.reporter.write(ctx, f.reports[i])
	})
	if err != nil {
		return nil, err
	}
	return f, b.await(ctx, attached(b.nodes))
}

// each calls do for each node, several concurrently.
func (f *stagedFleet) each(ctx context.Context, do func(context.Context, int) error) error {
	running, ctx := errgroup.WithContext(ctx)
	running.SetLimit(writers)
	for i := range f.reports {
		running.Go(func() error { return do(ctx, i) })
	}
	return running.Wait()
}

// await waits for a state of the rollout of the newest generation.
func (f *stagedFleet) await(ctx context.Context, right func(*v1alpha1.RolloutStatus) bool) (*v1alpha1.RolloutStatus, error) {
	var found *v1alpha1.RolloutStatus
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errors.New("not so in time"))
	defer cancel()
	_, err := f.b.statuses.await(ctx, f.b.objects, func(s *v1alpha1.BpfProgramStatusCommon) bool {
		if s.Rollout == nil || s.ObservedGeneration != f.object.Generation || !right(s.Rollout) {
			return false
		}
		found = s.Rollout
		return true
	})
	return found, err
}

// step reports the revision on the nodes of a step, and waits for the next one.
func (f *stagedFleet) step(ctx context.Context, number int32) (stagedStep, error) {
	var s stagedStep
	is, err := f.await(ctx, func(s *v1alpha1.RolloutStatus) bool {
		return s.State == v1alpha1.RolloutProgressing && s.Step == number
	})
	if err != nil {
		return s, err
	}
	start := time.Now()
	if number == interrupted {
		f.b.operator.stop(ctx)
	}
	var mu sync.Mutex
	err = f.each(ctx, func(ctx context.Context, i int) error {
		position := rollout.Position(f.object.UID, nodeName(i), nil, rollout.Canaries(is.Canaries))
		if f.changed[i] || !rollout.Changes(is, position) {
			return nil
		}
		f.changed[i] = true
		f.reports[i].GetStatus().OwnerGeneration = f.object.Generation
		mu.Lock()
		s.reports++
		mu.Unlock()
		return f.reporter.writeStatus(ctx, f.reports[i])
	})
	if err != nil {
		return s, err
	}
	s.reporting = time.Since(start)
	if number == interrupted {
		if err := f.b.startOperator(); err != nil {
			return s, err
		}
	}
	_, err = f.await(ctx, func(s *v1alpha1.RolloutStatus) bool { return s.State == v1alpha1.RolloutComplete || s.Step > number })
	s.took = time.Since(start)
	_, writes := f.b.statuses.writesPerObject(f.b.objects)
	s.writes = int(writes)
	f.b.statuses.countAgain()
	return s, err
}
