// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	endpoints "k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/applyconfigurations"
	clientgo "k8s.io/client-go/kubernetes/scheme"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// kind is a kind of Kubernetes that a server has.
type kind struct {
	object         runtime.Object
	list           runtime.Object
	clusterScoped  bool
	shape          shape
	createOnUpdate bool
	returned       bool // whether a deletion is answered with the object
}

// kinds are the kinds that the product, or the rest of a simulated cluster, reads or writes.
var kinds = []kind{
	{object: &corev1.Namespace{}, list: &corev1.NamespaceList{}, clusterScoped: true, shape: specAndStatus},
	{object: &corev1.Node{}, list: &corev1.NodeList{}, clusterScoped: true, shape: specAndStatus},
	{object: &corev1.Pod{}, list: &corev1.PodList{}, shape: generated, returned: true},
	{object: &corev1.ConfigMap{}, list: &corev1.ConfigMapList{}},
	{object: &corev1.Secret{}, list: &corev1.SecretList{}},
	{object: &corev1.ServiceAccount{}, list: &corev1.ServiceAccountList{}, returned: true},
	{object: &corev1.Event{}, list: &corev1.EventList{}, createOnUpdate: true},
	{object: &eventsv1.Event{}, list: &eventsv1.EventList{}, createOnUpdate: true},
	{object: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{}, shape: generated},
	{object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{}, shape: generated},
	{object: &appsv1.ControllerRevision{}, list: &appsv1.ControllerRevisionList{}},
	{object: &storagev1.CSIDriver{}, list: &storagev1.CSIDriverList{}, clusterScoped: true, returned: true},
	{object: &coordinationv1.Lease{}, list: &coordinationv1.LeaseList{}, createOnUpdate: true},
	{object: &discoveryv1.EndpointSlice{}, list: &discoveryv1.EndpointSliceList{}},
	{object: &rbacv1.Role{}, list: &rbacv1.RoleList{}, createOnUpdate: true},
	{object: &rbacv1.RoleBinding{}, list: &rbacv1.RoleBindingList{}, createOnUpdate: true},
	{object: &rbacv1.ClusterRole{}, list: &rbacv1.ClusterRoleList{}, clusterScoped: true, createOnUpdate: true},
	{object: &rbacv1.ClusterRoleBinding{}, list: &rbacv1.ClusterRoleBindingList{}, clusterScoped: true, createOnUpdate: true},
}

// scheme has the types of Kubernetes, with their defaults and the fields of their selectors.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	addDefaults(s)
	addSelectableFields(s)
	return s
}()

// typed also has the types of custom resources.
var typed = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgo.AddToScheme, v1alpha1.Install} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

var (
	codecs     = serializer.NewCodecFactory(scheme)
	parameters = runtime.NewParameterCodec(scheme)
)

// builtin serves a kind of Kubernetes.
type builtin struct {
	kind
	main, status       *registry.Store
	scope, statusScope *endpoints.RequestScope
}

// addBuiltins makes the handlers of kinds.
func (h *handlers) addBuiltins() error {
	converter := applyconfigurations.NewTypeConverter(scheme)
	if err := h.addReviews(converter); err != nil {
		return err
	}
	for _, k := range kinds {
		gvk := gvkOf(k.object)
		group := schema.GroupResource{Group: gvk.Group, Resource: pluralOf(gvk)}
		prefix := "/registry/" + group.Resource
		if group.Resource == "nodes" {
			prefix = "/registry/minions" // as in etcd
		}
		h.resources[group] = &resource{group: group, prefix: prefix, newObject: func() runtime.Object { return newOf(k.object) }}
		if group.Resource == "events" && group.Group != "" {
			h.resources[group].newStored, h.resources[group].toStored, h.resources[group].fromStored = func() runtime.Object { return &corev1.Event{} }, eventOfCore, eventOfEvents
		}
		b := &builtin{kind: k}
		if err := b.store(group, gvk, restOptions{h}); err != nil {
			return err
		}
		var err error
		if b.scope, err = scopeOf(converter, group.WithVersion(gvk.Version), gvk, k, ""); err != nil {
			return err
		}
		if b.statusScope, err = scopeOf(converter, group.WithVersion(gvk.Version), gvk, k, "status"); err != nil {
			return err
		}
		h.builtins[group] = b
		h.served = append(h.served, served{
			GroupVersion: gvk.GroupVersion(), status: k.shape != plain,
			APIResource: metav1.APIResource{
				Name: group.Resource, SingularName: strings.ToLower(gvk.Kind), Kind: gvk.Kind, Namespaced: !k.clusterScoped,
				Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
			},
		})
	}
	return nil
}

