// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// request is one kind of request to the API server.
type request struct {
	Component string `json:"component"`
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
}

// writes reports whether the request changes something.
func (r request) writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb)
}

// span is a period in which n programs were added or removed.
type span struct {
	from, to time.Time
	programs int
}

// requestsIn counts the requests of bpfman's components in an audit log within the
// spans.
func requestsIn(path string, spans []span) (counts map[request]int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	counts = map[request]int{}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return counts, nil // an incomplete line is newer than the spans
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		var entry auditEntry
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		within := func(s span) bool {
			return !entry.RequestReceivedTimestamp.Before(s.from) && entry.RequestReceivedTimestamp.Before(s.to)
		}
		if r, ok := entry.request(); ok && slices.ContainsFunc(spans, within) {
			counts[r]++
		}
	}
}

// auditEntry contains the fields of an audit.k8s.io/v1 Event that are needed.
type auditEntry struct {
	Stage string
	Verb  string
	User  struct {
		Username string
	}
	UserAgent string
	ObjectRef *struct {
		Resource, Subresource, Name string
	}
	RequestReceivedTimestamp time.Time
}

// request returns false for requests of other clients, and for requests that aren't
// about the programs of the benchmark or their Events, because others can also use the
// cluster.
func (e auditEntry) request() (request, bool) {
	account, ours := strings.CutPrefix(e.User.Username, "system:serviceaccount:bpfman:")
	if !ours || e.Stage != "ResponseComplete" || e.ObjectRef == nil || !strings.HasPrefix(e.ObjectRef.Name, namePrefix) {
		return request{}, false
	}
	// The node components share a ServiceAccount.
	component, _, _ := strings.Cut(e.UserAgent, "/")
	if !strings.HasPrefix(component, "bpfman-") {
		component = account
	}
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return request{Component: component, Verb: e.Verb, Resource: resource}, true
}

// sortedRequests sorts by component, then by descending count.
func sortedRequests(counts map[request]int) []request {
	var all []request
	for r := range counts {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b request) int {
		return cmp.Or(strings.Compare(a.Component, b.Component), cmp.Compare(counts[b], counts[a]),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Verb, b.Verb))
	})
	return all
}
