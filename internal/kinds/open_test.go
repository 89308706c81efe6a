// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// server returns Kinds with an API server that responds with answer to all requests.
func server(t *testing.T, answer func() (code int, body string)) *Kinds {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		code, body := answer()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	scheme := runtime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := NewClient(&rest.Config{Host: s.URL}, scheme)
	if err != nil {
		t.Fatal(err)
	}
	return &Kinds{Log: logr.Discard(), API: api}
}

const (
	noItems  = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[]}`
	oneItem  = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"x"}}]}`
	notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"no definition"}`
)

// A kind is opened when the first or a later check finds objects, even if it couldn't
// be read before. Until then, reading it is an error.
func TestAKindIsFoundAndOpened(t *testing.T) {
	for name, looks := range map[string][]string{
		"at once":                        {oneItem},
		"later":                          {noItems, noItems, oneItem},
		"when its definition is there":   {notFound, oneItem},
		"after its definition came back": {noItems, notFound, noItems, oneItem},
	} {
		t.Run(name, func(t *testing.T) {
			var looked, opened atomic.Int32
			kind := v1alpha1.UserKinds[0]
			gvk := kind.GroupVersionKind()
			var k *Kinds
			var said []string
			k = server(t, func() (int, string) {
				// Until this response, the state is from the previous one.
				n := int(looked.Add(1)) - 1
				unread := (*UnreadError)(nil)
				if err := k.CheckReadable(gvk); !errors.As(err, &unread) {
					t.Errorf("reading it is %v", err)
				} else if n > 0 && unread.Unused != (looks[n-1] == noItems || slices.Contains(looks[:n], noItems)) {
					t.Errorf("after %d looks it is unused: %v", n, unread.Unused)
				}
				problems, ready := k.State()
				said = append(said, fmt.Sprint(ready, len(problems)))
				if looks[n] == notFound {
					return http.StatusNotFound, notFound
				}
				return http.StatusOK, looks[n]
			})
			k.OnDemand(gvk, func() { opened.Add(1) })
			k.SetListed(v1alpha1.UserKinds[1].GroupVersionKind(), func() bool { return true })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			k.Find(ctx, kind.GroupVersionKind(), kind.Resource(), time.Millisecond)
			k.Open(gvk)
			if int(looked.Load()) != len(looks) || opened.Load() != 1 {
				t.Errorf("%d looks, opened %d times", looked.Load(), opened.Load())
			}
			want := map[string]string{noItems: "true 0", notFound: "true 1"}
			for n := range looks {
				if n == 0 && said[0] != "false 1" || n > 0 && said[n] != want[looks[n-1]] {
					t.Errorf("before look %d ready and problems were %s", n, said[n])
				}
			}
		})
	}
}

// A check is shared by all who ask for one that began after the same time, even if it failed. The first object opens the kind.
func TestLook(t *testing.T) {
	kind := v1alpha1.RolloutPolicyKind
	gvk := kind.GroupVersionKind()
	var looks, opened atomic.Int32
	answers := []string{notFound, noItems, oneItem}
	k := server(t, func() (int, string) {
		answer := answers[looks.Add(1)-1]
		if answer == notFound {
			return http.StatusNotFound, answer
		}
		return http.StatusOK, answer
	})
	k.OnDemand(gvk, func() { opened.Add(1) })
	look := func(since time.Time, fails bool, asked int32) {
		t.Helper()
		for range 2 {
			if err := k.Look(t.Context(), gvk, kind.Resource(), since); (err != nil) != fails || looks.Load() != asked {
				t.Errorf("%v after %d requests, want %d", err, looks.Load(), asked)
			}
		}
	}
	first := time.Now()
	look(first, true, 1)
	second := time.Now()
	look(second, false, 2)
	look(first, false, 2)
	look(time.Now(), false, 3)
	if opened.Load() != 1 {
		t.Errorf("it was opened %d times", opened.Load())
	}
}

// Kinds that haven't been opened, and optional kinds, don't affect readiness.
func TestKindsOnDemandAndOptionalOnesHoldUpNobody(t *testing.T) {
	k := &Kinds{Log: logr.Discard()}
	pods, hints := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	k.OnDemand(pods, func() {})
	k.Optional(pods)
	k.Optional(hints)
	k.SetListed(v1alpha1.UserKinds[0].GroupVersionKind(), func() bool { return true })
	k.SetListed(hints, func() bool { return false })
	if problems, ready := k.State(); !ready || !slices.Equal(problems, []string{"ConfigMaps have not been read yet"}) {
		t.Errorf("%v, %q", ready, problems)
	}
	k.Open(pods)
	if problems, ready := k.State(); !ready || len(problems) != 2 {
		t.Errorf("%v, %q", ready, problems)
	}
}
