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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// handedOver is the longest time that packets pass without the program when the daemon is changed. The program is detached, and
// then its successor attached, which the daemon in Go does in milliseconds, but in longer on a machine that is busy.
const handedOver = time.Second

// TestDaemonIsChanged changes the daemon of the nodes to another one and back, while packets are sent. Programs stay attached
// until their successors are, none runs twice, volumes follow, and nothing of the former daemon is left.
func TestDaemonIsChanged(t *testing.T) {
	if settings.otherDaemon == "" {
		prerequisite.Missing(t, "BPFMAN_OTHER_IMG doesn't name the image of another daemon", prerequisite.OtherDaemon)
	}
	requireType(t, "TCX")
	requireType(t, "Tracepoint")
	const space, iface, mapName = "e2e-daemon", "e2edaemon", "tcx_stats_map"
	counted := tcxCounter(metav1.ObjectMeta{Name: space + "-tcx"}, on(iface))
	called := tracepoint(space + "-tracepoint")
	objects := []v1alpha1.UserObject{counted, called}
	pod := reader(space, "tcx", counted.Name, mapName)
	first := ""
	change := func(to func() string) func(context.Context, *testing.T) {
		return func(ctx context.Context, s *testing.T) {
			var before []node.Program
			for _, o := range objects {
				before = append(before, exactly(ctx, s, o, 1)...)
			}
			was := daemons(ctx, s)
			stops := map[string]func() node.Handover{}
			for _, n := range under.nodes() {
				stops[n] = inBackground[node.Handover](ctx, s, n, []string{"handover", iface, "2ms", mapName}, "end-stream", iface)
			}
			edit(ctx, s, map[string]string{imageKeys["daemon"]: to()})
			for _, o := range objects {
				awaitFor(ctx, s, recovery, o.GetName()+" is loaded by the other daemon", func(ctx context.Context) (bool, string) {
					now, err := loadedFor(ctx, o.GetUID())
					fresh := err == nil && len(now) == len(under.nodes()) && !slices.ContainsFunc(now, func(p node.Program) bool { return slices.Contains(ids(before), p.ID) })
					return fresh, fmt.Sprint(now, err)
				})
				awaitAttached(ctx, s, o)
				exactly(ctx, s, o, 1)
			}
			awaitGrowth(ctx, s, pod, "", nil)
			for name, h := range answers(stops) {
				s.Logf("%s: of %d packets, no program counted %d, in at most %v, and several counted %d; programs %v", name, h.Sent, h.Missed, h.Gap, h.Twice, h.Programs)
				if h.Sent == 0 || h.Twice > 0 || h.Gap > handedOver || len(h.Programs) != 2 {
					s.Errorf("on node %s, want two programs, no packet counted twice, and a gap of at most %v", name, handedOver)
				}
			}
			for _, n := range under.nodes() {
				awaitFor(ctx, s, recovery, "nothing of the former daemon is left on "+n, func(ctx context.Context) (bool, string) {
					left, err := ask[[]string](ctx, n, "leftovers", idsOf(before), "")
					files, fileErr := ask[[]string](ctx, n, "list", node.Daemon, "/run/bpfman/db")
					both := slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "conf") }) &&
						slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "store.db") })
					return err == nil && fileErr == nil && len(left) == 0 && !both, fmt.Sprint(left, files, err, fileErr)
				})
			}
			awaitFor(ctx, s, recovery, "the BpfNodes name the other daemon", func(ctx context.Context) (bool, string) {
				now := daemons(ctx, s)
				return len(now) == 1 && !slices.Equal(now, was), fmt.Sprint(now)
			})
			checkUndisturbed(ctx, s, pod)
		}
	}
	feature(t,
		step{"programs count, and a pod reads", func(ctx context.Context, s *testing.T) {
			restoreConfig(ctx, t)
			first = get(ctx, s, configMap()).Data[imageKeys["daemon"]]
			addInterface(ctx, t, iface)
			namespace(ctx, t, space)
			createAll(ctx, t, counted, called)
			for _, o := range objects {
				awaitAttached(ctx, s, o)
			}
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
		}},
		step{"another daemon", change(func() string { return settings.otherDaemon })},
		step{"and back", change(func() string { return first })},
	)
}

// daemons returns the names of the nodes' daemons, each once.
func daemons(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var names []string
	for _, n := range under.nodes() {
		object := &v1alpha1.BpfNode{}
		if err := under.Get(ctx, client.ObjectKey{Name: n}, object); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(names, object.Status.Daemon) {
			names = append(names, object.Status.Daemon)
		}
	}
	slices.Sort(names)
	return names
}
