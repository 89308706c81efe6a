// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	readers "github.com/bpfman/bpfman-operator/tests/reader"
)

// TestRunningPodFollowsItsProgram reloads a program while two pods are running. One sees
// the new map at the same path. The other is configured to keep its maps.
func TestRunningPodFollowsItsProgram(t *testing.T) {
	requireType(t, "Tracepoint")
	const space, mapName = "e2e-reload", "tracepoint_stats_map"
	program := tracepoint("e2e-reload")
	following, staying := reader(space, "following", program.Name, mapName), reader(space, "staying", program.Name, mapName)
	staying.Spec.Volumes[0].CSI.VolumeAttributes[v1alpha1.VolumeAttributeFollow] = "false"
	feature(t,
		step{"both count", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			create(ctx, t, program)
			awaitSuccess(ctx, s, program)
			for _, pod := range []*corev1.Pod{following, staying} {
				create(ctx, t, pod)
				awaitReady(ctx, s, pod)
				awaitGrowth(ctx, s, pod, mapName, callKill)
			}
		}},
		step{"one follows, and never misses a file", func(ctx context.Context, s *testing.T) {
			before := exactly(ctx, s, program, 1)[0]
			modify(ctx, s, program, func(p *v1alpha1.TracepointProgram) { p.Spec.ByteCode = image("go-app-counter") })
			awaitSuccess(ctx, s, program)
			if now := exactly(ctx, s, program, 1)[0]; now.ID == before.ID {
				s.Fatalf("program %d was not loaded anew", now.ID)
			}
			awaitGrowth(ctx, s, following, mapName, callKill)
			for _, pod := range []*corev1.Pod{following, staying} {
				checkUndisturbed(ctx, s, pod)
			}
			log, err := logOf(ctx, staying)
			if err != nil {
				s.Fatal(err)
			}
			kept := readers.Counts(log)[mapName]
			callKill(ctx, s)
			awaitGrowth(ctx, s, following, mapName, callKill)
			if log, err = logOf(ctx, staying); err != nil || readers.Counts(log)[mapName] != kept {
				s.Errorf("the pod that stays counts %d after %d: %v", readers.Counts(log)[mapName], kept, err)
			}
		}},
		step{"without the program they keep their maps", func(ctx context.Context, s *testing.T) {
			must.Succeed(s, remove(ctx, program))
			for _, pod := range []*corev1.Pod{following, staying} {
				checkUndisturbed(ctx, s, pod)
				files, err := ask[[]node.File](ctx, pod.Spec.NodeName, "files", string(pod.UID), "/run/maps")
				if err != nil || !slices.ContainsFunc(files, func(f node.File) bool { return f.Name == mapName }) {
					s.Errorf("pod %s has %v, %v", pod.Name, files, err)
				}
			}
		}},
	)
}

// checkUndisturbed checks that the pod's container never failed, and that no Event reports
// a failed mount, unless the plugin was down at that time.
func checkUndisturbed(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	awaitReady(ctx, t, pod)
	if restarts := pod.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("pod %s was restarted %d times", pod.Name, restarts)
	}
	events, err := eventsAbout(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	for _, e := range events {
		if e.Reason == "FailedMount" && started.Before(&e.LastTimestamp) && !pluginAway(e) {
			t.Errorf("pod %s is told: %s", pod.Name, e.Message)
		}
	}
}

// pluginAway reports whether an Event only says that there is no plugin at the moment. The
// kubelet calls the plugin for each volume regularly, even while it is being replaced.
func pluginAway(e corev1.Event) bool {
	return e.Reason == "FailedMount" && slices.ContainsFunc([]string{
		"driver name " + v1alpha1.CSIDriverName + " not found in the list of registered CSI drivers",
		"(no CSIDriver object)",
		"connection error: desc = \"transport: ",
	}, func(words string) bool { return strings.Contains(e.Message, words) })
}

// TestSeveralVolumesInAPod mounts all maps of an application, and one map of a program.
func TestSeveralVolumesInAPod(t *testing.T) {
	requireType(t, "Tracepoint")
	requireType(t, "TCX")
	const space = "e2e-volumes"
	program := tracepoint("e2e-volumes")
	app := application("e2e-volumes-app")
	pod := reader(space, "reader", program.Name, "tracepoint_stats_map")
	second := pod.Spec.Volumes[0].DeepCopy()
	second.Name = "all"
	second.CSI.VolumeAttributes = map[string]string{v1alpha1.VolumeAttributeProgram: app.Name, v1alpha1.VolumeAttributeMaps: "*"}
	third := second.DeepCopy()
	third.Name = "member"
	third.CSI.VolumeAttributes[v1alpha1.VolumeAttributeMaps] = "tcx_stats_map, tracepoint_stats_map"
	pod.Spec.Volumes = append(pod.Spec.Volumes, *second, *third)
	for _, v := range []string{"all", "member"} {
		mount := corev1.VolumeMount{Name: v, MountPath: "/run/" + v, ReadOnly: true}
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
	}
	feature(t, step{"each has its maps", func(ctx context.Context, s *testing.T) {
		namespace(ctx, t, space)
		create(ctx, t, program)
		create(ctx, t, app)
		create(ctx, t, pod)
		awaitReady(ctx, s, pod)
		for path, want := range map[string][]string{
			"/run/maps":   {"tracepoint_stats_map"},
			"/run/member": {"tcx_stats_map", "tracepoint_stats_map"},
			"/run/all":    {"kprobe_stats_map", "tcx_stats_map", "tracepoint_stats_map"},
		} {
			files, err := ask[[]node.File](ctx, pod.Spec.NodeName, "files", string(pod.UID), path)
			if err != nil {
				s.Fatal(err)
			}
			var names []string
			for _, f := range files {
				names = append(names, f.Name)
			}
			for _, name := range want {
				if !slices.Contains(names, name) {
					s.Errorf("%s has %q, not %s", path, names, name)
				}
			}
			// Kernels before 6.15 can also have maps.debug and progs.debug.
			names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".debug") })
			if path != "/run/all" && len(names) > len(want) {
				s.Errorf("%s has %q", path, names)
			}
		}
	}})
}

