// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

// TestUpstreamV06 installs the definitions and objects of upstream's v0.6.0 in the cluster,
// and tries each way to install bpfman. Nothing is applied, and nothing of upstream is lost.
func TestUpstreamV06(t *testing.T) {
	if !settings.uninstall {
		t.Skip("bpfman isn't to be uninstalled from this cluster, see `make test-lifecycle`")
	}
	users := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "upstream-users"}}
	objects := upstream.V06Objects(users.Name)
	feature(t,
		step{"upstream's definitions and objects", func(ctx context.Context, s *testing.T) {
			run(ctx, s, "undeploy-kustomize")
			removeUpstream(ctx, s, objects, users)
			createUpstream(ctx, s, objects, users)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), installTime)
				defer cancel()
				removeUpstream(ctx, t, objects, users)
			})
		}},
		step{"each way that looks first", func(ctx context.Context, s *testing.T) {
			before := names(ctx, s)
			for _, target := range []string{"deploy-kustomize", "deploy-release", "deploy-helm", "install", "undeploy-kustomize", "uninstall"} {
				said, err := tryRun(ctx, target)
				refusal := map[bool]string{true: "nothing is deleted", false: "bpfapplications.bpfman.io (Namespaced)"}[strings.HasPrefix(target, "un")]
				if err == nil || !strings.Contains(said, refusal) {
					s.Errorf("make %s: %v, without %q:\n%s", target, err, refusal, said)
				}
				if after := names(ctx, s); !slices.Equal(before, after) {
					s.Errorf("make %s changed objects:\n%q\n%q", target, before, after)
				}
			}
			checkUnwritten(ctx, s, objects)
		}},
		step{"kubectl alone", func(ctx context.Context, s *testing.T) {
			file := "../../bin/release-tried/bpfman-all-install.yaml"
			output, err := exec.CommandContext(ctx, variable("KUBECTL", "kubectl"), "--kubeconfig", settings.kubeconfig, "apply", "--server-side", "-f", file).CombinedOutput()
			// The conflict is about the definition with upstream's name, which another client
			// applied.
			if err == nil || !strings.Contains(string(output), "conflicts") || !strings.Contains(string(output), ".spec.scope") {
				s.Fatalf("kubectl apply: %v\n%s", err, output)
			}
			awaitRefusal(ctx, s)
			if err := under.Get(ctx, client.ObjectKey{Namespace: bpfmanSpace, Name: "bpfman-daemon"}, &appsv1.DaemonSet{}); !apierrors.IsNotFound(err) {
				s.Errorf("the DaemonSet: %v", err)
			}
			checkUnwritten(ctx, s, objects)
		}},
		step{"uninstalled", func(ctx context.Context, s *testing.T) {
			if said := run(ctx, s, "undeploy-release"); !strings.Contains(said, "stay, and the namespace "+bpfmanSpace) {
				s.Errorf("it doesn't say what stays:\n%s", said)
			}
			checkUnwritten(ctx, s, objects)
			for _, name := range names(ctx, s) {
				if strings.HasPrefix(name, "customresourcedefinitions") && strings.Contains(name, "programs.bpfman.io") {
					s.Errorf("%s is left", name)
				}
			}
		}},
		step{"without upstream", func(ctx context.Context, s *testing.T) {
			removeUpstream(ctx, s, objects, users)
			run(ctx, s, "deploy-kustomize")
		}},
	)
}

// newClient returns a client that has no cached kinds, because BpfApplication has another scope.
func newClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(under.resources.GetConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func createUpstream(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured, users *corev1.Namespace) {
	t.Helper()
	must.Succeed(t, under.Create(ctx, users.DeepCopy()))
	for _, definition := range upstream.V06Definitions() {
		must.Succeed(t, under.Create(ctx, definition))
	}
	for _, object := range objects {
		status := object.Object["status"]
		await(ctx, t, object.GetKind()+" is served", func(ctx context.Context) (bool, string) {
			err := newClient(t).Create(ctx, object)
			return err == nil, fmt.Sprint(err)
		})
		if status == nil {
			continue
		}
		object.Object["status"] = status
		if err := newClient(t).Status().Update(ctx, object); err != nil {
			t.Fatalf("write the status of %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// removeUpstream simulates upstream's controllers, which remove their finalizers from deleted
// objects.
func removeUpstream(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured, users *corev1.Namespace) {
	t.Helper()
	api := newClient(t)
	for _, object := range objects {
		now := object.DeepCopy()
		if err := api.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil {
			continue // it was deleted, or its kind was
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := errors.Join(api.Patch(ctx, now, patch), client.IgnoreNotFound(api.Delete(ctx, now))); err != nil {
			t.Errorf("remove %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	for _, definition := range upstream.V06Definitions() {
		// A definition of this project has the same name.
		found := definition.DeepCopy()
		err := under.Get(ctx, client.ObjectKeyFromObject(definition), found)
		if apierrors.IsNotFound(err) || found.GetLabels()["bpfman.io/owned-definition"] == "true" {
			continue
		}
		if err := remove(ctx, definition); err != nil {
			t.Error(err)
		}
	}
	if err := remove(ctx, users.DeepCopy()); client.IgnoreNotFound(err) != nil {
		t.Error(err)
	}
}

// checkUnwritten checks that upstream's objects are unchanged, and its definitions exist.
func checkUnwritten(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	api := newClient(t)
	for _, object := range objects {
		now := object.DeepCopy()
		if err := api.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil || now.GetResourceVersion() != object.GetResourceVersion() {
			t.Errorf("%s %s was written, or is gone: %v", object.GetKind(), object.GetName(), err)
		}
	}
	for _, definition := range upstream.V06Definitions() {
		if err := under.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil || definition.GetDeletionTimestamp() != nil {
			t.Errorf("definition %s: %v, deleted %v", definition.GetName(), err, definition.GetDeletionTimestamp())
		}
	}
}

// awaitRefusal waits until the operator runs, isn't ready, and reports the reason.
func awaitRefusal(ctx context.Context, t *testing.T) {
	t.Helper()
	await(ctx, t, "the operator runs and isn't ready", func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		if err := under.List(ctx, &pods, client.InNamespace(bpfmanSpace), client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
			return false, err.Error()
		}
		for _, pod := range pods.Items {
			for _, status := range pod.Status.ContainerStatuses {
				if status.State.Running != nil && time.Since(status.State.Running.StartedAt.Time) > 5*time.Second {
					return !status.Ready, pod.Name
				}
			}
		}
		return false, fmt.Sprintf("%d pods, none runs for five seconds", len(pods.Items))
	})
	await(ctx, t, "an Event says why", func(ctx context.Context) (bool, string) {
		var list eventsv1.EventList
		if err := under.List(ctx, &list, client.InNamespace(bpfmanSpace)); err != nil {
			return false, err.Error()
		}
		found := slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "ConfigMap" && e.Reason == "ForeignDefinitions" && strings.Contains(e.Note, "Config (cluster-scoped)")
		})
		return found, fmt.Sprintf("%d Events", len(list.Items))
	})
}
