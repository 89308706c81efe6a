// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Release is the version of Kubernetes that a server says it has.
var Release = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"}

// notFound answers a request for a path that doesn't exist.
func notFound(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// discover answers requests that aren't about resources.
func (h *handlers) discover(w http.ResponseWriter, q *http.Request) {
	path := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	switch {
	case q.Method != http.MethodGet:
		notFound(w, q)
	case q.URL.Path == "/version":
		reply(w, Release)
	case q.URL.Path == "/healthz" || q.URL.Path == "/readyz" || q.URL.Path == "/livez":
		_, _ = w.Write([]byte("ok"))
	case len(path) == 1 && path[0] == "api":
		reply(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case len(path) == 1 && path[0] == "apis":
		reply(w, h.groups())
	case len(path) == 2 && path[0] == "api":
		h.resourcesOf(w, q, schema.GroupVersion{Version: path[1]})
	case len(path) == 2 && path[0] == "apis":
		all := h.groups().Groups
		at := slices.IndexFunc(all, func(g metav1.APIGroup) bool { return g.Name == path[1] })
		if at < 0 {
			notFound(w, q)
			return
		}
		all[at].TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		reply(w, all[at])
	case len(path) == 3 && path[0] == "apis":
		h.resourcesOf(w, q, schema.GroupVersion{Group: path[1], Version: path[2]})
	default:
		notFound(w, q)
	}
}

func reply(w http.ResponseWriter, content any) {
	body, err := json.Marshal(content)
	if err != nil {
		panic(err) // they are API types
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (h *handlers) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, r := range h.served {
		if r.GroupVersion.Group == "" || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == r.GroupVersion.Group }) {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion.String(), Version: r.GroupVersion.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: r.GroupVersion.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}

func (h *handlers) resourcesOf(w http.ResponseWriter, q *http.Request, gv schema.GroupVersion) {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range h.served {
		if r.GroupVersion != gv {
			continue
		}
		list.APIResources = append(list.APIResources, r.APIResource)
		if r.status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Name + "/status", Kind: r.Kind, Namespaced: r.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	if list.APIResources == nil {
		notFound(w, q)
		return
	}
	reply(w, list)
}
