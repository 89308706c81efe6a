// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Objects that haven't the scope of their type have the fields of another type. Nothing gets them, and the process is told.
func TestObjectsOfTheOtherScope(t *testing.T) {
	of := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "x", UID: "u"}
	}
	cluster := func(namespace string) *v1alpha1.BpfApplication {
		return &v1alpha1.BpfApplication{ObjectMeta: of(namespace)}
	}
	tenants := func(namespace string) *namespaced.BpfApplication {
		return &namespaced.BpfApplication{ObjectMeta: of(namespace)}
	}
	for name, c := range map[string]struct {
		object runtime.Object
		list   runtime.Object
		wrong  bool
	}{
		"v0.5":           {cluster(""), &v1alpha1.BpfApplicationList{Items: []v1alpha1.BpfApplication{*cluster("")}}, false},
		"v0.5, in v0.6":  {tenants(""), &namespaced.BpfApplicationList{Items: []namespaced.BpfApplication{*tenants("")}}, true},
		"v0.6":           {tenants("acme"), &namespaced.BpfApplicationList{Items: []namespaced.BpfApplication{*tenants("acme")}}, false},
		"v0.6, in v0.5":  {cluster("acme"), &v1alpha1.BpfApplicationList{Items: []v1alpha1.BpfApplication{*cluster("acme")}}, true},
		"a bookmark":     {&namespaced.BpfApplication{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}, &namespaced.BpfApplicationList{}, false},
		"an empty event": {&metav1.Status{}, &v1alpha1.BpfApplicationList{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := &Kinds{Rescoped: make(chan error, 1)}
			events := watch.NewFake()
			from := k.Watch(v1alpha1.SchemeGroupVersion.WithKind("BpfApplication"), &toolscache.ListWatch{
				ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return c.list, nil },
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
			})
			if got, err := from.ListWithContext(t.Context(), metav1.ListOptions{}); errors.Is(err, definitions.ErrOtherScope) != c.wrong || (got == nil) != c.wrong {
				t.Errorf("a list: %v, %v", got, err)
			}
			k.told(t, "a list", c.wrong)
			watching, err := from.WatchWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				events.Add(c.object)
				events.Stop()
			}()
			if _, more := <-watching.ResultChan(); more == c.wrong {
				t.Errorf("a watch delivers it: %v", more)
			}
			k.told(t, "a watch", c.wrong)
		})
	}
}

// told checks whether the process is told, which has room for one error.
func (k *Kinds) told(t *testing.T, what string, want bool) {
	t.Helper()
	select {
	case err := <-k.Rescoped:
		if !want || !errors.Is(err, definitions.ErrOtherScope) {
			t.Errorf("%s: it is told %v", what, err)
		}
	default:
		if want {
			t.Errorf("%s: it isn't told", what)
		}
	}
}
