// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package scrape serves metrics over TLS to those whom the cluster's RBAC lets
// get them.
package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// reviewTimeout bounds both questions to the API server.
const reviewTimeout = 10 * time.Second

// Filter lets those through who bear a token that the API server knows, and who
// may do what they ask for.
type Filter struct {
	tokens, access rest.Interface
	log            *slog.Logger
}

// NewFilter returns a filter that asks the API server that config leads to.
func NewFilter(config *rest.Config, log *slog.Logger) (*Filter, error) {
	tokens, err := client(config, authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("client for token reviews: %w", err)
	}
	access, err := client(config, authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("client for access reviews: %w", err)
	}
	return &Filter{tokens: tokens, access: access, log: log}, nil
}

// client is one of an API group alone: a whole clientset would take memory.
func client(config *rest.Config, group schema.GroupVersion, add func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.Timeout = reviewTimeout
	return rest.RESTClientFor(config)
}

// Protect returns next behind the filter.
func (f *Filter) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := f.decide(r)
		if err != nil {
			f.log.Error("who scrapes was not reviewed", "path", r.URL.Path, "error", err)
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// decide has the API server decide; anything but OK refuses.
func (f *Filter) decide(r *http.Request) (int, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return http.StatusUnauthorized, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	identity := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := f.tokens.Post().Resource("tokenreviews").Body(identity).Do(ctx).Into(identity); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review a token: %w", err)
	}
	if !identity.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := identity.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
	}}
	if err := f.access.Post().Resource("subjectaccessreviews").Body(review).Do(ctx).Into(review); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review the access of %s: %w", user.Username, err)
	}
	if !review.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
