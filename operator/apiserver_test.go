// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// apiServer is an API server in memory. It has no sockets, so that a test with it can run in virtual time. Its watches
// have no events: a test changes objects only while no operator runs.
type apiServer struct {
	t *testing.T

	mu      sync.Mutex
	objects map[schema.GroupVersionKind]map[types.NamespacedName]*unstructured.Unstructured
	// held is the resource that can't be listed until released is closed.
	held     string
	released chan struct{}
	// forbidden is a resource without the permission to read it.
	forbidden string
	writes    []string
}

// resources are the resources that the operator uses.
func resources() map[string]schema.GroupVersionKind {
	all := map[string]schema.GroupVersionKind{}
	for _, kind := range v1alpha1.AllKinds() {
		all[kind.Resource()] = kind.GroupVersionKind()
	}
	for path, kinds := range map[string][]string{
		"/v1": {"Node", "Pod", "ConfigMap", "Namespace", "Secret", "Event"}, // Events are recorded in another group, with the same name

		"apps/v1":                {"DaemonSet", "ControllerRevision"},
		"storage.k8s.io/v1":      {"CSIDriver"},
		"coordination.k8s.io/v1": {"Lease"},
		"rbac.authorization.k8s.io/v1": {
			"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
		},
	} {
		group, version, _ := strings.Cut(path, "/")
		for _, kind := range kinds {
			all[strings.ToLower(kind)+"s"] = schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		}
	}
	return all
}

var clusterScoped = []string{"Node", "Namespace", "CSIDriver", "ClusterRole", "ClusterRoleBinding"}

func namespaced(gvk schema.GroupVersionKind) bool {
	for _, kind := range v1alpha1.AllKinds() {
		if kind.GroupVersionKind() == gvk {
			return kind.Namespaced
		}
	}
	return !slices.Contains(clusterScoped, gvk.Kind)
}

// put creates or replaces an object.
func (s *apiServer) put(o runtime.Object) {
	s.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		s.t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: content}
	if object.GetUID() == "" {
		object.SetUID(types.UID(object.GetName()))
	}
	if object.GetKind() == "" {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			s.t.Fatal(err)
		}
		object.SetGroupVersionKind(kinds[0])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(object)
}

func (s *apiServer) store(o *unstructured.Unstructured) {
	if s.objects == nil {
		s.objects = map[schema.GroupVersionKind]map[types.NamespacedName]*unstructured.Unstructured{}
	}
	gvk := o.GroupVersionKind()
	if s.objects[gvk] == nil {
		s.objects[gvk] = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	o.SetResourceVersion("10")
	s.objects[gvk][types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o
}

// get reads an object into one of its type.
func (s *apiServer) get(gvk schema.GroupVersionKind, name types.NamespacedName, into any) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[gvk][name]
	if o == nil {
		s.t.Fatalf("%s %s doesn't exist", gvk.Kind, name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		s.t.Fatal(err)
	}
}

// hold delays lists of a resource until release is called.
func (s *apiServer) hold(resource string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	released := make(chan struct{})
	s.held, s.released = resource, released
	return sync.OnceFunc(func() { close(released) })
}

// written returns the writes since the last call, except for Events and the objects that the operator deploys, which
// it applies after each start.
func (s *apiServer) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := slices.DeleteFunc(s.writes, func(w string) bool {
		return strings.Contains(w, "/events") || strings.Contains(w, "/daemonsets/") || strings.Contains(w, "/csidrivers/")
	})
	s.writes = nil
	return writes
}

// RoundTrip implements [http.RoundTripper].
func (s *apiServer) RoundTrip(q *http.Request) (*http.Response, error) {
	path := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	if path[0] == "api" {
		path = append([]string{"apis", ""}, path[1:]...)
	}
	if len(path) <= 3 {
		return discover(q, path[1:]), nil
	}
	group, path := path[1], path[3:]
	var name types.NamespacedName
	if path[0] == "namespaces" && len(path) > 2 {
		name.Namespace, path = path[1], path[2:]
	}
	if len(path) > 1 {
		name.Name = path[1]
	}
	gvk, known := resources()[path[0]]
	if !known || gvk.Group != group {
		return refuse(q, http.StatusNotFound, metav1.StatusReasonNotFound), nil
	}
	query := q.URL.Query()
	switch {
	case q.Method == http.MethodGet && path[0] == s.forbidden:
		return refuse(q, http.StatusForbidden, metav1.StatusReasonForbidden), nil
	case q.Method != http.MethodGet:
		return s.write(q, gvk, name, slices.Contains(path, "status"))
	case query.Get("sendInitialEvents") != "": // like an API server that doesn't have it
		return refuse(q, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid), nil
	case query.Get("watch") != "":
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: newSilence(q.Context()), Request: q}, nil
	case name.Name == "":
		if err := s.wait(q, path[0]); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	partial := strings.Contains(q.Header.Get("Accept"), "as=PartialObjectMetadata")
	if name.Name == "" {
		return s.list(q, gvk, name.Namespace, query, partial), nil
	}
	if o := s.objects[gvk][name]; o != nil {
		return respond(q, http.StatusOK, view(o, partial)), nil
	}
	return refuse(q, http.StatusNotFound, metav1.StatusReasonNotFound), nil
}

// silence is the body of a watch without events. It ends without an error, because client-go's watches can leak a
// goroutine after one.
type silence struct {
	ended <-chan struct{}
	end   func()
}

func newSilence(ctx context.Context) silence {
	ctx, cancel := context.WithCancel(ctx)
	return silence{ctx.Done(), cancel}
}

func (s silence) Read([]byte) (int, error) { <-s.ended; return 0, io.EOF }
func (s silence) Close() error             { s.end(); return nil }

// wait waits if lists of the resource are held.
func (s *apiServer) wait(q *http.Request, resource string) error {
	s.mu.Lock()
	held, released := s.held, s.released
	s.mu.Unlock()
	if held != resource {
		return nil
	}
	select {
	case <-released:
		return nil
	case <-q.Context().Done():
		return q.Context().Err()
	}
}

func (s *apiServer) list(q *http.Request, gvk schema.GroupVersionKind, namespace string, query url.Values, partial bool) *http.Response {
	labelled, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		s.t.Error(err)
	}
	selected, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		s.t.Error(err)
	}
	items := []any{}
	for _, name := range slices.SortedFunc(maps.Keys(s.objects[gvk]), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		o := s.objects[gvk][name]
		node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
		if (namespace == "" || namespace == name.Namespace) && labelled.Matches(labels.Set(o.GetLabels())) &&
			selected.Matches(fields.Set{"metadata.name": name.Name, "spec.nodeName": node}) {
			items = append(items, view(o, partial))
		}
	}
	list := gvk
	list.Kind += "List"
	if partial {
		list = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
	}
	return respond(q, http.StatusOK, map[string]any{
		"apiVersion": list.GroupVersion().String(), "kind": list.Kind, "metadata": map[string]any{"resourceVersion": "10"}, "items": items,
	})
}

