// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package scrape decides who may read the metrics of what runs on every node.
// It is here because agent and CSI plugin both need it: controller-runtime's
// filter does the same with the API server's own libraries, which would add a
// sixth to their memory.
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// How long a decision holds, and how long the API server may take for one.
const (
	validity = time.Minute
	deadline = 10 * time.Second
)

// Filter lets those read who bear a token that the API server knows and that
// may get the path.
type Filter struct {
	tokens, access rest.Interface
	decisions      decisions
}

// NewFilter returns a filter that asks the API server that config leads to. A
// nil httpClient means one made for config.
func NewFilter(config *rest.Config, httpClient *http.Client) (*Filter, error) {
	if httpClient == nil {
		var err error
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("create API client: %w", err)
		}
	}
	tokens, err := clientOf(config, httpClient, authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("create client for token reviews: %w", err)
	}
	access, err := clientOf(config, httpClient, authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("create client for access reviews: %w", err)
	}
	return &Filter{tokens: tokens, access: access, decisions: decisions{until: map[decision]time.Time{}}}, nil
}

// clientOf is one of an API group alone: a whole clientset would take memory.
func clientOf(config *rest.Config, httpClient *http.Client, group schema.GroupVersion, add func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, httpClient)
}

// Protect returns next behind the filter.
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

// ask has the API server decide; anything but OK refuses.
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

// decisions remembers who was let in, so that the API server isn't asked at
// each scrape.
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
