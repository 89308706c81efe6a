// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kindcache

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// listing is a source whose objects are listed when the channel is closed.
type listing struct {
	source.TypedSyncingSource[reconcile.Request]

	listed chan struct{}
}

func (l listing) Start(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return nil
}

func (l listing) WaitForSync(ctx context.Context) error {
	select {
	case <-l.listed:
	case <-ctx.Done(): // as controller-runtime's, which returns no error
	}
	return nil
}

func TestListed(t *testing.T) {
	for name, test := range map[string]struct{ listed, ended, want bool }{
		"while it is listed":    {},
		"after it is listed":    {listed: true, want: true},
		"after the end without": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				l := listing{listed: make(chan struct{})}
				events := &Events[reconcile.Request]{of: l}
				if err := events.Start(ctx, nil); err != nil {
					t.Fatal(err)
				}
				if test.listed {
					close(l.listed)
				}
				if test.ended {
					end()
				}
				synctest.Wait()
				if events.Listed() != test.want {
					t.Errorf("listed: %v", !test.want)
				}
			})
		})
	}
}

// A kind that isn't listed has an error, and isn't empty.
func TestReadsBeforeTheList(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	known, node := &kinds.Kinds{}, corev1.SchemeGroupVersion.WithKind("Node")
	c := &independent{read{}, known, scheme}
	for _, listed := range []bool{false, true} {
		known.SetListed(node, func() bool { return listed })
		get := c.Get(t.Context(), client.ObjectKey{Name: "a"}, &corev1.Node{})
		list := c.List(t.Context(), &corev1.NodeList{})
		if kinds.Unread(get) == listed || kinds.Unread(list) == listed {
			t.Errorf("listed: %v: Get returns %v, and List %v", listed, get, list)
		}
		if !c.WaitForCacheSync(t.Context()) {
			t.Error("it waits for all kinds")
		}
	}
	if err := c.Get(t.Context(), client.ObjectKey{}, &foreign{}); err == nil {
		t.Error("a kind outside of the scheme can be read")
	}
}

type foreign struct{ corev1.Node }

// read is a cache of which everything is read.
type read struct{ cache.Cache }

func (read) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}
func (read) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
