// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
	"github.com/bpfman/bpfman-operator/tests/restarts"
)

// recovery is the maximum time until a killed component is back. The kubelet increases the
// delay for each restart.
const recovery = 5 * time.Minute

// TestKills kills each component several times, while objects are created, changed, and
// deleted. The result must be the same as without kills.
func TestKills(t *testing.T) {
	requireType(t, "TCX")
	requireType(t, "Tracepoint")
	rounds := 3
	if testing.Short() {
		rounds = 1 // test-chaos kills them, too
	}
	for _, victim := range []string{node.Agent, node.CSI, node.Inspector, node.Operator, node.Daemon} {
		t.Run(victim, func(t *testing.T) {
			space := "e2e-kill-" + victim
			var before state
			feature(t,
				step{"nothing is there", func(ctx context.Context, s *testing.T) {
					namespace(ctx, t, space)
					before = stateOf(ctx, s)
				}},
				step{"killed at work", func(ctx context.Context, s *testing.T) {
					for round := range rounds {
						work(ctx, s, victim, fmt.Sprintf("e2e-kill-%d", round), space)
					}
				}},
				step{"nothing is left", func(ctx context.Context, s *testing.T) {
					awaitFor(ctx, s, recovery, "the nodes as before", func(ctx context.Context) (bool, string) {
						now, err := look(ctx)
						return err == nil && now.equal(before), fmt.Sprintf("%v\nbefore %v, %v", now, before, err)
					})
				}},
			)
		})
	}
}

// work creates, changes, and removes objects, and kills a component at a random
// operation.
func work(ctx context.Context, t *testing.T, victim, name, space string) {
	t.Helper()
	stays, changes, goes := tcx(name+"-stays", "lo"), tracepoint(name+"-changes"), tcx(name+"-goes", "lo")
	pod, early := reader(space, name, changes.Name, "*"), reader(space, name+"-early", changes.Name, "*")
	operations := []func(){
		func() { create(ctx, t, early) },
		func() { create(ctx, t, goes) },
		func() { create(ctx, t, changes) },
		func() { create(ctx, t, pod) },
		func() { create(ctx, t, stays) },
		func() {
			modify(ctx, t, changes, func(o *v1alpha1.TracepointProgram) { o.Spec.Names = append(o.Spec.Names, "syscalls/sys_exit_kill") })
		},
		func() {
			must.Succeed(t, under.Delete(ctx, goes))
		},
		func() {
			must.Succeed(t, under.Delete(ctx, early, client.GracePeriodSeconds(0)))
		},
	}
	chosen := rand.IntN(len(operations))
	t.Logf("%s is killed at operation %d of %d", victim, chosen+1, len(operations))
	killed := make(chan struct{})
	for i, operation := range operations {
		if i == chosen {
			go func() {
				defer close(killed)
				killAll(ctx, t, victim)
			}()
		}
		operation()
	}
	<-killed
	awaitRunning(ctx, t)
	for _, o := range []v1alpha1.UserObject{stays, changes} {
		awaitSuccess(ctx, t, o)
		exactly(ctx, t, o, 1)
	}
	awaitReady(ctx, t, pod)
	awaitGrowth(ctx, t, pod, "tracepoint_stats_map", callKill)
	// Deleted objects are removed again when t ends, which checks that nothing of them is
	// left.
	for _, o := range []client.Object{pod, stays, changes} {
		if err := remove(ctx, o); err != nil {
			t.Error(err)
		}
	}
}

// killAll kills the component on all nodes.
func killAll(ctx context.Context, t *testing.T, victim string) {
	t.Helper()
	killed := 0
	defer func() {
		if killed == 0 {
			t.Errorf("%s runs nowhere", victim)
		}
	}()
	for _, n := range under.nodes() {
		pids, err := ask[[]int](ctx, n, "processes", victim)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(pids) == 0 {
			continue // the operator runs on one node
		}
		if err := killOn(ctx, n, victim); err != nil {
			t.Error(err)
			continue
		}
		killed++
	}
}

// killOn kills a program on a node.
func killOn(ctx context.Context, node, victim string) error {
	under.restarts.Expect(victim, 1)
	_, err := ask[any](ctx, node, "kill", victim)
	return err
}

// keepDown kills a program on a node whenever it starts, for a time in milliseconds.
func keepDown(ctx context.Context, node, victim, away string) error {
	under.restarts.Expect(victim, restarts.Unlimited)
	_, err := ask[any](ctx, node, "keep-down", victim, away)
	return err
}

// awaitRunning waits until all pods of bpfman are ready.
func awaitRunning(ctx context.Context, t *testing.T) {
	t.Helper()
	awaitFor(ctx, t, recovery, "the components run", func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		if err := under.List(ctx, &pods, client.InNamespace(bpfmanSpace)); err != nil {
			return false, err.Error()
		}
		ok := true
		var states []string
		for i := range pods.Items {
			// The kubelet might not have noticed yet that a container was killed.
			ok = ok && probe.Ready(&pods.Items[i])
			states = append(states, podState(&pods.Items[i]))
		}
		running := map[string]int{} // the number of nodes, by component
		for _, n := range under.nodes() {
			for _, component := range []string{node.Daemon, node.Agent, node.CSI, node.Inspector, node.Operator} {
				pids, err := ask[[]int](ctx, n, "processes", component)
				ok = ok && err == nil
				running[component] += min(1, len(pids))
			}
		}
		for component, nodes := range running {
			ok = ok && (nodes == len(under.nodes()) || component == node.Operator && nodes > 0)
		}
		return ok, fmt.Sprint(states, running)
	})
}