func newOf(o runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object) //nolint:errcheck,forcetypeassert // it has the type of o
}

// store makes the registries of the kind and of its status.
func (b *builtin) store(group schema.GroupResource, gvk schema.GroupVersionKind, options generic.RESTOptionsGetter) error {
	s := strategy{ObjectTyper: scheme, kind: b.kind, gvk: gvk}
	b.main = &registry.Store{
		NewFunc: func() runtime.Object { return newOf(b.object) }, NewListFunc: func() runtime.Object { return newOf(b.list) },
		DefaultQualifiedResource: group, SingularQualifiedResource: schema.GroupResource{Group: group.Group, Resource: strings.ToLower(gvk.Kind)},
		CreateStrategy: s, UpdateStrategy: s, DeleteStrategy: deleteStrategy(s), ReturnDeletedObject: b.returned, TableConvertor: rest.NewDefaultTableConvertor(group),
	}
	if err := b.main.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: attributes}); err != nil {
		return fmt.Errorf("store %s: %w", group, err)
	}
	status := *b.main
	status.UpdateStrategy = statusStrategy{s}
	b.status = &status
	return nil
}

func scopeOf(converter managedfields.TypeConverter, resource schema.GroupVersionResource, gvk schema.GroupVersionKind, k kind, subresource string) (*endpoints.RequestScope, error) {
	fields, err := managedfields.NewDefaultFieldManager(converter, scheme, scheme, scheme, gvk, gvk.GroupVersion(), subresource, k.reset(gvk, subresource))
	if err != nil {
		return nil, fmt.Errorf("manage the fields of %s: %w", gvk.Kind, err)
	}
	return &endpoints.RequestScope{
		Namer:      endpoints.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: k.clusterScoped},
		Serializer: codecs, ParameterCodec: parameters, Creater: scheme, Convertor: scheme, Defaulter: scheme, Typer: scheme, UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme),
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
		TableConvertor: rest.NewDefaultTableConvertor(resource.GroupResource()), FieldManager: fields, Resource: resource, Kind: gvk, Subresource: subresource,
		MetaGroupVersion: metav1.SchemeGroupVersion, HubGroupVersion: gvk.GroupVersion(), MaxRequestBodyBytes: maxBody,
	}, nil
}

var patchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)}

// ServeHTTP implements [http.Handler].
func (b *builtin) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	info, _ := request.RequestInfoFrom(q.Context())
	namespaced := info.Namespace != "" && info.Resource != "namespaces"
	everywhere := info.Verb == "list" || info.Verb == "watch"
	handler := b.handler(info)
	switch {
	case namespaced && b.clusterScoped, info.Subresource != "" && (info.Subresource != "status" || b.shape == plain):
		refuse(w, q, http.StatusNotFound)
	case handler == nil || !namespaced && !b.clusterScoped && !everywhere:
		refuse(w, q, http.StatusMethodNotAllowed)
	default:
		handler(w, q)
	}
}

// serveUnknown answers a request for a resource that doesn't exist.
func (h *handlers) serveUnknown(w http.ResponseWriter, q *http.Request) {
	info, _ := request.RequestInfoFrom(q.Context())
	for _, b := range h.builtins {
		if b.scope.Kind.GroupVersion() == (schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}) {
			refuse(w, q, http.StatusNotFound)
			return
		}
	}
	h.serveCustom(w, q) // it says so
}

// refuse answers like the router of kube-apiserver.
func refuse(w http.ResponseWriter, q *http.Request, code int) {
	err := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, true)
	err.ErrStatus.Details = &metav1.StatusDetails{}
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{}, w, q)
}

