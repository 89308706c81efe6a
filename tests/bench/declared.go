// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// declaredTimes are the durations of declaring programs, from the start of kubectl.
type declaredTimes struct {
	// Seen is the time until a watcher received the first object. It includes kubectl's
	// startup.
	Seen time.Duration
	// Applied is the time until kubectl ended. The API server then has all objects.
	Applied time.Duration
	// Loaded is the time until the last BpfProgram reported that it is loaded and
	// attached.
	Loaded time.Duration
	// Attached is the time until the last user object reported ReconcileSuccess.
	Attached time.Duration
	// Removed is the time from the start of `kubectl delete` until the last BpfProgram
	// was deleted, after its program was unloaded.
	Removed time.Duration
	// From and To are the start and the end of applying. Gone is the end of removing.
	From, To, Gone time.Time
	// Writes is the number of writes to BpfPrograms in the meantime.
	Writes int
}

// cluster is a cluster where programs are declared, all on one node.
type cluster struct {
	client  client.WithWatch
	kubectl string
	node    string
}

// manifest returns one file with n objects.
func (c cluster) manifest(n int, image, function string) ([]byte, error) {
	var all bytes.Buffer
	for i := range n {
		object := v1alpha1.TracepointProgram{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "TracepointProgram"},
			ObjectMeta: metav1.ObjectMeta{Name: programName(i)},
		}
		object.Spec.BpfFunctionName = function
		object.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: image, ImagePullPolicy: v1alpha1.PullIfNotPresent}}
		object.Spec.NodeSelector.MatchLabels = map[string]string{"kubernetes.io/hostname": c.node}
		object.Spec.Names = []string{node.RareTracepoint(i)}
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode object: %w", err)
		}
		all.WriteString("---\n")
		all.Write(text)
	}
	return all.Bytes(), nil
}

// declare applies n objects with kubectl, waits until all are attached, calls f, deletes
// them, and waits until all are unloaded.
func (c cluster) declare(ctx context.Context, manifest []byte, n int, f func(context.Context) error) (t declaredTimes, err error) {
	events, stop, err := c.watch(ctx)
	if err != nil {
		return t, err
	}
	defer stop()
	apply := func() error {
		t.From = time.Now()
		applied := make(chan error, 1)
		go func() {
			_, err := runKubectl(ctx, c.kubectl, manifest, "apply", "-f", "-")
			t.Applied = time.Since(t.From)
			applied <- err
		}()
		err := events.until(ctx, &t, func(s *state) bool { return len(s.attached) == n && len(s.loaded) == n })
		if err != nil {
			return errors.Join(err, <-applied)
		}
		return <-applied
	}
	if err := apply(); err != nil {
		return t, err
	}
	if err := f(ctx); err != nil {
		return t, err
	}
	t.To = time.Now()
	if _, err := runKubectl(ctx, c.kubectl, manifest, "delete", "--wait=false", "-f", "-"); err != nil {
		return t, err
	}
	err = events.until(ctx, &declaredTimes{}, func(s *state) bool { return len(s.programs) == 0 })
	t.Gone = time.Now()
	t.Removed = t.Gone.Sub(t.To)
	return t, err
}

// state is the state of the watched objects.
type state struct {
	attached map[string]bool // user objects
	loaded   map[string]bool // BpfPrograms
	programs map[string]bool // BpfPrograms, all
}

type watcher struct {
	state
	events chan watch.Event
}

func (c cluster) watch(ctx context.Context) (*watcher, func(), error) {
	w := &watcher{
		state:  state{attached: map[string]bool{}, loaded: map[string]bool{}, programs: map[string]bool{}},
		events: make(chan watch.Event),
	}
	ctx, cancel := context.WithCancel(ctx)
	for _, list := range []client.ObjectList{&v1alpha1.TracepointProgramList{}, &v1alpha1.BpfProgramList{}} {
		if err := c.client.List(ctx, list); err != nil {
			cancel()
			return nil, nil, fmt.Errorf("list %T: %w", list, err)
		}
		from, err := c.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("watch %T: %w", list, err)
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("read %T: %w", list, err)
		}
		for _, item := range items {
			if o, ok := item.(client.Object); ok && strings.HasPrefix(o.GetName(), namePrefix) {
				cancel()
				return nil, nil, fmt.Errorf("%T %s is left of another run: delete it first", o, o.GetName())
			}
		}
		go func() {
			defer from.Stop()
			for e := range from.ResultChan() {
				select {
				case w.events <- e:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return w, cancel, nil
}

// until records events and their times until the state is as wanted.
func (w *watcher) until(ctx context.Context, t *declaredTimes, done func(*state) bool) error {
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	for !done(&w.state) {
		select {
		case e := <-w.events:
			w.note(e, t)
		case <-ctx.Done():
			return fmt.Errorf("waiting: %d objects are attached, %d programs of %d loaded: %w", len(w.attached), len(w.loaded), len(w.programs), context.Cause(ctx))
		}
	}
	return nil
}

func (w *watcher) note(e watch.Event, t *declaredTimes) {
	now := time.Since(t.From)
	switch o := e.Object.(type) {
	case *v1alpha1.TracepointProgram:
		if !strings.HasPrefix(o.Name, namePrefix) {
			return
		}
		if t.Seen == 0 {
			t.Seen = now
		}
		if e.Type != watch.Deleted && says(o.Status.Conditions, string(v1alpha1.ProgramReconcileSuccess)) && !w.attached[o.Name] {
			w.attached[o.Name] = true
			t.Attached = now
		}
	case *v1alpha1.BpfProgram:
		if !strings.HasPrefix(o.Name, namePrefix) {
			return
		}
		if e.Type == watch.Deleted {
			delete(w.programs, o.Name)
			return
		}
		t.Writes++
		w.programs[o.Name] = true
		if says(o.Status.Conditions, string(v1alpha1.BpfProgCondLoaded)) && !w.loaded[o.Name] {
			w.loaded[o.Name] = true
			t.Loaded = now
		}
	}
}

func says(conditions []metav1.Condition, condition string) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == condition })
}

// nodeUnderTest returns the node of a running node pod.
func nodeUnderTest(ctx context.Context, c client.Client) (string, error) {
	nodes := map[string]bool{}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace("bpfman"), client.MatchingLabels{"name": "bpfman-daemon"}); err != nil {
		return "", fmt.Errorf("list bpfman's pods: %w", err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			nodes[pod.Spec.NodeName] = true
		}
	}
	if len(nodes) == 0 {
		return "", errors.New("no pod bpfman-daemon runs in namespace bpfman: deploy bpfman first (make deploy)")
	}
	return slices.Sorted(maps.Keys(nodes))[0], nil
}
