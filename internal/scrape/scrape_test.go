// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The tokens that the test's API server recognizes.
const (
	reader   = "reader-token"   // of a user who can get /metrics
	stranger = "stranger-token" // of a user who can't
)

// apiServer reviews tokens and access. It fails for a path that was broken.
type apiServer struct {
	t *testing.T

	mu     sync.Mutex
	asked  map[string]int // by the last element of the path
	broken string
}

func (s *apiServer) reviews(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[resource]
}

func (s *apiServer) breakDown(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = resource
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	s.asked[resource]++
	broken := s.broken == resource
	s.mu.Unlock()
	if broken {
		http.Error(w, "etcd is gone", http.StatusInternalServerError)
		return
	}
	var answer any
	switch resource {
	case "tokenreviews":
		answer = s.reviewToken(r)
	case "subjectaccessreviews":
		answer = s.reviewAccess(r)
	default:
		s.t.Errorf("%s %s is not to be asked for", r.Method, r.URL)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

// read decodes a request in any of the API's encodings.
func (s *apiServer) read(r *http.Request, into runtime.Object) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	}
	if err != nil {
		s.t.Error(err)
	}
}

func (s *apiServer) reviewToken(r *http.Request) *authenticationv1.TokenReview {
	var review authenticationv1.TokenReview
	s.read(r, &review)
	user, known := strings.CutSuffix(review.Spec.Token, "-token")
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: known && (user == "reader" || user == "stranger")}
	review.Status.User = authenticationv1.UserInfo{
		Username: user, UID: user + "-uid", Groups: []string{"monitoring"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"prometheus"}},
	}
	return &review
}

// reviewAccess only allows the expected review.
func (s *apiServer) reviewAccess(r *http.Request) *authorizationv1.SubjectAccessReview {
	var review authorizationv1.SubjectAccessReview
	s.read(r, &review)
	spec := review.Spec
	review.Status.Allowed = spec.User == "reader" && spec.UID == "reader-uid" && strings.Join(spec.Groups, ",") == "monitoring" &&
		strings.Join(spec.Extra["pod"], ",") == "prometheus" && spec.ResourceAttributes == nil &&
		spec.NonResourceAttributes != nil && spec.NonResourceAttributes.Path == "/metrics" && spec.NonResourceAttributes.Verb == "get"
	return &review
}

// protect serves "secret figures" with the filter.
func protect(t *testing.T, log io.Writer) (*apiServer, http.Handler) {
	t.Helper()
	api := &apiServer{t: t, asked: map[string]int{}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	filter, err := NewFilter(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	handler := filter.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte("secret figures")); err != nil {
			t.Error(err)
		}
	}), slog.New(slog.NewTextHandler(log, nil)))
	return api, handler
}

// get requests a path with an Authorization header.
func get(t *testing.T, handler http.Handler, method, path, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

func TestWhoMayRead(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, authorization, broken string
		want                                int
	}{
		"reader":                  {http.MethodGet, "/metrics", "Bearer " + reader, "", http.StatusOK},
		"stranger":                {http.MethodGet, "/metrics", "Bearer " + stranger, "", http.StatusForbidden},
		"unknown token":           {http.MethodGet, "/metrics", "Bearer made-up", "", http.StatusUnauthorized},
		"no token":                {http.MethodGet, "/metrics", "", "", http.StatusUnauthorized},
		"empty token":             {http.MethodGet, "/metrics", "Bearer ", "", http.StatusUnauthorized},
		"token without scheme":    {http.MethodGet, "/metrics", reader, "", http.StatusUnauthorized},
		"password":                {http.MethodGet, "/metrics", "Basic " + reader, "", http.StatusUnauthorized},
		"another path":            {http.MethodGet, "/metrics/more", "Bearer " + reader, "", http.StatusForbidden},
		"another verb":            {http.MethodPost, "/metrics", "Bearer " + reader, "", http.StatusForbidden},
		"token review fails":      {http.MethodGet, "/metrics", "Bearer " + reader, "tokenreviews", http.StatusInternalServerError},
		"access review fails":     {http.MethodGet, "/metrics", "Bearer " + reader, "subjectaccessreviews", http.StatusInternalServerError},
		"both fail for strangers": {http.MethodGet, "/metrics", "Bearer " + stranger, "tokenreviews", http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			var logged strings.Builder
			api, handler := protect(t, &logged)
			api.breakDown(c.broken)
			response := get(t, handler, c.method, c.path, c.authorization)
			if response.Code != c.want {
				t.Errorf("status %d, want %d", response.Code, c.want)
			}
			if served := response.Body.String() == "secret figures"; served != (c.want == http.StatusOK) {
				t.Errorf("body %q", response.Body)
			}
			if failed := strings.Contains(logged.String(), "Failed to authorize"); failed != (c.broken != "") {
				t.Errorf("logged %q", logged.String())
			}
			if text := logged.String() + response.Body.String(); strings.Contains(text, reader) || strings.Contains(response.Body.String(), "etcd") {
				t.Errorf("told too much: %q", text)
			}
		})
	}
}

// After access was granted, more requests for the same path are admitted for some time
// without a review. After access was denied, each request causes a review.
func TestDecisionsAreKept(t *testing.T) {
	api, handler := protect(t, io.Discard)
	for range 3 {
		if code := get(t, handler, http.MethodGet, "/metrics", "Bearer "+reader).Code; code != http.StatusOK {
			t.Fatalf("status %d", code)
		}
	}
	if tokens, access := api.reviews("tokenreviews"), api.reviews("subjectaccessreviews"); tokens != 1 || access != 1 {
		t.Errorf("%d token reviews and %d access reviews of one who may read", tokens, access)
	}
	for n := range 2 {
		if code := get(t, handler, http.MethodGet, "/debug", "Bearer "+reader).Code; code != http.StatusForbidden {
			t.Errorf("status %d of another path", code)
		}
		if code := get(t, handler, http.MethodPost, "/metrics", "Bearer "+reader).Code; code != http.StatusForbidden {
			t.Errorf("status %d of another verb", code)
		}
		if code := get(t, handler, http.MethodGet, "/metrics", "Bearer "+stranger).Code; code != http.StatusForbidden {
			t.Errorf("status %d of a stranger", code)
		}
		if want := 1 + 3*(n+1); api.reviews("subjectaccessreviews") != want {
			t.Errorf("%d access reviews, want %d", api.reviews("subjectaccessreviews"), want)
		}
	}
	// While the API server is down, cached decisions still admit requests.
	api.breakDown("tokenreviews")
	if code := get(t, handler, http.MethodGet, "/metrics", "Bearer "+reader).Code; code != http.StatusOK {
		t.Errorf("status %d without an API server", code)
	}
}

// A decision expires, and is then removed from memory.
func TestDecisionsEnd(t *testing.T) {
	s := &decisions{until: map[decision]time.Time{}}
	old, now := decision{token: "old"}, decision{token: "now"}
	s.until[old] = time.Now().Add(-time.Second)
	if s.hold(old) {
		t.Error("what has ended holds")
	}
	s.keep(now)
	if !s.hold(now) || s.hold(decision{token: "now", path: "/other"}) {
		t.Error("what was kept doesn't hold, or another does")
	}
	if len(s.until) != 1 {
		t.Errorf("remembered: %d decisions", len(s.until))
	}
}