// timesRestarted is how often each container of the node components is restarted.
const timesRestarted = 50

// TestRestartsLeaveTheMountTable repeatedly kills each container of the node components.
// The node's mount table must stay the same, line by line (bpfman-operator#468).
func TestRestartsLeaveTheMountTable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	const space = "e2e-restarts"
	program := tracepoint("e2e-restarts")
	pod := reader(space, "reader", program.Name, "*")
	feature(t, step{"restarted", func(ctx context.Context, s *testing.T) {
		requireType(t, "Tracepoint")
		namespace(ctx, t, space)
		create(ctx, t, program)
		create(ctx, t, pod)
		awaitReady(ctx, s, pod)
		awaitRunning(ctx, s)
		restart(ctx, s, node.CSI, node.Agent, node.Daemon)
		awaitGrowth(ctx, s, pod, "tracepoint_stats_map", callKill)
	}})
}

// TestNewPodsLeaveTheMountTable repeatedly recreates the pods of the node components,
// which also runs their init container, which mounts.
func TestNewPodsLeaveTheMountTable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	requireType(t, "Tracepoint")
	const space = "e2e-new-pods"
	program := tracepoint("e2e-new-pods")
	pod := reader(space, "reader", program.Name, "*")
	feature(t, step{"made anew", func(ctx context.Context, s *testing.T) {
		namespace(ctx, t, space)
		create(ctx, t, program)
		create(ctx, t, pod)
		awaitReady(ctx, s, pod)
		awaitRunning(ctx, s)
		before, start := tables(ctx, s), time.Now()
		for range timesRestarted {
			renew(ctx, s)
		}
		s.Logf("%d times new pods in %v", timesRestarted, time.Since(start).Round(time.Second))
		checkTables(ctx, s, before)
		awaitGrowth(ctx, s, pod, "tracepoint_stats_map", callKill)
	}})
}

// renew deletes the node pods, and waits until others run in their place.
func renew(ctx context.Context, t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	must.Succeed(t, under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels{"name": "bpfman-daemon"}))
	old := map[types.UID]bool{}
	for i := range pods.Items {
		old[pods.Items[i].UID] = true
		must.Succeed(t, under.Delete(ctx, &pods.Items[i]))
	}
	awaitPods(ctx, t, func(pod *corev1.Pod) bool { return !old[pod.UID] })
}

// restart repeatedly kills components, and waits until the mount tables are as before.
func restart(ctx context.Context, t *testing.T, victims ...string) {
	t.Helper()
	before := tables(ctx, t)
	for _, victim := range victims {
		start := time.Now()
		for range timesRestarted {
			killAndAwait(ctx, t, victim)
		}
		t.Logf("%d restarts of %s in %v", timesRestarted, victim, time.Since(start).Round(time.Second))
	}
	checkTables(ctx, t, before)
}

// checkTables waits until the mount tables are as before.
func checkTables(ctx context.Context, t *testing.T, before []string) {
	t.Helper()
	awaitRunning(ctx, t)
	await(ctx, t, "the mount tables as before", func(ctx context.Context) (bool, string) {
		now, err := lookAtTables(ctx)
		return err == nil && slices.Equal(before, now), fmt.Sprintf("before %q\nnow %q, %v", before, now, err)
	})
}

// killAndAwait kills a component on all nodes, and waits until another process runs it.
func killAndAwait(ctx context.Context, t *testing.T, victim string) {
	t.Helper()
	for _, n := range under.nodes() {
		before, err := ask[[]int](ctx, n, "processes", victim)
		if err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, killOn(ctx, n, victim))
		awaitFor(ctx, t, recovery, victim+" runs again", func(ctx context.Context) (bool, string) {
			now, err := ask[[]int](ctx, n, "processes", victim)
			return err == nil && len(now) > 0 && !slices.Equal(now, before), fmt.Sprint(now, err)
		})
	}
}

// tables returns the lines of all nodes' mount tables that don't belong to containers.
func tables(ctx context.Context, t *testing.T) []string {
	t.Helper()
	all, err := lookAtTables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func lookAtTables(ctx context.Context) ([]string, error) {
	var all []string
	for _, n := range under.nodes() {
		lines, err := ask[[]string](ctx, n, "mount-table")
		if err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	return all, nil
}
