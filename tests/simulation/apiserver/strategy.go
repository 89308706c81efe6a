// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"reflect"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
func (s strategy) PrepareForCreate(ctx context.Context, o runtime.Object) {
	if s.shape == generated {
		generationOf(o, 1)
		part(o, "Status").SetZero()
	}
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
		admitPod(&o.Spec)
	case *appsv1.DaemonSet:
		countTemplate(o, 1)
	case *corev1.Namespace:
		o.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	case *corev1.Node: // an admission plugin
		o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	case *discoveryv1.EndpointSlice:
		o.Generation = 1
	case *coordinationv1.Lease:
		if callerOf(ctx).server.WithoutLeaseManagers {
			o.ManagedFields = nil
		}
	}
}

// PrepareForUpdate implements [rest.RESTUpdateStrategy].
func (s strategy) PrepareForUpdate(_ context.Context, o, old runtime.Object) {
	if is, ok := o.(*discoveryv1.EndpointSlice); ok {
		countSlice(is, old.(*discoveryv1.EndpointSlice)) //nolint:errcheck,forcetypeassert // it has the same type
	}
	if s.shape == plain {
		return
	}
	part(o, "Status").Set(part(old, "Status"))
	if is, ok := o.(*appsv1.DaemonSet); ok {
		was := old.(*appsv1.DaemonSet) //nolint:errcheck,forcetypeassert // it has the same type
		count, _ := strconv.Atoi(was.Annotations[appsv1.DeprecatedTemplateGeneration])
		if !equality.Semantic.DeepEqual(is.Spec.Template, was.Spec.Template) {
			count++
		}
		countTemplate(is, count)
	}
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

// countTemplate sets the annotation for the generation of a DaemonSet's template.
func countTemplate(o *appsv1.DaemonSet, count int) {
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.Itoa(count)
}

// admitPod is what admission plugins that are on by default add to a pod.
func admitPod(spec *corev1.PodSpec) {
	if spec.PriorityClassName == "" {
		setPointer(&spec.Priority, 0)
		setPointer(&spec.PreemptionPolicy, corev1.PreemptLowerPriority)
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerated {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))})
		}
	}
}

// countSlice sets the generation of an EndpointSlice, which counts changes of all but the metadata.
func countSlice(is, was *discoveryv1.EndpointSlice) {
	is.Generation = was.Generation
	if !equality.Semantic.DeepEqual(is.Endpoints, was.Endpoints) || !equality.Semantic.DeepEqual(is.Ports, was.Ports) {
		is.Generation++
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

// ValidateUpdate implements [rest.RESTUpdateStrategy]. [rest.ValidateUpdate] has compared the metadata.
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
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
