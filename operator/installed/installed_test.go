// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package installed

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/kubernetes/typed/apps/v1/fake"
	clienttesting "k8s.io/client-go/testing"
)

const namespace = "bpfman"

func deployment(generation int64, replicas int32, status appsv1.DeploymentStatus) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bpfman-operator", Generation: generation},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas}, Status: status,
	}
}

func daemonSet(generation int64, status appsv1.DaemonSetStatus) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bpfman-daemon", Generation: generation}, Status: status}
}

// cluster returns a client for a cluster with objects.
func cluster(t *testing.T, objects ...runtime.Object) *fake.FakeAppsV1 {
	t.Helper()
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	for _, o := range objects {
		if err := tracker.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	client := &clienttesting.Fake{}
	client.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	return &fake.FakeAppsV1{Fake: client}
}

func TestAwait(t *testing.T) {
	operator := deployment(2, 1, appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1, AvailableReplicas: 1})
	nodes := daemonSet(3, appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 2})
	for name, c := range map[string]struct {
		objects []runtime.Object
		want    string // "" if it is ready
	}{
		"ready":                  {[]runtime.Object{operator, nodes}, ""},
		"nothing":                {nil, "no Deployment bpfman-operator"},
		"operator not seen":      {[]runtime.Object{deployment(2, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 1, AvailableReplicas: 1}), nodes}, "Deployment bpfman-operator isn't rolled out"},
		"operator off":           {[]runtime.Object{deployment(1, 0, appsv1.DeploymentStatus{ObservedGeneration: 1}), nodes}, "scaled to 0"},
		"operator unavailable":   {[]runtime.Object{deployment(1, 2, appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 2, AvailableReplicas: 1}), nodes}, "1 of 2 replicas available"},
		"operator of old":        {[]runtime.Object{deployment(1, 1, appsv1.DeploymentStatus{ObservedGeneration: 1, AvailableReplicas: 1}), nodes}, "0 of them up to date"},
		"no node components":     {[]runtime.Object{operator}, "no DaemonSet bpfman-daemon"},
		"nodes not seen":         {[]runtime.Object{operator, daemonSet(2, appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1})}, "DaemonSet bpfman-daemon isn't rolled out"},
		"no node":                {[]runtime.Object{operator, daemonSet(1, appsv1.DaemonSetStatus{ObservedGeneration: 1})}, "selects no node"},
		"a node is unavailable":  {[]runtime.Object{operator, daemonSet(1, appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 2})}, "available on 2 of 3 nodes"},
		"a node is not of today": {[]runtime.Object{operator, daemonSet(1, appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 1, NumberAvailable: 3})}, "up to date on 1"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := Await(ctx, cluster(t, c.objects...), namespace)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestAwaitRefused uses an API server that denies all requests.
func TestAwaitRefused(t *testing.T) {
	client := cluster(t)
	client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "bpfman-operator", errors.New("no right"))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Await(ctx, client, namespace); err == nil || !strings.Contains(err.Error(), "no right") {
		t.Errorf("got %v", err)
	}
}
