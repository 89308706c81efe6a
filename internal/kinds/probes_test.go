// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kinds

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestReadiness(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "xdpprograms"}, "", errors.New("no role"))
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "tcprograms"}, "")
	type state struct {
		synced bool
		err    error
	}
	etcd := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}
	good := state{synced: true}
	for name, test := range map[string]struct {
		kinds map[string]state // Node is a kind of another API
		code  int
		says  []string
	}{
		"nothing is watched, as by a replica that isn't the leader": {nil, http.StatusOK, []string{"ok"}},
		"all is read":                       {map[string]state{"Node": good, "XdpProgram": good, "TcProgram": good}, http.StatusOK, []string{"ok"}},
		"a kind is still being read":        {map[string]state{"Node": good, "XdpProgram": good, "TcProgram": {}}, http.StatusServiceUnavailable, []string{"not ready", "TcPrograms have not been read yet"}},
		"a kind can't be read":              {map[string]state{"Node": good, "XdpProgram": {err: forbidden}, "TcProgram": good}, http.StatusOK, []string{"ok, except for kinds that can't be read", "XdpPrograms can't be read", "no role"}},
		"a kind can't be read anymore":      {map[string]state{"Node": good, "XdpProgram": good, "TcProgram": {true, missing}}, http.StatusOK, []string{"TcPrograms can't be read"}},
		"no kind can be read":               {map[string]state{"Node": good, "XdpProgram": {err: forbidden}, "TcProgram": {err: missing}}, http.StatusServiceUnavailable, []string{"XdpPrograms", "TcPrograms"}},
		"no kind can be read anymore":       {map[string]state{"Node": good, "XdpProgram": {true, forbidden}}, http.StatusServiceUnavailable, []string{"XdpPrograms"}},
		"the node can't be read":            {map[string]state{"Node": {err: forbidden}, "XdpProgram": good}, http.StatusServiceUnavailable, []string{"Nodes can't be read"}},
		"the API server can't be reached":   {map[string]state{"Node": good, "XdpProgram": {true, errors.New("connection refused")}}, http.StatusOK, []string{"ok"}},
		"etcd fails":                        {map[string]state{"Node": {true, etcd}, "XdpProgram": {true, etcd}}, http.StatusOK, []string{"ok"}},
		"tokens can't be checked":           {map[string]state{"Node": {true, apierrors.NewUnauthorized("")}, "XdpProgram": {true, apierrors.NewUnauthorized("")}}, http.StatusOK, []string{"ok"}},
		"a watch has to begin anew, as any": {map[string]state{"Node": good, "XdpProgram": {true, apierrors.NewResourceExpired("too old")}}, http.StatusOK, []string{"ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &Kinds{Log: logr.Discard()}
			for kind, s := range test.kinds {
				gvk := v1alpha1.SchemeGroupVersion.WithKind(kind)
				if kind == "Node" {
					gvk = corev1.SchemeGroupVersion.WithKind(kind)
				}
				k.SetListed(gvk, func() bool { return s.synced })
				k.note(gvk, s.err)
			}
			answer := httptest.NewRecorder()
			k.Probes().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
			if answer.Code != test.code {
				t.Errorf("status %d, want %d", answer.Code, test.code)
			}
			for _, words := range test.says {
				if !strings.Contains(answer.Body.String(), words) {
					t.Errorf("it says %q, not %q", answer.Body, words)
				}
			}
		})
	}
}

func TestAKindThatCanBeReadAgain(t *testing.T) {
	k := &Kinds{Log: logr.Discard()}
	gvk := v1alpha1.SchemeGroupVersion.WithKind("XdpProgram")
	k.SetListed(gvk, func() bool { return true })
	k.note(gvk, apierrors.NewNotFound(schema.GroupResource{Resource: "xdpprograms"}, ""))
	if problems, ready := k.State(); ready || len(problems) != 1 {
		t.Errorf("%v, %v", problems, ready)
	}
	k.note(gvk, nil)
	if problems, ready := k.State(); !ready || len(problems) != 0 {
		t.Errorf("%v, %v", problems, ready)
	}
}

// An API server before Kubernetes 1.32 refuses to send a watch's initial events. client-go lists then.
func TestAnAPIServerWithoutWatchList(t *testing.T) {
	gvk := v1alpha1.SchemeGroupVersion.WithKind("XdpProgram")
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	for _, initial := range []*bool{new(true), nil} {
		k := &Kinds{Log: logr.Discard()}
		k.SetListed(gvk, func() bool { return true })
		w := k.Watch(gvk, &toolscache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused }})
		if _, err := w.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: initial}); !apierrors.IsInvalid(err) {
			t.Errorf("error %v", err)
		}
		if problems, _ := k.State(); (len(problems) == 0) != (initial != nil) {
			t.Errorf("initial events: %v, problems %q", initial != nil, problems)
		}
	}
}

func TestNothingIsReadyThatIsHeldUp(t *testing.T) {
	reason := errors.New("other definitions are there")
	k := &Kinds{Held: func() error { return reason }}
	if problems, ready := k.State(); ready || !slices.Equal(problems, []string{reason.Error()}) {
		t.Errorf("held up: %v, %q", ready, problems)
	}
	reason = nil
	if problems, ready := k.State(); !ready || len(problems) > 0 {
		t.Errorf("no longer: %v, %q", ready, problems)
	}
}
