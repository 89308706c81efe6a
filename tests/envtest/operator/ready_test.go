// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

var (
	isAttached = v1alpha1.Ready.Conditions(v1alpha1.BpfProgCondLoaded.Condition())
	isWaiting  = v1alpha1.Reconciling.Conditions(v1alpha1.BpfProgCondBytecodeSelectorError.Condition("registry quay.io doesn't answer in time"))
	isStalled  = v1alpha1.Stalled.Conditions(v1alpha1.BpfProgCondNotLoaded.Condition("it has no function enter"))
)

// stored reads an object as the API server serves it.
func stored(ctx context.Context, c client.Client, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TracepointProgram"))
	return o, c.Get(ctx, client.ObjectKey{Name: name}, o)
}

// computes waits until kstatus computes a status from the object with the message.
func computes(t *testing.T, c client.Client, name string, want kstatus.Status, message string) {
	t.Helper()
	envtest.Eventually(t, "kstatus of "+name, func(ctx context.Context) error {
		o, err := stored(ctx, c, name)
		if err != nil {
			return err
		}
		got, err := kstatus.Compute(o)
		if err == nil && (got.Status != want || !strings.Contains(got.Message, message)) {
			err = fmt.Errorf("%s: %s, want %s: %s", got.Status, got.Message, want, message)
		}
		return err
	})
}

func TestKstatus(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "kstatus-a", map[string]string{"pool": "kstatus"})
	addNode(t, c, "kstatus-b", map[string]string{"pool": "kstatus"})
	o := tracepoint("kstatus", "kstatus")
	create(t, c, o)
	created, err := stored(t.Context(), c, o.Name)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kstatus.Compute(created); err != nil || got.Status != kstatus.InProgressStatus {
		t.Errorf("just created: %+v, %v", got, err)
	}
	computes(t, c, o.Name, kstatus.InProgressStatus, "waiting for kstatus-a, kstatus-b")

	report(t, c, o, "kstatus-a", isWaiting...)
	report(t, c, o, "kstatus-b", isAttached...)
	computes(t, c, o.Name, kstatus.InProgressStatus, "kstatus-a: registry quay.io doesn't answer in time")
	report(t, c, o, "kstatus-a", isStalled...)
	computes(t, c, o.Name, kstatus.FailedStatus, "kstatus-a: it has no function enter")
	report(t, c, o, "kstatus-a", isAttached...)
	computes(t, c, o.Name, kstatus.CurrentStatus, "")

	// The status never says Current about a generation that isn't attached everywhere.
	edited, err := stored(t.Context(), c, o.Name)
	if err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, unstructured.SetNestedStringSlice(edited.Object, []string{"syscalls/sys_enter_openat"}, "spec", "names"))
	must.Succeed(t, c.Update(t.Context(), edited))
	if got, err := kstatus.Compute(edited); err != nil || got.Status != kstatus.InProgressStatus {
		t.Errorf("just edited: %+v, %v", got, err)
	}
	o.Generation = edited.GetGeneration()
	report(t, c, o, "kstatus-a", isAttached...)
	computes(t, c, o.Name, kstatus.InProgressStatus, "waiting for kstatus-b")
	report(t, c, o, "kstatus-b", isAttached...)
	computes(t, c, o.Name, kstatus.CurrentStatus, "")
}

// A node that leaves, and one that joins and reports soon, leave an object ready all the time.
func TestReadyWhileNodesComeAndGo(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "ready-a", map[string]string{"pool": "ready"})
	addNode(t, c, "ready-b", map[string]string{"pool": "ready"})
	o := tracepoint("ready", "ready")
	create(t, c, o)
	report(t, c, o, "ready-a", isAttached...)
	report(t, c, o, "ready-b", isAttached...)
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")
	ready, err := stored(t.Context(), c, o.Name)
	if err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ready-b"}}))
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	addNode(t, c, "ready-c", map[string]string{"pool": "ready"})
	report(t, c, o, "ready-c", isAttached...)
	shows(t, c, o, "2/2/0 ReconcileSuccess: Attached on 2 of 2 selected nodes")
	now, err := stored(t.Context(), c, o.Name)
	if err != nil {
		t.Fatal(err)
	}
	if before, after := sinceReady(t, ready), sinceReady(t, now); before != after {
		t.Errorf("ready since %s, and before since %s", after, before)
	}
}

func sinceReady(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Ready" {
			return fmt.Sprint(c["status"], c["lastTransitionTime"])
		}
	}
	t.Fatalf("no condition Ready in %v", conditions)
	return ""
}

