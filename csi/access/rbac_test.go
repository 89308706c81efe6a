// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package access

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/csi/program"
)

// apiServer allows one ServiceAccount to use one program, and counts reviews.
type apiServer struct {
	t       *testing.T
	reviews int
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	a.reviews++
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		a.t.Error(err)
	}
	if request.Method != http.MethodPost || request.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
		a.t.Errorf("%s %s", request.Method, request.URL.Path)
	}
	want := authorizationv1.ResourceAttributes{Verb: "use", Group: "bpfman.io", Resource: "tcxprograms", Name: "counter"}
	review.Status.Allowed = review.Spec.User == "system:serviceaccount:team:reader" &&
		slices.Contains(review.Spec.Groups, "system:serviceaccounts:team") && *review.Spec.ResourceAttributes == want
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(review); err != nil {
		a.t.Error(err)
	}
}

func TestRBAC(t *testing.T) {
	reader := Pod{Namespace: "team", Name: "pod", ServiceAccount: "reader"}
	counter := program.Program{Name: "counter", Kind: "TcxProgram"}
	tests := map[string]struct {
		pod     Pod
		program program.Program
		denied  string
		reviews int
	}{
		"allowed":                  {pod: reader, program: counter, reviews: 1},
		"another ServiceAccount":   {pod: Pod{Namespace: "team", ServiceAccount: "default"}, program: counter, reviews: 1, denied: `team/default needs the verb "use" on tcxprograms.bpfman.io "counter"`},
		"another namespace":        {pod: Pod{Namespace: "other", ServiceAccount: "reader"}, program: counter, reviews: 1, denied: "other/reader"},
		"another program":          {pod: reader, program: program.Program{Name: "secret", Kind: "TcxProgram"}, reviews: 1, denied: `"secret"`},
		"another kind":             {pod: reader, program: program.Program{Name: "counter", Kind: "BpfApplication"}, reviews: 1, denied: "bpfapplications"},
		"program of the namespace": {pod: reader, program: program.Program{Name: "own", Namespace: "team", Kind: "TcxNsProgram"}},
		"loaded by hand":           {pod: reader, program: program.Program{Name: "counter"}, denied: "without an object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			api := &apiServer{t: t}
			server := httptest.NewServer(api)
			defer server.Close()
			policy, err := NewRBAC(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			err = policy.Check(t.Context(), Use{Pod: test.pod, Program: test.program})
			if test.denied == "" && err != nil {
				t.Errorf("Check: %v", err)
			}
			if test.denied != "" && (!errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), test.denied)) {
				t.Errorf("Check: %v, want a denial that says %q", err, test.denied)
			}
			if api.reviews != test.reviews {
				t.Errorf("%d reviews, want %d", api.reviews, test.reviews)
			}
		})
	}
}

func TestRBACWithoutTheAPIServer(t *testing.T) {
	policy, err := NewRBAC(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	err = policy.Check(t.Context(), Use{Pod: Pod{Namespace: "team", ServiceAccount: "reader"}, Program: program.Program{Name: "counter", Kind: "TcxProgram"}})
	if err == nil || errors.Is(err, ErrDenied) {
		t.Errorf("Check: %v, want an error that is no denial", err)
	}
}

// TestRead allows every pod to read, and checks the permission of pods that want to
// write.
func TestRead(t *testing.T) {
	reader, other := Pod{Namespace: "team", ServiceAccount: "reader"}, Pod{Namespace: "other", ServiceAccount: "default"}
	counter := program.Program{Name: "counter", Kind: "TcxProgram"}
	own, byHand := program.Program{Name: "own", Namespace: "other", Kind: "TcxNsProgram"}, program.Program{Name: "counter"}
	for name, test := range map[string]struct {
		use     Use
		denied  string
		reviews int
	}{
		"reads":                           {use: Use{other, counter, true}},
		"reads what was loaded by hand":   {use: Use{other, byHand, true}},
		"writes with the right":           {use: Use{reader, counter, false}, reviews: 1},
		"writes without":                  {use: Use{other, counter, false}, reviews: 1, denied: `write access: not allowed: ServiceAccount other/default needs the verb "use" on tcxprograms.bpfman.io "counter"`},
		"writes what was loaded by hand":  {use: Use{other, byHand, false}, denied: "without an object"},
		"writes to its namespace's own":   {use: Use{other, own, false}},
		"reads what its namespace's is":   {use: Use{other, own, true}},
		"writes without a ServiceAccount": {use: Use{Pod{Namespace: "team"}, own, false}},
	} {
		t.Run(name, func(t *testing.T) {
			api := &apiServer{t: t}
			server := httptest.NewServer(api)
			defer server.Close()
			writers, err := NewRBAC(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			err = Read{writers}.Check(t.Context(), test.use)
			if test.denied == "" && err != nil {
				t.Errorf("Check: %v", err)
			}
			if test.denied != "" && (!errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), test.denied)) {
				t.Errorf("Check: %v, want a denial that says %q", err, test.denied)
			}
			if api.reviews != test.reviews {
				t.Errorf("%d reviews, want %d", api.reviews, test.reviews)
			}
		})
	}
}
