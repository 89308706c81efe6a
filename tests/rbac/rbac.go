// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package rbac compares what bpfman's components may do with what they ask of the API server.
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

// Right is one thing that a component may do: one verb of one rule, on one resource.
type Right struct {
	Component string
	// Namespace is that of a Role, "" for a ClusterRole.
	Namespace string
	Verb      string
	Group     string
	Resource  string // with its subresource
	// Name is of the only object that the right is for, if there is one.
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

// allows tells whether the right is enough for the request.
func (r Right) allows(q Request) bool {
	return r.Component == q.Component && r.Verb == q.Verb && r.Group == q.Group && r.Resource == q.Resource &&
		(r.Namespace == "" || r.Namespace == q.Namespace) && (r.Name == "" || r.Name == q.Name)
}

// Rights takes the rules of a role apart.
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

// Request is what a component asked of the API server.
type Request struct {
	Component, Namespace, Verb, Group, Resource, Name string
}

func (q Request) String() string {
	return Right(q).String()
}

// entry is what is read of an audit.k8s.io/v1 Event.
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

// accounts begins the names of the components' ServiceAccounts.
const accounts = "system:serviceaccount:bpfman:"

// ReadRequests reads the components' requests in an audit log, each of them once. Those for the API server itself, such
// as discovery, are everybody's and left out.
func ReadRequests(log io.Reader) (map[Request]bool, error) {
	requests := map[Request]bool{}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, nil // a line that has no end yet is still being written
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
	// The node's components share an account.
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
		// Server-side apply of what isn't there takes the right to create too.
		creation := request
		creation.Verb = "create"
		return []Request{request, creation}
	}
	return []Request{request}
}

// Compare returns the requests that no right allows, and the rights that no request used. What the API server said to a
// request doesn't matter: while bpfman is being removed, its rights may go before it does.
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

// excused are rights that a run may have no occasion to use: the API server streams lists since Kubernetes 1.34, before
// that they are asked for; and an Event is patched only if it comes again within minutes.
func excused(right Right, used map[Right]bool) bool {
	watch := right
	watch.Verb = "watch"
	return right.Verb == "list" && used[watch] || right.Verb == "patch" && right.Resource == "events"
}
