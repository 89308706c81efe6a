// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil //nolint:reassign // they delay errors by the process's real time
	if err := v1alpha1.Install(scheme.Scheme); err != nil {
		panic(err)
	}
	envtest.Main(m)
}

func config(transport http.RoundTripper) *rest.Config {
	return &rest.Config{Host: "http://apiserver", Transport: transport, QPS: -1}
}

func newServer(t *testing.T) *apiserver.Server {
	t.Helper()
	s, err := apiserver.New()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newClient(t *testing.T, s *apiserver.Server, actor string, intercept apiserver.Interceptor) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config(s.Transport(actor, t.Context(), intercept)), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func program(name string) *v1alpha1.TracepointProgram {
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Names = "count", []string{"syscalls/sys_enter_kill"}
	o.Spec.ByteCode.Path = new("/object.o")
	return o
}

func TestObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		var events []string
		s.Observe(func(e apiserver.Event) { events = append(events, e.Actor+" "+e.Verb+" "+e.Resource.Resource) })
		c := newClient(t, s, "user", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w, err := c.Watch(ctx, &v1alpha1.TracepointProgramList{})
		if err != nil {
			t.Fatal(err)
		}
		o := program("one")
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		if o.UID == "" || o.Generation != 1 || len(o.ManagedFields) != 1 {
			t.Errorf("created %+v", o)
		}
		invalid := &v1alpha1.TcProgram{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}}
		invalid.Spec.Priority = 5000
		if err := c.Create(ctx, invalid); !apierrors.IsInvalid(err) {
			t.Errorf("an invalid object: %v", err)
		}
		if err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "x"}}); !apierrors.IsNotFound(err) {
			t.Errorf("in no namespace: %v", err)
		}
		stale := o.DeepCopy()
		o.Spec.Names = append(o.Spec.Names, "syscalls/sys_exit_kill")
		if err := c.Update(ctx, o); err != nil || o.Generation != 2 {
			t.Errorf("%v, %+v", err, o)
		}
		if err := c.Update(ctx, stale); !apierrors.IsConflict(err) {
			t.Errorf("a conflict: %v", err)
		}
		for _, want := range []string{"ADDED", "MODIFIED"} {
			if e := <-w.ResultChan(); string(e.Type) != want {
				t.Errorf("%s, want %s", e.Type, want)
			}
		}
		w.Stop()
		got := s.Get("tracepointprograms.bpfman.io", "", "one")
		if got == nil || got.GetGeneration() != 2 {
			t.Fatalf("%v", got)
		}
		got.SetAnnotations(map[string]string{"of": "a copy"})
		if again := s.Get("tracepointprograms.bpfman.io", "", "one"); len(again.GetAnnotations()) > 0 {
			t.Errorf("a change of what Get returned changed the stored object: %v", again)
		}
		if want := []string{"user create tracepointprograms", "user update tracepointprograms"}; !slices.Equal(events, want) {
			t.Errorf("observed %q, want %q", events, want)
		}
	})
}

func TestLeaseManagers(t *testing.T) {
	for _, without := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.WithoutLeaseManagers = without
			c := newClient(t, s, "user", nil)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}
			if err := c.Create(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			lease.Spec.HolderIdentity = new("b")
			if err := c.Update(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			if tracked := len(lease.ManagedFields) > 0; tracked == without || *lease.Spec.HolderIdentity != "b" {
				t.Errorf("without managers: %t, %+v", without, lease)
			}
		})
	}
}
