// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	respond := func(request *http.Request) (*http.Response, error) {
		code, body := answer()
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: request,
		}, nil
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := NewClient(&rest.Config{Transport: roundTripper(respond)}, scheme)
	if err != nil {
		t.Fatal(err)
	}
	return &Kinds{Log: logr.Discard(), API: api}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

const (
	noItems  = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[]}`
	oneItem  = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"x"}}]}`
	notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"no definition"}`
	refused  = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no permission"}`
	// How an API server returns an error of etcd, which has no reason.
	etcdFails = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"etcdserver: request timed out"}`
	tooMany   = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"try again later"}`
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
				return codeOf(looks[n]), looks[n]
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

// A check is shared by all who ask for one that began after the same time. One that failed is shared for a moment only, unless
// the kind doesn't exist: it doesn't say whether there are objects. The first object opens the kind.
func TestLook(t *testing.T) {
	kind := v1alpha1.RolloutPolicyKind
	gvk := kind.GroupVersionKind()
	for name, failure := range map[string]string{"etcd fails": etcdFails, "too many requests": tooMany, "no permission": refused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks, opened := 0, 0
				answers := []string{failure, failure, notFound, noItems, oneItem}
				k := server(t, func() (int, string) {
					looks++
					return codeOf(answers[looks-1]), answers[looks-1]
				})
				k.OnDemand(gvk, func() { opened++ })
				look := func(since time.Time, fails bool, asked int) {
					t.Helper()
					<-time.After(time.Millisecond)
					for range 2 {
						if err := k.Look(t.Context(), gvk, kind.Resource(), since); (err != nil) != fails || looks != asked {
							t.Errorf("%v after %d requests, want %d", err, looks, asked)
						}
					}
				}
				first := time.Now()
				look(first, true, 1)
				<-time.After(2 * quickLook)
				look(first, true, 2) // the same objects try again
				<-time.After(2 * quickLook)
				look(first, true, 3)
				<-time.After(2 * quickLook)
				look(first, true, 3) // there is no such kind, so no object
				look(time.Now(), false, 4)
				<-time.After(2 * quickLook)
				look(first, false, 4)
				look(time.Now(), false, 5)
				if opened != 1 {
					t.Errorf("it was opened %d times", opened)
				}
			})
		})
	}
}

// codeOf returns the HTTP status of an answer.
func codeOf(answer string) int {
	var status struct{ Code int }
	if json.Unmarshal([]byte(answer), &status) == nil && status.Code != 0 {
		return status.Code
	}
	return http.StatusOK
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
