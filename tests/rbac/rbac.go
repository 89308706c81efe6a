// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rbac compares the permissions of bpfman's components with their requests to the API server.
package rbac

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Right is a single permission of a component: one verb of one rule, on one resource.
type Right struct {
	Component string
	// Namespace is the namespace of a Role, or "" for a ClusterRole.
	Namespace string
	Verb      string
	Group     string
	Resource  string // including the subresource
	// Name is the name of the only object that the permission is for, or "".
	Name string
}

func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += " " + r.Name
	}
	if r.Namespace != "" {
		resource += " in " + r.Namespace
	}
	return r.Component + ": " + r.Verb + " " + resource
}

// allows reports whether the permission allows the request.
func (r Right) allows(q Request) bool {
	return r.Component == q.Component && r.Verb == q.Verb && r.Group == q.Group && r.Resource == q.Resource &&
		(r.Namespace == "" || r.Namespace == q.Namespace) && (r.Name == "" || r.Name == q.Name)
}

// Rights splits the rules of a role into single permissions.
func Rights(component, namespace string, rules []rbacv1.PolicyRule) []Right {
	var rights []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						rights = append(rights, Right{component, namespace, verb, group, resource, name})
					}
				}
			}
		}
	}
	return rights
}

// Request is a request of a component to the API server.
type Request struct {
	Component, Namespace, Verb, Group, Resource, Name string
}

func (q Request) String() string {
	return Right(q).String()
}

// entry contains the fields of an audit.k8s.io/v1 Event that are needed.
type entry struct {
	Stage     string
	Verb      string
	User      struct{ Username string }
	UserAgent string
	ObjectRef *struct {
		Resource, Subresource, Namespace, Name, APIGroup string
	}
	ResponseStatus struct{ Code int }
}

// accounts is the prefix of the names of the components' ServiceAccounts.
const accounts = "system:serviceaccount:bpfman:"

// ReadRequests reads the components' requests from an audit log, without duplicates. It leaves out requests about
// the API server itself, such as discovery, because every client has permission for these.
func ReadRequests(log io.Reader) (map[Request]bool, error) {
	requests := map[Request]bool{}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil // an incomplete line is still being written
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		for _, request := range e.requests() {
			requests[request] = true
		}
	}
}

func (e entry) requests() []Request {
	account, ours := strings.CutPrefix(e.User.Username, accounts)
	if !ours || e.ObjectRef == nil {
		return nil
	}
	// The node components share a ServiceAccount.
	component, _, _ := strings.Cut(e.UserAgent, "/")
	if !strings.HasPrefix(component, "bpfman-") {
		component = account
	}
	const created = 201
	request := Request{
		Component: component,
		Namespace: e.ObjectRef.Namespace, Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Name: e.ObjectRef.Name,
	}
	if e.ObjectRef.Subresource != "" {
		request.Resource += "/" + e.ObjectRef.Subresource
	}
	if request.Verb == "patch" && e.ResponseStatus.Code == created {
		// Server-side apply of an object that doesn't exist also requires the permission to create it.
		creation := request
		creation.Verb = "create"
		return []Request{request, creation}
	}
	return []Request{request}
}

// Compare returns the requests that no permission allows, and the permissions that no request used. It ignores the
// API server's response, because permissions can be removed early while bpfman is being uninstalled.
func Compare(rights []Right, requests map[Request]bool) (denied []Request, unused []Right) {
	used := map[Right]bool{}
	for request := range requests {
		allowed := false
		for _, right := range rights {
			if right.allows(request) {
				allowed, used[right] = true, true
			}
		}
		if !allowed {
			denied = append(denied, request)
		}
	}
	for _, right := range rights {
		if !used[right] && !excused(right, used) {
			unused = append(unused, right)
		}
	}
	slices.SortFunc(denied, func(a, b Request) int { return strings.Compare(a.String(), b.String()) })
	return denied, unused
}

// excused returns the permissions that a run doesn't always use. Since Kubernetes 1.34, the API server streams
// lists, so there are no list requests. An Event is only patched if it repeats within minutes. On OpenShift, the hints'
// owner can only be changed by who may delete the hints (OwnerReferencesPermissionEnforcement).
func excused(right Right, used map[Right]bool) bool {
	watch := right
	watch.Verb = "watch"
	return right.Verb == "list" && used[watch] || right.Verb == "patch" && right.Resource == "events" ||
		right.Verb == "delete" && right.Resource == "configmaps" && right.Name == "bpfman-hints"
}
