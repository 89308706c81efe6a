// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const (
	kubeletRoot = "/var/lib/kubelet"
	// installTime bounds a command of docs/install.md.
	installTime = 5 * time.Minute
	// unmountRetry is the maximum delay before the kubelet retries to unmount a volume
	// whose plugin was down.
	unmountRetry = 150 * time.Second
)

// documented is what stays on a node until it is cleaned, according to docs/install.md.
var documented = []string{
	"/run/bpfman/cri", "/run/bpfman/csi", "/run/bpfman/db", "/run/bpfman/fs", "/run/bpfman/tuf", kubeletRoot + "/plugins/csi-bpfman", "mount of bpf /run/bpfman/fs",
}

// order is an order of uninstalling bpfman.
type order struct {
	name string
	// begin does what the order is named for, and continues until the user's objects are
	// deleted.
	begin func(context.Context, *testing.T, *workload)
	// stay means that programs are left in the kernel, and pods with volumes.
	stay bool
	// interrupted means that nothing more is removed before bpfman is installed again. It
	// then finds existing objects.
	interrupted bool
	// cleaned means that programs are left again at the end, and the nodes are cleaned.
	cleaned bool
}

// TestLifecycle installs bpfman in each way in docs/install.md, uninstalls it in each
// order, and installs it again. What is left must be what that page documents.
func TestLifecycle(t *testing.T) {
	if !settings.uninstall {
		t.Skip("bpfman isn't to be uninstalled from this cluster, see `make test-lifecycle`")
	}
	requireType(t, "TCX")
	requireType(t, "Tracepoint")
	for _, c := range []struct {
		method string
		order  order
		// use are the tests to run after installing, in addition to checking that
		// everything is attached.
		use []use
		// slow means that -short leaves it out.
		slow bool
	}{
		{"kustomize", order{name: "CRDs_first", begin: definitionsFirst}, nil, false},
		{"release", order{name: "operator_first", begin: operatorFirst}, telling, true},
		{"helm", order{name: "programs_first", begin: programsFirst}, telling, false},
		{"helm", order{name: "namespace_first", begin: namespaceFirst, stay: true, interrupted: true}, nil, true},
		{"kustomize", order{name: "all_at_once", begin: allAtOnce, stay: true, cleaned: true}, nil, false},
	} {
		if c.slow && testing.Short() {
			continue
		}
		// After a failure, what is left would affect the next row.
		if !t.Run(c.method+"_"+c.order.name, func(t *testing.T) { c.order.run(t, c.method, c.use) }) {
			break
		}
	}
}

// use is another e2e test.
type use struct {
	name string
	test func(*testing.T)
}

// telling are the tests that depend most on what is installed: permissions, policies, the
// ConfigMap, and the CSIDriver. `make test-e2e` runs all tests on any installation.
var telling = []use{
	{"TestEveryKind", TestEveryKind},
	{"TestNamespacedIsReloaded", TestNamespacedIsReloaded},
	{"TestClusterAccessByRBAC", TestClusterAccessByRBAC},
	{"TestModesOfMaps", TestModesOfMaps},
	{"TestRunningPodFollowsItsProgram", TestRunningPodFollowsItsProgram},
}

func (o order) run(t *testing.T, method string, uses []use) {
	before, again := newWorkload(), newWorkload()
	steps := []step{
		{"installed", func(ctx context.Context, s *testing.T) {
			run(ctx, s, "deploy-"+method)
			if found, err := traces(ctx); err != nil || len(found) == 0 {
				s.Fatalf("the search for traces finds %q, %v", found, err)
			}
			for _, u := range uses {
				s.Run(u.name, u.test)
			}
			before.start(ctx, s)
		}},
		{"uninstalled", func(ctx context.Context, s *testing.T) {
			o.begin(ctx, s, before)
			if !o.interrupted {
				said := run(ctx, s, "undeploy-"+method)
				if pod := before.space.Name + "/" + before.pod.Name; strings.Contains(said, pod) != o.stay {
					s.Errorf("whether pod %s stays is %v, and was said otherwise:\n%s", pod, o.stay, said)
				}
				checkUninstalled(ctx, s, o.stay)
			}
			if o.stay {
				before.checkStays(ctx, s)
			}
		}},
		{"installed again", func(ctx context.Context, s *testing.T) {
			if o.stay {
				// No plugin is running that could unmount the pod's volume.
				before.leave(ctx, s)
			}
			run(ctx, s, "deploy-"+method)
			awaitGone(ctx, s, before.space)
			if o.interrupted {
				before.checkAdopted(ctx, s)
				before.remove(ctx, s)
			}
			awaitNothingLeft(ctx, s, before.loaded)
			again.start(ctx, s)
		}},
		{"removed", func(ctx context.Context, s *testing.T) {
			if o.cleaned {
				again.leave(ctx, s)
				awaitGone(ctx, s, again.space)
			} else {
				programsFirst(ctx, s, again)
			}
			run(ctx, s, "undeploy-"+method)
			checkUninstalled(ctx, s, o.cleaned)
			if o.cleaned {
				cleanNodes(ctx, s)
				awaitNothingLeft(ctx, s, again.loaded)
			}
		}},
	}
	// If nothing stays, the next row installs bpfman again anyway.
	if testing.Short() && !o.stay {
		steps = steps[:2]
	}
	feature(t, steps...)
}

// programsFirst is the first order in docs/install.md.
func programsFirst(ctx context.Context, t *testing.T, w *workload) {
	t.Helper()
	w.remove(ctx, t)
	awaitNothingLeft(ctx, t, w.loaded)
}