// write executes a write as far as the operator depends on it.
func (s *apiServer) write(q *http.Request, gvk schema.GroupVersionKind, name types.NamespacedName, status bool) (*http.Response, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, fmt.Sprintf("%s %s %s", q.Method, q.URL.Path, body))
	o := s.objects[gvk][name]
	switch {
	case q.Method == http.MethodDelete:
		delete(s.objects[gvk], name)
		return respond(q, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}), nil
	case q.Method == http.MethodPost:
		o = &unstructured.Unstructured{Object: s.decode(body)}
	case status: // a JSON patch that replaces it
		var patch []struct {
			Path  string `json:"path"`
			Value any    `json:"value"`
		}
		if err := json.Unmarshal(body, &patch); err != nil {
			s.t.Errorf("the patch %s: %v", body, err)
		}
		o = o.DeepCopy()
		o.Object["status"] = patch[len(patch)-1].Value
	default:
		if o == nil {
			o = &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID(types.UID("applied-" + name.Name))
		}
		o = o.DeepCopy()
		merge(o.Object, s.decode(body))
	}
	o.SetGroupVersionKind(gvk)
	o.SetNamespace(name.Namespace)
	s.store(o)
	return respond(q, http.StatusOK, view(o, strings.Contains(q.Header.Get("Accept"), "as=PartialObjectMetadata"))), nil
}

func (s *apiServer) decode(body []byte) map[string]any {
	if o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil { // protobuf
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			s.t.Error(err)
		}
		return content
	}
	content := map[string]any{}
	if err := json.Unmarshal(body, &content); err != nil {
		s.t.Errorf("decode %s: %v", body, err)
	}
	return content
}

func merge(into, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		former, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(former, inner)
		default:
			into[key] = value
		}
	}
}

func view(o *unstructured.Unstructured, partial bool) map[string]any {
	if !partial {
		return o.Object
	}
	return map[string]any{"apiVersion": metav1.SchemeGroupVersion.String(), "kind": "PartialObjectMetadata", "metadata": o.Object["metadata"]}
}

// discover answers a request for the groups, or for the resources of a group's version.
func discover(q *http.Request, path []string) *http.Response {
	if len(path) < 2 {
		groups := map[schema.GroupVersion]bool{}
		for _, gvk := range resources() {
			groups[gvk.GroupVersion()] = true
		}
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for gv := range groups {
			version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			if gv.Group != "" {
				list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
			}
		}
		if len(path) == 1 { // /api
			return respond(q, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		}
		return respond(q, http.StatusOK, list)
	}
	list := metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: schema.GroupVersion{Group: path[0], Version: path[1]}.String(),
	}
	for resource, gvk := range resources() {
		if gvk.Group == path[0] && gvk.Version == path[1] {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource, Kind: gvk.Kind, Namespaced: namespaced(gvk), Verbs: []string{"get", "list", "watch"}})
		}
	}
	return respond(q, http.StatusOK, list)
}

func refuse(q *http.Request, code int, reason metav1.StatusReason) *http.Response {
	return respond(q, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code),
		Message: string(reason),
	})
}

func respond(q *http.Request, code int, content any) *http.Response {
	body, err := json.Marshal(content)
	if err != nil {
		panic(err) // it came from JSON
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)), Request: q}
}
