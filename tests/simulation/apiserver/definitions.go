// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// Limits of kube-apiserver.
const (
	requestTimeout  = time.Minute
	minWatchTimeout = 30 * time.Minute
	maxBody         = 3 << 20
)

// handlers are the handlers of all servers of a process. The server of a request is in its context.
type handlers struct {
	custom    http.Handler
	builtins  map[schema.GroupResource]*builtin
	resources map[schema.GroupResource]*resource
	reviews   http.HandlerFunc
	served    []served
}

// served is a resource in discovery.
type served struct {
	schema.GroupVersion
	metav1.APIResource
	status bool
}

// bubbled is the context of a request for custom resources. Their handlers read the RequestInfo twice: to choose what to do,
// and to decide whether the request counts in a WaitGroup. A WaitGroup belongs to one bubble of testing/synctest, and the
// handlers are shared, so to the second question the request is a watch, which doesn't count.
type bubbled struct {
	context.Context //nolint:containedctx // it is one
	asked           int
}

// Value implements [context.Context].
func (c *bubbled) Value(key any) any {
	value := c.Context.Value(key)
	info, ok := value.(*request.RequestInfo)
	if !ok {
		return value
	}
	if c.asked++; c.asked == 2 {
		watch := *info
		watch.Verb = "watch"
		return &watch
	}
	return value
}

// serveCustom serves a request for custom resources.
func (h *handlers) serveCustom(w http.ResponseWriter, q *http.Request) {
	h.custom.ServeHTTP(w, q.WithContext(&bubbled{Context: q.Context()})) //nolint:contextcheck // it has the request's
}

var sharedHandlers = sync.OnceValues(func() (*handlers, error) {
	h := &handlers{builtins: map[schema.GroupResource]*builtin{}, resources: map[schema.GroupResource]*resource{}}
	definitions, err := readDefinitions()
	if err != nil {
		return nil, err
	}
	if err := h.addDefinitions(definitions); err != nil {
		return nil, err
	}
	return h, h.addBuiltins()
})

// readDefinitions returns the CustomResourceDefinitions of config/crd.
func readDefinitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	_, self, _, ok := runtime.Caller(0)
	if !ok {
		return nil, fmt.Errorf("find the repository")
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(self), "../../../config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find config/crd: %d files, %w", len(files), err)
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a definition: %w", err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, definition); err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		establish(definition)
		all = append(all, definition)
	}
	return all, nil
}

// establish makes a definition as it is after the API server has accepted it.
func establish(d *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetDefaults_CustomResourceDefinition(d)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&d.Spec)
	d.UID = types.UID(d.Name)
	d.Status.AcceptedNames = d.Spec.Names
	d.Status.StoredVersions = []string{d.Spec.Versions[0].Name}
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: condition, Status: apiextensionsv1.ConditionTrue})
	}
}

// known is an informer of definitions that never change.
type known struct{ cache.SharedIndexInformer }

var _ informers.CustomResourceDefinitionInformer = known{}

func (k known) Informer() cache.SharedIndexInformer { return k.SharedIndexInformer }
func (k known) Lister() listers.CustomResourceDefinitionLister {
	return listers.NewCustomResourceDefinitionLister(k.GetIndexer())
}

func (h *handlers) addDefinitions(definitions []*apiextensionsv1.CustomResourceDefinition) error {
	informer := known{cache.NewSharedIndexInformer(&cache.ListWatch{}, &apiextensionsv1.CustomResourceDefinition{}, 0, cache.Indexers{})}
	for _, d := range definitions {
		if err := informer.GetIndexer().Add(d); err != nil {
			return fmt.Errorf("add %s: %w", d.Name, err)
		}
		h.describe(d)
	}
	custom, err := apiextensions.NewCustomResourceDefinitionHandler(nil, nil, informer, http.HandlerFunc(notFound),
		restOptions{h}, admitting{}, nil, nil, func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return r },
		1, authorizerfactory.NewAlwaysAllowAuthorizer(), requestTimeout, minWatchTimeout, map[string]*spec.Schema{}, maxBody)
	if err != nil {
		return fmt.Errorf("serve the definitions: %w", err)
	}
	h.custom = custom
	for _, d := range definitions { // now, so that it isn't done in the virtual time of a test
		if _, err := custom.GetCustomResourceListerCollectionDeleter(d); err != nil {
			return fmt.Errorf("serve %s: %w", d.Name, err)
		}
	}
	return nil
}

func (h *handlers) describe(d *apiextensionsv1.CustomResourceDefinition) {
	group := schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
	for _, version := range d.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: d.Spec.Group, Version: version.Name, Kind: d.Spec.Names.Kind}
		h.resources[group] = &resource{group: group, custom: true, prefix: "/registry/" + group.Group + "/" + group.Resource, newObject: func() kruntime.Object {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(gvk)
			return o
		}}
		h.served = append(h.served, served{
			GroupVersion: gvk.GroupVersion(),
			APIResource: metav1.APIResource{
				Name: d.Spec.Names.Plural, SingularName: d.Spec.Names.Singular, Kind: gvk.Kind, Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
				ShortNames: d.Spec.Names.ShortNames, Categories: d.Spec.Names.Categories,
				Verbs: metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
			},
			status: version.Subresources != nil && version.Subresources.Status != nil,
		})
	}
}

// restOptions makes the handlers store their objects in [resource].
type restOptions struct{ *handlers }

// GetRESTOptions implements [generic.RESTOptionsGetter].
func (o restOptions) GetRESTOptions(group schema.GroupResource, _ kruntime.Object) (generic.RESTOptions, error) {
	r := o.resources[group]
	if r == nil {
		return generic.RESTOptions{}, fmt.Errorf("there is no resource %s", group)
	}
	return generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{
			Config: storagebackend.Config{Codec: unstructured.UnstructuredJSONScheme}, GroupResource: group,
		},
		Decorator: func(config *storagebackend.ConfigForResource, _ string, _ func(kruntime.Object) (string, error), _, _ func() kruntime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			if r.custom {
				r.codec = config.Codec
			}
			return r, func() {}, nil
		},
		EnableGarbageCollection: true, DeleteCollectionWorkers: 1, ResourcePrefix: r.prefix,
	}, nil
}
