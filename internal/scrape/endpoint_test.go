// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package scrape

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestEndpoint(t *testing.T) {
	denied := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	unready := errors.New("no kubelet")
	for _, c := range []struct {
		path  string
		ready error
		code  int
		body  string
	}{
		{"/metrics", nil, http.StatusForbidden, ""},
		{"/healthz", unready, http.StatusOK, "ok\n"},
		{"/readyz", nil, http.StatusOK, "ok\n"},
		{"/readyz", unready, http.StatusServiceUnavailable, "no kubelet\n"},
		{"/debug/pprof/", nil, http.StatusNotFound, "404 page not found\n"},
	} {
		response := httptest.NewRecorder()
		Endpoint(denied, func() error { return c.ready }).ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
		if response.Code != c.code || response.Body.String() != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.path, response.Code, response.Body, c.code, c.body)
		}
	}
}
