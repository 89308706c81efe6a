// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// apiServer knows the tokens "reader" and "stranger", lets the reader get /metrics, and
// fails at "broken".
func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.URL.Path {
		case "/apis/authentication.k8s.io/v1/tokenreviews":
			var review authenticationv1.TokenReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			token := review.Spec.Token
			if token == "broken" {
				http.Error(w, "etcd is gone", http.StatusInternalServerError)
				return
			}
			review.Status.Authenticated = token == "reader" || token == "stranger"
			review.Status.User = authenticationv1.UserInfo{
				Username: token, UID: "uid", Groups: []string{"monitoring"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"prometheus"}},
			}
			answer = review
		case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			spec := review.Spec
			review.Status.Allowed = spec.User == "reader" && spec.UID == "uid" && strings.Join(spec.Groups, ",") == "monitoring" &&
				strings.Join(spec.Extra["pod"], ",") == "prometheus" && spec.ResourceAttributes == nil &&
				*spec.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
			answer = review
		default:
			t.Errorf("%s %s is not to be asked for", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestWhoMayScrape(t *testing.T) {
	var log bytes.Buffer
	filter, err := NewFilter(&rest.Config{Host: apiServer(t).URL}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(filter.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := io.WriteString(w, "figures"); err != nil {
			t.Error(err)
		}
	})))
	if server.TLS, err = TLS(); err != nil {
		t.Fatal(err)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for name, test := range map[string]struct {
		method, path, authorization string
		status                      int
	}{
		"reader":             {http.MethodGet, "/metrics", "Bearer reader", http.StatusOK},
		"stranger":           {http.MethodGet, "/metrics", "Bearer stranger", http.StatusForbidden},
		"reader elsewhere":   {http.MethodGet, "/other", "Bearer reader", http.StatusForbidden},
		"reader who posts":   {http.MethodPost, "/metrics", "Bearer reader", http.StatusForbidden},
		"unknown":            {http.MethodGet, "/metrics", "Bearer unknown", http.StatusUnauthorized},
		"no token":           {http.MethodGet, "/metrics", "", http.StatusUnauthorized},
		"empty token":        {http.MethodGet, "/metrics", "Bearer ", http.StatusUnauthorized},
		"name and password":  {http.MethodGet, "/metrics", "Basic cmVhZGVyOg==", http.StatusUnauthorized},
		"API server failing": {http.MethodGet, "/metrics", "Bearer broken", http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", test.authorization)
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.status || (string(body) == "figures") != (test.status == http.StatusOK) {
				t.Errorf("%d %q, %v; want %d", response.StatusCode, body, err, test.status)
			}
		})
	}
	if !strings.Contains(log.String(), "review a token") || strings.Contains(log.String(), "broken") {
		t.Errorf("log: %s", &log)
	}
	plain, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(server.URL, "https", "http", 1)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	plain.Header.Set("Authorization", "Bearer reader")
	response, err := client.Do(plain)
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Error("served without TLS")
		}
	}
}
