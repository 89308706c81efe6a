// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	endpoints "k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// reviews answers SubjectAccessReviews, by [Server.Access]. They aren't stored.
type reviews struct{}

var _ rest.Creater = reviews{}

func (reviews) New() runtime.Object { return &authorizationv1.SubjectAccessReview{} }
func (reviews) Destroy()            {}

// Create answers a review.
func (reviews) Create(ctx context.Context, o runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review, ok := o.(*authorizationv1.SubjectAccessReview)
	if !ok {
		panic("the handler decodes what New returns")
	}
	access := callerOf(ctx).server.Access
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: access == nil || access(review.Spec)}
	return review, nil
}

var reviewResource = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")

func (h *handlers) addReviews(typed managedfields.TypeConverter) error {
	h.served = append(h.served, served{GroupVersion: reviewResource.GroupVersion(), APIResource: metav1.APIResource{
		Name: reviewResource.Resource, SingularName: "subjectaccessreview", Kind: "SubjectAccessReview", Verbs: metav1.Verbs{"create"},
	}})
	scope, err := scopeOf(typed, reviewResource, authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), kind{clusterScoped: true}, "")
	if err != nil {
		return err
	}
	h.reviews = func(w http.ResponseWriter, q *http.Request) {
		if info, _ := request.RequestInfoFrom(q.Context()); info.Verb != "create" || info.Subresource != "" {
			refuse(w, q, http.StatusMethodNotAllowed)
			return
		}
		endpoints.CreateResource(reviews{}, scope, admitting{})(w, q)
	}
	return nil
}
