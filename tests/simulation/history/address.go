// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// Address selects the nth event that matches, counted from 1 when the step is due. Empty fields match everything.
type Address struct {
	Nth  int  `json:"nth"`
	Done bool `json:"done,omitempty"`
	// Delivered selects the parts of watches.
	Delivered   bool   `json:"delivered,omitempty"`
	Actor       string `json:"actor,omitempty"`
	Verb        string `json:"verb,omitempty"`
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name,omitempty"`
}

func (a *Address) match() simulation.Match {
	return simulation.Match{
		Actor: a.Actor, Verb: a.Verb, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, Done: a.Done, Delivered: a.Delivered, Writes: a.Verb == "",
	}
}

func (a *Address) String() string {
	when := "before"
	if a.Done {
		when = "after"
	}
	verb := a.Verb
	switch {
	case a.Delivered:
		verb = "change from a watch"
	case verb == "":
		verb = "write"
	}
	what := strings.Trim(strings.Join([]string{a.Resource, a.Name, a.Subresource}, "/"), "/")
	actor := a.Actor
	if actor == "" {
		actor = "anybody"
	}
	return strings.TrimSpace(when + " " + actor + "'s " + strconv.Itoa(a.Nth) + ". " + verb + " of " + what)
}

// The resources that components read and write, beside those of users' objects. Operators write leases all the time.
var (
	readByAll         = []string{"nodes", "pods", "bpfprograms", "bpfnsprograms", "rolloutpolicies", "bytecodepolicies", "configmaps"}
	readByOperators   = []string{"bpfnodes", "controllerrevisions", "daemonsets"}
	writtenByAgents   = []string{"bpfprograms", "bpfprograms", "bpfnsprograms", "events"}
	writtenByOperator = []string{"controllerrevisions", "configmaps", "events", "leases"}
	daemonCalls       = []string{"", "Load", "Attach", "Detach", "Unload", "List"}
)

// resources are those whose requests a fault can be about.
func resources(Plan) []string {
	all := slices.Concat(readByAll, readByOperators)
	for _, kind := range v1alpha1.UserKinds {
		all = append(all, kind.Resource())
	}
	return all
}

// drawAddress draws an event at which a fault happens. Users are those of the resources of users' objects that there are. The event
// may never occur.
func drawAddress(r *rand.Rand, p Plan, kind *FaultKind, users []string) *Address {
	a := &Address{Nth: 1 + r.IntN(1<<r.IntN(5)), Done: !kind.Before && r.IntN(2) == 0}
	agent := r.IntN(2) == 0
	if agent && kind.Calls && (!kind.Requests || r.IntN(2) == 0) {
		a.Resource, a.Verb = simulation.ResourceDaemon, oneOf(r, daemonCalls...)
	} else {
		a.drawRequest(r, agent, users)
	}
	switch {
	case r.IntN(2) == 0: // anybody
	case agent:
		a.Actor = "agent/" + oneOf(r, nodes(p)...)
	default:
		a.Actor = "operator/" + oneOf(r, operators(p)...)
	}
	if a.Verb == "watch" && !kind.Before && r.IntN(2) == 0 {
		a.Delivered, a.Done = true, false
	}
	return a
}

func (a *Address) drawRequest(r *rand.Rand, agent bool, users []string) {
	a.Verb = oneOf(r, "", "", "list", "watch")
	switch {
	case a.Verb == "" && agent:
		a.Resource = oneOf(r, writtenByAgents...)
	case a.Verb == "":
		a.Resource = oneOf(r, slices.Concat(writtenByOperator, users, users)...)
	default:
		a.Resource = oneOf(r, slices.Concat(readByAll, readByOperators, users, users)...)
	}
}
