// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// tokenLife is how long an address can be used to open the page.
const tokenLife = 10 * time.Minute

// sessions are the pages that may read the cluster through the server. The address of a page has a token that works
// once. The page exchanges it for a key, which it sends in the header Authorization of each request, and keeps for its
// tab alone. A cookie would also be sent to the servers of other users at other ports of this host.
type sessions struct {
	mu     sync.Mutex
	tokens map[string]time.Time // when they expire
	keys   []string
}

func newSessions() *sessions { return &sessions{tokens: map[string]time.Time{}} }

// token returns a new token.
func (s *sessions) token(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := rand.Text()
	s.tokens[token] = now.Add(tokenLife)
	return token
}

// exchange returns a key for a token, once.
func (s *sessions) exchange(token string, now time.Time) (key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expires, known := s.tokens[token]
	delete(s.tokens, token)
	if !known || now.After(expires) {
		return "", false
	}
	key = rand.Text()
	s.keys = append(s.keys, key)
	return key, true
}

// allows reports whether a request has a key.
func (s *sessions) allows(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && slices.ContainsFunc(s.keys, func(key string) bool { return subtle.ConstantTimeCompare([]byte(key), []byte(given)) == 1 })
}

// local reports whether a request names this host. A page of another site that resolves its own name to this host
// (DNS rebinding) names that site.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return host == "127.0.0.1" || host == "localhost" || host == "::1"
}

// policy is the Content-Security-Policy: everything comes from the server itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard checks the Host of requests, and adds headers to responses. Requests below /api/ need a key.
func (s *sessions) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		origin := r.Header.Get("Origin")
		switch {
		case !local(r):
			http.Error(w, "this page is only served at 127.0.0.1", http.StatusMisdirectedRequest)
		case origin != "" && origin != "http://"+r.Host:
			http.Error(w, "requests of other sites are refused", http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/api/") && !s.allows(r):
			http.Error(w, "the session has ended: open the address that kubectl bpfman ui prints", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
