// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/restclient"
)

const (
	// verb is the verb that a pod's ServiceAccount needs on the user object.
	verb          = "use"
	reviewTimeout = 5 * time.Second
)

// RBAC allows a use of a cluster-scoped program if the pod's ServiceAccount has the verb
// "use" on the user object. The API server decides.
type RBAC struct {
	reviews rest.Interface
}

// NewRBAC returns the policy for the cluster in config.
func NewRBAC(config *rest.Config) (*RBAC, error) {
	config = rest.CopyConfig(config)
	config.Timeout = reviewTimeout
	client, err := restclient.New(config, authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &RBAC{reviews: client}, nil
}

// Check implements [Policy].
func (r *RBAC) Check(ctx context.Context, use Use) error {
	pod, program := use.Pod, use.Program
	if program.Namespace != "" {
		return nil
	}
	if program.Kind == "" {
		return fmt.Errorf("%w: program %q was loaded without an object on which a permission can be granted", ErrDenied, program.Name)
	}
	if pod.ServiceAccount == "" {
		return errors.New("the kubelet specified no ServiceAccount")
	}
	serviceAccounts := "system:serviceaccounts"
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.ServiceAccount),
		Groups: []string{serviceAccounts, serviceAccounts + ":" + pod.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: v1alpha1.SchemeGroupVersion.Group, Resource: resourceOf(program.Kind), Name: program.Name,
		},
	}}
	err := r.reviews.Post().Resource("subjectaccessreviews").Body(review).Do(ctx).Into(review)
	if err != nil {
		return fmt.Errorf("review the access of ServiceAccount %s/%s: %w", pod.Namespace, pod.ServiceAccount, err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%w: ServiceAccount %s/%s needs the verb %q on %s.%s %q",
			ErrDenied, pod.Namespace, pod.ServiceAccount, verb, resourceOf(program.Kind), v1alpha1.SchemeGroupVersion.Group, program.Name)
	}
	return nil
}

// resourceOf returns the resource of a kind of the API. All of these kinds have regular
// plurals.
func resourceOf(kind string) string { return strings.ToLower(kind) + "s" }