func (b *builtin) handler(info *request.RequestInfo) http.HandlerFunc {
	switch info.Subresource + " " + info.Verb {
	case " get":
		return endpoints.GetResource(b.main, b.scope)
	case " list", " watch":
		return endpoints.ListResource(b.main, b.main, b.scope, info.Verb == "watch", minWatchTimeout)
	case " create":
		return endpoints.CreateResource(b.main, b.scope, admitting{})
	case " update":
		return endpoints.UpdateResource(b.main, b.scope, admitting{})
	case " patch":
		return endpoints.PatchResource(b.main, b.scope, admitting{}, patchTypes)
	case " delete":
		return endpoints.DeleteResource(b.deleter(), true, b.scope, admitting{})
	case " deletecollection":
		return endpoints.DeleteCollection(b.main, true, b.scope, admitting{})
	}
	if b.shape == plain {
		return nil
	}
	switch info.Subresource + " " + info.Verb {
	case "status get":
		return endpoints.GetResource(b.main, b.statusScope)
	case "status update":
		return endpoints.UpdateResource(statusREST{b.status}, b.statusScope, admitting{})
	case "status patch":
		return endpoints.PatchResource(statusREST{b.status}, b.statusScope, admitting{}, patchTypes)
	default:
		return nil
	}
}

// statusREST is the storage of a status, which never creates an object.
type statusREST struct{ *registry.Store }

// Update implements [rest.Updater].
func (r statusREST) Update(ctx context.Context, name string, o rest.UpdatedObjectInfo, created rest.ValidateObjectFunc, updated rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(ctx, name, o, created, updated, false, options)
}

// internalize returns the resource of an object, and a copy of the object as it is stored.
func (h *handlers) internalize(o runtime.Object) (*resource, metav1.Object, error) {
	o = o.DeepCopyObject()
	gvk := o.GetObjectKind().GroupVersionKind()
	if gvk.Kind == "" {
		found, _, err := typed.ObjectKinds(o)
		if err != nil {
			return nil, nil, fmt.Errorf("set the kind of the object: %w", err)
		}
		gvk = found[0]
	}
	r := h.resources[schema.GroupResource{Group: gvk.Group, Resource: h.plural(gvk)}]
	if r == nil {
		return nil, nil, fmt.Errorf("there is no resource of %s", gvk)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, nil, fmt.Errorf("convert: %w", err)
	}
	stored := r.newObject()
	if u, ok := stored.(*unstructured.Unstructured); ok {
		u.Object = content
		u.SetGroupVersionKind(gvk)
	} else {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, stored); err != nil {
			return nil, nil, fmt.Errorf("convert: %w", err)
		}
		stored.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	m, err := meta.Accessor(stored)
	if err != nil {
		return nil, nil, fmt.Errorf("it isn't an object: %w", err)
	}
	if m.GetUID() == "" {
		m.SetUID(uuid.NewUUID())
	}
	if m.GetCreationTimestamp() == (metav1.Time{}) {
		m.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	return r, m, nil
}

func (h *handlers) plural(gvk schema.GroupVersionKind) string {
	for _, r := range h.served {
		if r.GroupVersion == gvk.GroupVersion() && r.Kind == gvk.Kind {
			return r.Name
		}
	}
	return ""
}

// prefixOf returns the prefix of the keys of a resource, such as "pods" or "xdpprograms.bpfman.io".
func (s *Server) prefixOf(name string) string {
	r := s.handlers.resources[schema.ParseGroupResource(name)]
	if r == nil {
		panic("there is no resource " + name)
	}
	return r.prefix
}

func key(prefix, namespace, name string) string {
	if namespace == "" {
		return prefix + "/" + name
	}
	return prefix + "/" + namespace + "/" + name
}

func toUnstructured(o runtime.Object) *unstructured.Unstructured {
	if o == nil {
		return nil
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // it is an API type
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvkOf(o))
	return u
}

func gvkOf(o runtime.Object) schema.GroupVersionKind {
	found, _, err := scheme.ObjectKinds(o)
	if err != nil {
		panic(err) // it is in the scheme
	}
	return found[0]
}

func pluralOf(gvk schema.GroupVersionKind) string {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.Resource
}
