// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package scrape decides who may read the agent's metrics.
package scrape

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// How long a decision holds, and how long the API server may take for one.
const (
	validity = time.Minute
	deadline = 10 * time.Second
)

// Authorized lets those read who bear a token that the API server knows and
// that may get the path. It does what controller-runtime's filter does, whose
// use of the API server's own libraries would add a sixth to the agent's memory
// on every node.
func Authorized(config *rest.Config, httpClient *http.Client) (server.Filter, error) {
	tokens, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make client for token reviews: %w", err)
	}
	access, err := authorizationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make client for access reviews: %w", err)
	}
	api := reviewers{tokens.TokenReviews(), access.SubjectAccessReviews()}
	decisions := &decisions{until: map[decision]time.Time{}}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok || token == "" {
				http.Error(w, "a bearer token is required", http.StatusUnauthorized)
				return
			}
			d := decision{token, r.URL.Path, strings.ToLower(r.Method)}
			if !decisions.hold(d) {
				ctx, cancel := context.WithTimeout(r.Context(), deadline)
				defer cancel()
				status, err := api.ask(ctx, d)
				if err != nil {
					log.Error(err, "Could not decide who may read", "path", d.path)
				}
				if status != http.StatusOK {
					http.Error(w, http.StatusText(status), status)
					return
				}
				decisions.keep(d)
			}
			next.ServeHTTP(w, r)
		}), nil
	}, nil
}

type decision struct{ token, path, verb string }

// reviewers are the API server's.
type reviewers struct {
	tokens authenticationclient.TokenReviewInterface
	access authorizationclient.SubjectAccessReviewInterface
}

// ask has the API server decide; anything but OK refuses.
func (r reviewers) ask(ctx context.Context, d decision) (int, error) {
	review, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: d.token}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review a token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	access, err := r.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: d.path, Verb: d.verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

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
