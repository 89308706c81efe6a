// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// shape is how the API server treats the parts of a kind.
type shape int

const (
	// plain kinds have no status of their own.
	plain shape = iota
	// specAndStatus kinds have a status, which only the subresource changes.
	specAndStatus
	// generated kinds also have a generation, which a change of the spec increments.
	generated
)

// strategy is what the API server does with an object of Kubernetes before it is stored. kube-apiserver's strategies and
// validation can't be imported: this validates only metadata.
type strategy struct {
	runtime.ObjectTyper
	kind
	gvk schema.GroupVersionKind
}

var (
	_ rest.RESTCreateStrategy = strategy{}
	_ rest.RESTUpdateStrategy = strategy{}
)

func (strategy) GenerateName(base string) string                 { return names.SimpleNameGenerator.GenerateName(base) }
func (s strategy) NamespaceScoped() bool                         { return !s.clusterScoped }
func (s strategy) AllowCreateOnUpdate(context.Context) bool      { return s.createOnUpdate }
func (s strategy) AllowUnconditionalUpdate(context.Context) bool { return s.gvk.Kind != "Lease" }
func (strategy) Canonicalize(runtime.Object)                     {}

func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// PrepareForCreate implements [rest.RESTCreateStrategy].
func (s strategy) PrepareForCreate(_ context.Context, o runtime.Object) {
	if s.shape == generated {
		generationOf(o, 1)
		part(o, "Status").SetZero()
	}
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	case *corev1.Namespace:
		o.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	}
}

// PrepareForUpdate implements [rest.RESTUpdateStrategy].
func (s strategy) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	if s.shape == plain {
		return
	}
	part(o, "Status").Set(part(old, "Status"))
	if _, ok := o.(*corev1.Namespace); ok {
		part(o, "Spec").Set(part(old, "Spec")) // only finalizers, which have their own subresource
	}
	if s.shape == generated && !equality.Semantic.DeepEqual(part(o, "Spec").Interface(), part(old, "Spec").Interface()) {
		m, err := meta.Accessor(old)
		if err != nil {
			panic(err) // it is an object
		}
		generationOf(o, m.GetGeneration()+1)
	}
}

func generationOf(o runtime.Object, generation int64) {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err) // it is an object
	}
	m.SetGeneration(generation)
}

// part is the field Spec or Status of an object.
func part(o runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(o).Elem().FieldByName(name)
}

// Validate implements [rest.RESTCreateStrategy].
func (s strategy) Validate(_ context.Context, o runtime.Object) field.ErrorList {
	m, err := meta.Accessor(o)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
	}
	valid := apivalidation.NameIsDNSSubdomain
	switch s.gvk.Kind {
	case "Namespace":
		valid = apivalidation.ValidateNamespaceName
	case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return nil // validatePathSegment of the handlers is enough
	}
	return apivalidation.ValidateObjectMetaAccessor(m, !s.clusterScoped, valid, field.NewPath("metadata"))
}

// ValidateUpdate implements [rest.RESTUpdateStrategy].
func (s strategy) ValidateUpdate(_ context.Context, o, old runtime.Object) field.ErrorList {
	is, err := meta.Accessor(o)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
	}
	was, err := meta.Accessor(old)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("metadata"), err)}
	}
	return apivalidation.ValidateObjectMetaAccessorUpdate(is, was, field.NewPath("metadata"))
}

// statusStrategy updates only the status.
type statusStrategy struct{ strategy }

// PrepareForUpdate implements [rest.RESTUpdateStrategy].
func (statusStrategy) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	part(o, "Spec").Set(part(old, "Spec"))
}

func (statusStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// podDeletion deletes pods gracefully: the kubelet of a pod's node deletes it for good, with a grace period of 0.
type podDeletion struct{ strategy }

func deleteStrategy(s strategy) rest.RESTDeleteStrategy {
	if _, ok := s.object.(*corev1.Pod); ok {
		return podDeletion{s}
	}
	return s
}

// CheckGracefulDelete implements [rest.RESTGracefulDeleteStrategy].
func (podDeletion) CheckGracefulDelete(_ context.Context, o runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return false
	}
	period := int64(0)
	switch {
	case options.GracePeriodSeconds != nil:
		period = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		period = 0
	}
	options.GracePeriodSeconds = &period
	return true
}

// reset returns the fields that a request to a subresource doesn't set, and so doesn't own.
func (k kind) reset(gvk schema.GroupVersionKind, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	ignored := "status"
	switch {
	case k.shape == plain:
		return nil
	case subresource == "status":
		ignored = "spec"
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{
		fieldpath.APIVersion(gvk.GroupVersion().String()): fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie(ignored))),
	}
}
