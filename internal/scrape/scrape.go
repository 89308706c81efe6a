// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package scrape decides who can read the metrics of the components that run on every
// node. controller-runtime has a filter that does the same, but it uses the API server's
// libraries, which increase the memory use of the agent and the CSI plugin by a sixth.
package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/internal/restclient"
)

// validity is how long a decision is cached. deadline bounds the requests to the API
// server for one decision.
const (
	validity = time.Minute
	deadline = 10 * time.Second
)

// Filter admits requests with a token that the API server recognizes, from users who can
// get the path.
type Filter struct {
	tokens, access rest.Interface
	decisions      decisions
}

// NewFilter returns a filter that uses the API server in config.
func NewFilter(config *rest.Config) (*Filter, error) {
	tokens, err := restclient.New(config, authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	access, err := restclient.New(config, authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Filter{tokens: tokens, access: access, decisions: decisions{until: map[decision]time.Time{}}}, nil
}

// Protect returns a handler that passes requests to next if the filter admits them.
func (f *Filter) Protect(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
			return
		}
		d := decision{token, r.URL.Path, strings.ToLower(r.Method)}
		if !f.decisions.hold(d) {
			ctx, cancel := context.WithTimeout(r.Context(), deadline)
			defer cancel()
			status, err := f.ask(ctx, d)
			if err != nil {
				log.Error("Failed to authorize the request", "path", d.path, "error", err)
			}
			if status != http.StatusOK {
				http.Error(w, http.StatusText(status), status)
				return
			}
			f.decisions.keep(d)
		}
		next.ServeHTTP(w, r)
	})
}

// ask gets the decision from the API server. It returns an HTTP status; any other status
// than OK denies access.
func (f *Filter) ask(ctx context.Context, d decision) (int, error) {
	identity := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: d.token}}
	if err := f.tokens.Post().Resource("tokenreviews").Body(identity).Do(ctx).Into(identity); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review a token: %w", err)
	}
	if !identity.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := identity.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: d.path, Verb: d.verb},
	}}
	if err := f.access.Post().Resource("subjectaccessreviews").Body(access).Do(ctx).Into(access); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

type decision struct{ token, path, verb string }

// decisions caches who was admitted, so that not every scrape causes requests to the API
// server.
type decisions struct {
	mu    sync.Mutex
	until map[decision]time.Time
}

func (s *decisions) hold(d decision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[d])
}

func (s *decisions) keep(d decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for old, until := range s.until {
		if now.After(until) {
			delete(s.until, old)
		}
	}
	s.until[d] = now.Add(validity)
}