// TestDaemonDown applies an object while the daemon is down. The status says so, and the
// program is attached when the daemon is back.
func TestDaemonDown(t *testing.T) {
	requireType(t, "TCX")
	o := tcx("e2e-daemon-down", "lo")
	feature(t, step{"says so, and recovers", func(ctx context.Context, s *testing.T) {
		const away = "6s"
		done := make(chan error, len(under.nodes()))
		for _, n := range under.nodes() {
			go func() {
				err := keepDown(ctx, n, node.Daemon, away)
				done <- err
			}()
		}
		await(ctx, s, "the daemon is away", func(ctx context.Context) (bool, string) {
			pids, err := ask[[]int](ctx, under.nodes()[0], "processes", node.Daemon)
			return err == nil && len(pids) == 0, fmt.Sprint(pids, err)
		})
		create(ctx, t, o)
		awaitEvent(ctx, s, o, corev1.EventTypeWarning, "daemon can't be reached", under.nodes()[0])
		for range under.nodes() {
			if err := <-done; err != nil {
				s.Error(err)
			}
		}
		awaitRunning(ctx, s)
		awaitSuccess(ctx, s, o)
		exactly(ctx, s, o, 1)
	}})
}

// TestDaemonHangs freezes the daemon on one node. The kubelet restarts it, and nothing is loaded again.
func TestDaemonHangs(t *testing.T) {
	requireType(t, "TCX")
	if testing.Short() {
		t.Skip("the kubelet waits longer than the longest load takes")
	}
	stays, later := tcx("e2e-daemon-hangs", "lo"), tcx("e2e-daemon-hangs-later", "lo")
	const restarted = 8 * time.Minute
	feature(t, step{"is restarted", func(ctx context.Context, s *testing.T) {
		create(ctx, t, stays)
		awaitSuccess(ctx, s, stays)
		before := exactly(ctx, s, stays, 1)
		n := under.nodes()[0]
		hung, err := ask[[]int](ctx, n, "processes", node.Daemon)
		must.Succeed(s, err)
		under.restarts.Expect(node.Daemon, 1)
		_, err = ask[any](ctx, n, "stop", node.Daemon)
		must.Succeed(s, err)
		create(ctx, t, later)
		awaitFor(ctx, s, restarted, "the kubelet restarts the daemon", func(ctx context.Context) (bool, string) {
			pids, err := ask[[]int](ctx, n, "processes", node.Daemon)
			return err == nil && len(pids) == 1 && !slices.Equal(pids, hung), fmt.Sprint(pids, err)
		})
		awaitRunning(ctx, s)
		awaitSuccess(ctx, s, later)
		exactly(ctx, s, later, 1)
		if after := exactly(ctx, s, stays, 1); !slices.Equal(ids(after), ids(before)) {
			s.Errorf("programs %v were loaded again: %v", ids(before), ids(after))
		}
	}})
}

// TestUnloadedByAnother unloads a program without the agent, which then loads it again.
func TestUnloadedByAnother(t *testing.T) {
	t.Parallel()
	requireType(t, "TCX")
	o := tcx("e2e-unloaded", "lo")
	feature(t, step{"comes back", func(ctx context.Context, s *testing.T) {
		create(ctx, t, o)
		awaitSuccess(ctx, s, o)
		before := exactly(ctx, s, o, 1)[0]
		if _, err := ask[any](ctx, under.nodes()[0], "unload", fmt.Sprint(before.ID)); err != nil {
			s.Fatal(err)
		}
		// The agent compares with the daemon's list once a minute.
		awaitFor(ctx, s, 2*time.Minute, "it is reloaded", func(ctx context.Context) (bool, string) {
			now, err := loadedFor(ctx, o.GetUID())
			return err == nil && len(now) == len(under.nodes()) && !slices.Equal(ids(now), []uint32{before.ID}), fmt.Sprint(now, err)
		})
		exactly(ctx, s, o, 1)
	}})
}

// state is what must not change permanently: the nodes' mounts, and the daemons'
// programs.
type state struct{ mounts, programs sets.Set[string] }

func (s state) equal(o state) bool { return s.mounts.Equal(o.mounts) && s.programs.Equal(o.programs) }

func (s state) String() string {
	return fmt.Sprintf("mounts %q, programs %q", sets.List(s.mounts), sets.List(s.programs))
}

// stateOf waits until no node has a volume of a deleted pod. A pod that is deleted with
// force leaves the API before the kubelet has unmounted its volumes.
func stateOf(ctx context.Context, t *testing.T) state {
	t.Helper()
	var s state
	await(ctx, t, "no volumes but those of pods", func(ctx context.Context) (bool, string) {
		var err error
		if s, err = look(ctx); err != nil {
			return false, err.Error()
		}
		var pods corev1.PodList
		if err := under.List(ctx, &pods); err != nil {
			return false, err.Error()
		}
		uids := sets.New[string]()
		for _, pod := range pods.Items {
			uids.Insert(string(pod.UID))
		}
		for mount := range s.mounts {
			if _, path, ok := strings.Cut(mount, "/pods/"); ok && !uids.Has(strings.Split(path, "/")[0]) {
				return false, s.String()
			}
		}
		return true, ""
	})
	return s
}

func look(ctx context.Context) (state, error) {
	s := state{sets.New[string](), sets.New[string]()}
	for _, n := range under.nodes() {
		mounts, err := ask[[]string](ctx, n, "mounts")
		if err != nil {
			return s, err
		}
		for i, m := range mounts {
			// A repeated mount is an error.
			s.mounts.Insert(fmt.Sprintf("%s: %s (%d)", n, m, i-slices.Index(mounts, m)))
		}
		programs, err := ask[[]node.Program](ctx, n, "programs")
		if err != nil {
			return s, err
		}
		for _, p := range programs {
			s.programs.Insert(fmt.Sprintf("%s: %d %s", n, p.ID, p.Function))
		}
	}
	return s, nil
}