// operatorFirst leaves agents without the operator.
func operatorFirst(ctx context.Context, t *testing.T, w *workload) {
	t.Helper()
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "bpfman-operator", Namespace: bpfmanSpace}}
	must.Succeed(t, remove(ctx, operator))
	awaitEnd(ctx, t, node.Operator)
	programsFirst(ctx, t, w)
}

// definitionsFirst deletes the kinds while components are running, twice. In between, the
// kinds are installed again. Pods keep their volumes.
func definitionsFirst(ctx context.Context, t *testing.T, w *workload) {
	t.Helper()
	run(ctx, t, "uninstall")
	awaitNothingLeft(ctx, t, withoutMaps(w.loaded))
	checkUndisturbed(ctx, t, w.pod)
	w.leave(ctx, t)
	awaitGone(ctx, t, w.space)
	awaitNothingLeft(ctx, t, w.loaded)

	run(ctx, t, "install")
	another := newWorkload()
	another.start(ctx, t)
	run(ctx, t, "uninstall")
	another.leave(ctx, t)
	awaitGone(ctx, t, another.space)
	awaitNothingLeft(ctx, t, another.loaded)
}

// namespaceFirst deletes all of bpfman's pods. If an owner is deleted while no agent runs,
// its reports are deleted, but its programs aren't.
func namespaceFirst(ctx context.Context, t *testing.T, w *workload) {
	t.Helper()
	must.Succeed(t, remove(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: bpfmanSpace}}))
	checkNodes(ctx, t, true)
	await(ctx, t, "the CSIDriver has gone with the namespace", func(ctx context.Context) (bool, string) {
		found, err := traces(ctx)
		left := slices.DeleteFunc(found, func(trace string) bool { return !strings.HasPrefix(trace, "csi") && !strings.HasPrefix(trace, "nodes") })
		return err == nil && len(left) == 0, fmt.Sprintf("%q, %v", left, err)
	})
	must.Succeed(t, remove(ctx, w.application))
	await(ctx, t, "the reports about "+w.application.Name+" are gone", func(ctx context.Context) (bool, string) {
		programs, err := programsOf(ctx, w.application)
		return err == nil && len(programs) == 0, fmt.Sprint(programs, err)
	})
}

// allAtOnce removes bpfman with all objects of users.
func allAtOnce(context.Context, *testing.T, *workload) {}

// removeExamples removes the application of `make run` from a cluster where bpfman is
// uninstalled, as `make run` says to do. Its pod names bpfman, and would keep its volume.
func removeExamples(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	if !settings.uninstall {
		return ctx, nil
	}
	for _, name := range []string{"go-tcx-counter", "go-xdp-counter"} {
		if err := remove(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

// cleanNodes cleans nodes without a reboot, as in docs/install.md.
func cleanNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range under.nodes() {
		if _, err := ask[any](ctx, name, "clean", kubeletRoot); err != nil {
			t.Fatal(err)
		}
		if found, err := ask[[]string](ctx, name, "remains", kubeletRoot); err != nil || len(found) > 0 {
			t.Errorf("node %s has %q, %v", name, found, err)
		}
	}
}

// run runs a target of the Makefile, which contains the commands of docs/install.md, and
// returns its output.
func run(ctx context.Context, t *testing.T, target string) string {
	t.Helper()
	start := time.Now()
	output, err := tryRun(ctx, target)
	if err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, output)
	}
	t.Logf("make %s took %v", target, time.Since(start).Round(time.Second/10))
	return output
}

// tryRun is run for a target that can fail.
func tryRun(ctx context.Context, target string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	output, err := exec.CommandContext(ctx, "make", "--no-print-directory", "-C", "../..", target).CombinedOutput()
	return string(output), err
}

// checkUninstalled checks that nothing of bpfman is left in the cluster, and that only what
// is documented is left on the nodes.
func checkUninstalled(ctx context.Context, t *testing.T, programsStay bool) {
	t.Helper()
	await(ctx, t, "nothing in the cluster names bpfman or waits for its end", func(ctx context.Context) (bool, string) {
		found, err := traces(ctx)
		return err == nil && len(found) == 0, fmt.Sprintf("%q, %v", found, err)
	})
	checkNodes(ctx, t, programsStay)
}

// checkNodes checks that no component is running, that the kubelets' directories contain no
// socket, and that there are no pins or volumes, unless programs stay.
func checkNodes(ctx context.Context, t *testing.T, programsStay bool) {
	t.Helper()
	for _, name := range under.nodes() {
		await(ctx, t, "on "+name+" is what is documented", func(ctx context.Context) (bool, string) {
			found, err := ask[[]string](ctx, name, "remains", kubeletRoot)
			pins := 0
			more := slices.DeleteFunc(slices.Clone(found), func(what string) bool {
				pin, volume := strings.HasPrefix(what, "/run/bpfman/fs/"), strings.HasPrefix(what, "mount of bpf "+kubeletRoot)
				if pin {
					pins++
				}
				return programsStay && (pin || volume)
			})
			return err == nil && slices.Equal(more, documented) && (pins > 0) == programsStay, fmt.Sprintf("%q, %v", found, err)
		})
	}
}

// awaitEnd waits until a component isn't running on any node.
func awaitEnd(ctx context.Context, t *testing.T, executable string) {
	t.Helper()
	for _, name := range under.nodes() {
		await(ctx, t, executable+" doesn't run on "+name, func(ctx context.Context) (bool, string) {
			pids, err := ask[[]int](ctx, name, "processes", executable)
			return err == nil && len(pids) == 0, fmt.Sprint(pids, err)
		})
	}
}
