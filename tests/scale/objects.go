// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

// networkInterface is the interface that each node has.
const networkInterface = "eth0"

// allKinds is the number of kinds of objects in the benchmark.
const allKinds = 3

// declared returns user objects for the nodes with the labels. It alternates between the kinds.
func declared(prefix string, count, kinds int, labels map[string]string) []v1alpha1.UserObject {
	objects := make([]v1alpha1.UserObject, 0, count)
	for i := range count {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", prefix, i)}
		var object v1alpha1.UserObject
		switch i % kinds {
		case 0:
			o := &v1alpha1.TracepointProgram{ObjectMeta: meta}
			o.Spec.BpfFunctionName, o.Spec.Names = "count_syscalls", []string{"syscalls/sys_enter_openat"}
			object = o
		case 1:
			o := &v1alpha1.TcxProgram{ObjectMeta: meta}
			o.Spec.BpfFunctionName, o.Spec.Direction, o.Spec.Priority = "count_packets", "ingress", 50
			o.Spec.InterfaceSelector.Interfaces = &[]string{networkInterface}
			object = o
		default:
			o := &v1alpha1.KprobeProgram{ObjectMeta: meta}
			o.Spec.BpfFunctionName, o.Spec.FunctionName = "count_connects", "tcp_connect"
			object = o
		}
		common := object.GetAppCommon()
		path := "/opt/bytecode/" + meta.Name + ".o"
		common.ByteCode.Path = &path
		common.NodeSelector.MatchLabels = labels
		object.SetAppCommon(common)
		objects = append(objects, object)
	}
	return objects
}

// create creates the objects, and updates them with the API server's response.
func create[O client.Object](ctx context.Context, c client.Client, objects []O) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// statuses receives every state of the user objects from the API server.
type statuses struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]*seen
	changed chan struct{}
}

// seen is what was received about one object.
type seen struct {
	object v1alpha1.UserObject
	at     time.Time
	// writes is the number of writes of its status.
	writes int
}

// watchStatuses watches the kinds of objects until ctx ends.
func watchStatuses(ctx context.Context, c *controlPlane, of []v1alpha1.UserObject) (*statuses, error) {
	s := &statuses{objects: map[client.ObjectKey]*seen{}, changed: make(chan struct{}, 1)}
	informers, err := cache.New(c.admin, cache.Options{Scheme: envtest.Scheme(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, fmt.Errorf("watch the objects: %w", err)
	}
	watched := map[string]bool{}
	for _, o := range of {
		if watched[fmt.Sprintf("%T", o)] {
			continue
		}
		watched[fmt.Sprintf("%T", o)] = true
		informer, err := informers.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %Ts: %w", o, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(now any) { s.see(nil, now) },
			UpdateFunc: func(before, now any) { s.see(before, now) },
			DeleteFunc: func(gone any) { s.forget(gone) },
		})
		if err != nil {
			return nil, fmt.Errorf("watch %Ts: %w", o, err)
		}
	}
	go func() { _ = informers.Start(ctx) }() // until ctx ends
	if !informers.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch the objects: %w", context.Cause(ctx))
	}
	return s, nil
}

func (s *statuses) see(before, now any) {
	object, ok := now.(v1alpha1.UserObject)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[client.ObjectKeyFromObject(object)]
	if o == nil {
		o = &seen{}
		s.objects[client.ObjectKeyFromObject(object)] = o
	}
	if old, ok := before.(v1alpha1.UserObject); ok && old.GetResourceVersion() != object.GetResourceVersion() && old.GetGeneration() == object.GetGeneration() {
		o.writes++
	}
	o.object, o.at = object, time.Now()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *statuses) forget(gone any) {
	object, ok := gone.(client.Object)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, client.ObjectKeyFromObject(object))
}

// countAgain resets the number of writes of statuses.
func (s *statuses) countAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		o.writes = 0
	}
}

// writesPerObject returns how often the statuses of objects were written.
func (s *statuses) writesPerObject(of []v1alpha1.UserObject) (mean, most float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range of {
		if known := s.objects[client.ObjectKeyFromObject(o)]; known != nil {
			mean += float64(known.writes) / float64(len(of))
			most = max(most, float64(known.writes))
		}
	}
	return mean, most
}

// await waits until the statuses of all objects are right, and returns the time when the last one
// became right.
func (s *statuses) await(ctx context.Context, of []v1alpha1.UserObject, right func(*v1alpha1.BpfProgramStatusCommon) bool) (time.Time, error) {
	var last time.Time
	var wrong string
	check := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		last = time.Time{}
		for _, o := range of {
			known := s.objects[client.ObjectKeyFromObject(o)]
			if known == nil || !right(known.object.GetStatus()) {
				wrong = o.GetName()
				if known != nil {
					wrong += fmt.Sprintf(": %+v", known.object.GetStatus())
				}
				return false
			}
			if known.at.After(last) {
				last = known.at
			}
		}
		return true
	}
	for !check() {
		select {
		case <-s.changed:
		case <-ctx.Done():
			return last, fmt.Errorf("wait for the status of %s: %w", wrong, context.Cause(ctx))
		}
	}
	return last, nil
}

// attached checks the status of an object that is attached on the given number of nodes.
func attached(nodes int) func(*v1alpha1.BpfProgramStatusCommon) bool {
	return counts(v1alpha1.ProgramReconcileSuccess, nodes, nodes, 0)
}

// failedOn checks the status of an object that is attached on all nodes but some.
func failedOn(failed, nodes int) func(*v1alpha1.BpfProgramStatusCommon) bool {
	return counts(v1alpha1.ProgramReconcileError, nodes, nodes-failed, failed)
}

func counts(condition v1alpha1.ProgramConditionType, selected, attached, failed int) func(*v1alpha1.BpfProgramStatusCommon) bool {
	want := v1alpha1.NodeCounts{Selected: int32(selected), Attached: int32(attached), Failed: int32(failed)} //nolint:gosec // there are thousands
	return func(s *v1alpha1.BpfProgramStatusCommon) bool {
		return len(s.Conditions) > 0 && s.Conditions[0].Type == string(condition) && s.Nodes != nil && *s.Nodes == want
	}
}

// poll waits until a condition holds.
func poll(ctx context.Context, what string, timeout time.Duration, holds func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, holds)
	if err != nil {
		return fmt.Errorf("wait %v for %s: %w", timeout, what, err)
	}
	return nil
}
