// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

// await waits in virtual time.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Hour); !is(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in the bubble, the clock isn't real
	}
}

func TestFailuresOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var fail func(*apiserver.Request) error
		c := newClient(t, s, "user", func(q *apiserver.Request) error {
			if fail == nil {
				return nil
			}
			return fail(q)
		})
		exists := func() bool { return s.Get("tracepointprograms.bpfman.io", "", "x") != nil }

		fail = func(q *apiserver.Request) error {
			if q.Phase == apiserver.Arrives {
				return io.EOF
			}
			return nil
		}
		if err := c.Create(t.Context(), program("x")); !errors.Is(err, io.EOF) || exists() {
			t.Errorf("a request that doesn't arrive: %v, %t", err, exists())
		}
		fail = func(q *apiserver.Request) error {
			if q.Phase == apiserver.Answered {
				return io.EOF
			}
			return nil
		}
		if err := c.Create(t.Context(), program("x")); !errors.Is(err, io.EOF) || !exists() {
			t.Errorf("a lost response: %v, %t", err, exists())
		}
		fail = func(q *apiserver.Request) error {
			if q.Verb == "delete" {
				return apierrors.NewServiceUnavailable("down")
			}
			return nil
		}
		if err := c.Delete(t.Context(), program("x")); !apierrors.IsServiceUnavailable(err) || !exists() {
			t.Errorf("a refusal: %v, %t", err, exists())
		}
		fail = func(q *apiserver.Request) error {
			<-q.Context().Done()
			return q.Context().Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		began := time.Now()
		if err := c.Delete(ctx, program("x")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Hour {
			t.Errorf("silence: %v after %s", err, time.Since(began))
		}
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		alive, crash := context.WithCancel(t.Context())
		c, err := client.NewWithWatch(config(s.Transport("user", alive, nil)), client.Options{})
		must.Succeed(t, err)
		w, err := c.Watch(t.Context(), &corev1.ConfigMapList{})
		must.Succeed(t, err)
		defer w.Stop()
		crash()
		must.Succeed(t, newClient(t, s, "other", nil).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}))
		if e, open := <-w.ResultChan(); open {
			t.Errorf("an event after a crash: %v", e)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.ConfigMap{}); err == nil {
			t.Error("a request after a crash")
		}
	})
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var asOf uint64
		c := newClient(t, s, "user", func(q *apiserver.Request) error {
			if q.Phase == apiserver.Arrives && q.CanBeStale() {
				q.AsOf = asOf
			}
			return nil
		})
		var versions []uint64
		for i := range 3 {
			must.Succeed(t, c.Create(t.Context(), program(fmt.Sprint("p", i))))
			versions = append(versions, s.Version())
		}
		list := func(version string) ([]v1alpha1.TracepointProgram, string, error) {
			all := &v1alpha1.TracepointProgramList{}
			err := c.List(t.Context(), all, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
			return all.Items, all.ResourceVersion, err
		}
		asOf = versions[0]
		if items, version, err := list("0"); err != nil || len(items) != 1 || version != fmt.Sprint(versions[0]) {
			t.Errorf("a list from the past has %d objects of version %s, %v", len(items), version, err)
		}
		if items, _, err := list(fmt.Sprint(versions[1])); err != nil || len(items) != 2 {
			t.Errorf("a list not older than the second version has %d objects, %v", len(items), err)
		}
		if items, _, err := list(""); err != nil || len(items) != 3 {
			t.Errorf("a list of the newest state has %d objects, %v", len(items), err)
		}
		backup := s.Snapshot()
		must.Succeed(t, c.Delete(t.Context(), program("p0")))
		w, err := c.Watch(t.Context(), &v1alpha1.TracepointProgramList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: fmt.Sprint(s.Version())}})
		must.Succeed(t, err)
		s.Restore(backup)
		if _, open := <-w.ResultChan(); open {
			t.Error("an event of a restore")
		}
		if s.Version() != versions[2] || s.Get("tracepointprograms.bpfman.io", "", "p0") == nil {
			t.Errorf("after a restore, the version is %d, want %d", s.Version(), versions[2])
		}
		s.Compact()
		w, err = c.Watch(t.Context(), &v1alpha1.TracepointProgramList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: fmt.Sprint(versions[1])}})
		must.Succeed(t, err)
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("a watch from before a compaction: %+v", e)
		}
	})
}

// A server without watches with initial events makes client-go list.
func TestWithoutWatchList(t *testing.T) {
	s := newServer(t)
	s.WithoutWatchList = true
	c := newClient(t, s, "user", nil)
	_, err := c.Watch(t.Context(), &corev1.ConfigMapList{}, &client.ListOptions{Raw: &metav1.ListOptions{
		SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	}})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a watch with initial events: %v", err)
	}
}

func TestControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.RunControllers(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		c := newClient(t, s, "user", nil)
		owner := program("owner")
		must.Succeed(t, c.Create(ctx, owner))
		reference := metav1.OwnerReference{APIVersion: "bpfman.io/v1alpha1", Kind: "TracepointProgram", Name: "owner", UID: owner.UID, BlockOwnerDeletion: new(true)}
		owned := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{reference}}}
		}
		must.Succeed(t, c.Create(ctx, owned("owned")))
		must.Succeed(t, c.Delete(ctx, owner))
		await(t, "what an object owned exists", func() bool { return s.Get("configmaps", "default", "owned") == nil })

		must.Succeed(t, c.Create(ctx, owned("late")))
		await(t, "what a deleted object owned exists", func() bool { return s.Get("configmaps", "default", "late") == nil })

		again := program("owner")
		must.Succeed(t, c.Create(ctx, again))
		reference.UID = again.UID
		held := owned("held")
		held.Finalizers = []string{"bpfman.io/test"}
		must.Succeed(t, c.Create(ctx, held))
		must.Succeed(t, c.Delete(ctx, again, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		time.Sleep(time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
		if s.Get("tracepointprograms.bpfman.io", "", "owner") == nil {
			t.Error("the owner was deleted before what it owns")
		}
		must.Succeed(t, c.Patch(ctx, held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		await(t, "the owner exists", func() bool { return s.Get("tracepointprograms.bpfman.io", "", "owner") == nil })

		must.Succeed(t, c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}))
		must.Succeed(t, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "content"}}))
		must.Succeed(t, c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}))
		await(t, "the namespace exists", func() bool {
			return s.Get("namespaces", "", "other") == nil && s.Get("configmaps", "other", "content") == nil
		})

		must.Succeed(t, c.Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "event"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}))
		time.Sleep(50 * time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
		if s.Get("events", "default", "event") == nil {
			t.Error("an Event was deleted within an hour")
		}
		time.Sleep(20 * time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
		if s.Get("events", "default", "event") != nil {
			t.Error("an Event exists after an hour")
		}
	})
}

func BenchmarkServer(b *testing.B) {
	s, err := apiserver.New()
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(config(s.Transport("user", b.Context(), nil)), client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 250 {
		if err := c.Create(b.Context(), program(fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("list of 250", func(b *testing.B) {
		for b.Loop() {
			if err := c.List(b.Context(), &v1alpha1.TracepointProgramList{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		for b.Loop() {
			if err := c.Get(b.Context(), client.ObjectKey{Name: "p1"}, &v1alpha1.TracepointProgram{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write of a status", func(b *testing.B) {
		o := &v1alpha1.TracepointProgram{}
		if err := c.Get(b.Context(), client.ObjectKey{Name: "p1"}, o); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			o.Status.ObservedGeneration++
			if err := c.Status().Update(b.Context(), o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