func TestKubectlWaits(t *testing.T) {
	c := cluster(t)
	kubectl := func(arguments ...string) (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), arguments...)
		command.Env = append(os.Environ(), "KUBECONFIG="+envtest.Kubeconfig(t))
		said, err := command.CombinedOutput()
		return string(said), err
	}
	addNode(t, c, "wait-a", map[string]string{"pool": "wait"})
	o := tracepoint("wait", "wait")
	create(t, c, o)
	if said, err := kubectl("wait", "--for=condition=Ready", "--timeout=1s", "tracepointprogram/wait"); err == nil {
		t.Errorf("it is ready before a node has reported: %s", said)
	}
	report(t, c, o, "wait-a", isStalled...)
	if said, err := kubectl("wait", "--for=condition=Stalled", "--timeout=30s", "tracepointprogram/wait"); err != nil {
		t.Errorf("stalled: %v: %s", err, said)
	}
	report(t, c, o, "wait-a", isAttached...)
	if said, err := kubectl("wait", "--for=condition=Ready", "--timeout=30s", "tracepointprogram/wait"); err != nil {
		t.Errorf("ready: %v: %s", err, said)
	}
}

func TestHelmWaits(t *testing.T) {
	c := cluster(t)
	program := cmp.Or(os.Getenv("HELM"), "../../../bin/helm")
	if _, err := os.Stat(program); err != nil {
		prerequisite.Missing(t, "run `make helm` first", prerequisite.Helm)
	}
	addNode(t, c, "helm-a", map[string]string{"pool": "helm"})
	environment := []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + envtest.Kubeconfig(t)}
	helm := func(arguments ...string) error {
		command := exec.CommandContext(context.WithoutCancel(t.Context()), program, arguments...)
		command.Env = environment
		said, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("helm %s: %w: %s", arguments[0], err, said)
		}
		return nil
	}
	for name, test := range map[string]struct {
		reports []metav1.Condition
		want    string
	}{
		"helm-stalled":  {isStalled, "helm-a: it has no function enter"},
		"helm-attached": {isAttached, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := tracepoint(name, "helm")
			chart := chartOf(t, o)
			t.Cleanup(func() {
				if err := helm("uninstall", name); err != nil {
					t.Error(err)
				}
			})
			ended := make(chan error, 1)
			go func() { ended <- helm("upgrade", "--install", "--wait", "--timeout=1m", name, chart) }()
			computes(t, c, name, kstatus.InProgressStatus, "waiting for helm-a")
			select {
			case err := <-ended:
				t.Fatalf("Helm doesn't wait: %v", err)
			default:
			}
			must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			report(t, c, o, "helm-a", test.reports...)
			err := <-ended
			if said := fmt.Sprint(err); (err == nil) != (test.want == "") || !strings.Contains(said, test.want) || strings.Contains(said, "deadline") {
				t.Errorf("Helm says %v, want %q", err, test.want)
			}
		})
	}
}

// The health checks of Flux's kustomize-controller wait for an object, and fail fast.
func TestFluxWaits(t *testing.T) {
	c := cluster(t)
	flux := ssa.NewResourceManager(c, polling.NewStatusPoller(c, c.RESTMapper(), polling.Options{}), ssa.Owner{})
	addNode(t, c, "flux-a", map[string]string{"pool": "flux"})
	for name, test := range map[string]struct {
		reports []metav1.Condition
		want    string
	}{
		"flux-attached": {isAttached, "<nil>"},
		"flux-stalled":  {isStalled, "failed early due to stalled resources: [TracepointProgram/flux-stalled status: 'Failed']"},
		"flux-waiting":  {isWaiting, "timeout waiting for: [TracepointProgram/flux-waiting status: 'InProgress']"},
	} {
		t.Run(name, func(t *testing.T) {
			o := tracepoint(name, "flux")
			create(t, c, o)
			id := object.ObjMetadata{GroupKind: v1alpha1.SchemeGroupVersion.WithKind("TracepointProgram").GroupKind(), Name: name}
			wait := func(timeout time.Duration) string {
				return fmt.Sprint(flux.WaitForSetWithContext(t.Context(), object.ObjMetadataSet{id}, ssa.WaitOptions{
					Interval: time.Second / 10, Timeout: timeout, FailFast: true,
				}))
			}
			waits := "timeout waiting for: [TracepointProgram/" + name + " status: 'InProgress']"
			if said := wait(time.Second); said != waits {
				t.Errorf("before the node has reported, Flux says %s", said)
			}
			report(t, c, o, "flux-a", test.reports...)
			timeout := time.Minute
			if test.want == waits {
				timeout = 2 * time.Second
			}
			if said := wait(timeout); said != test.want {
				t.Errorf("Flux says %s, want %s", said, test.want)
			}
		})
	}
}

// chartOf returns the directory of a chart that contains one object.
func chartOf(t *testing.T, o *v1alpha1.TracepointProgram) string {
	t.Helper()
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TracepointProgram"))
	manifest, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	chart := t.TempDir()
	must.Succeed(t, os.Mkdir(filepath.Join(chart, "templates"), 0o700))
	for name, content := range map[string][]byte{
		"Chart.yaml": []byte("apiVersion: v2\nname: app\nversion: 1.0.0\n"), "templates/program.yaml": manifest,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(chart, name), content, 0o600))
	}
	return chart
}
