// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// planner makes plans from the facts of this node. Its fields are as those of [Options].
type planner struct {
	cluster          *cluster.Cluster
	reports          *record.Reports
	nodeName         string
	uprobeNamespaces []string
	reserved         program.Reserved
	facts            *facts
	starts           *starts

	// older contains the versions that this node runs of objects whose newest version runs elsewhere, or failed here. Events
	// on the node concern them too. The keys are of type program.Key, the values of type program.Owner.
	older sync.Map
}

// errOffline is the reason why a rollback leaves links in containers and pods to the next pass: the container runtime could
// make it wait.
var errOffline = errors.New("containers are unknown during a rollback")

// runtimeDeadline is how long an owner waits for the container runtime, including the time that others wait for it first.
const runtimeDeadline = 10 * time.Second

// plan collects the facts that the owner's plan depends on, and makes the plan.
func (p *planner) plan(ctx context.Context, owner program.Owner, c change) (plan.Plan, error) {
	facts := program.Node{Name: p.nodeName, UprobeNamespaces: p.uprobeNamespaces, Reserved: p.reserved}
	if p.follow(owner) {
		c.since = nil // earlier events weren't compared with this version
	}
	needs := owner.Needs()
	if needs.Interfaces {
		node, err := p.cluster.OwnNode()
		switch {
		case err == nil:
			facts.Addresses = addressesOf(node)
		case c.offline:
			facts.Addresses = c.addresses
		default:
			return plan.Plan{}, err
		}
		if facts.Interfaces, err = p.facts.hostInterfaces(ctx, c.since); err != nil {
			return plan.Plan{}, err
		}
	}
	switch {
	case needs.Containers && c.offline:
		facts.ContainersErr = errOffline
	case needs.Containers:
		p.cluster.Kinds.Open(cluster.PodKind)
		err := p.cluster.Kinds.CheckReadable(cluster.PodKind)
		var all []program.Container
		if err == nil {
			all, err = p.facts.running(ctx, c.since, needs.PodInterfaces)
		}
		if kinds.Unread(err) {
			return plan.Plan{}, fmt.Errorf("list pods: %w", err)
		}
		facts.ContainersErr = err
		facts.Containers = slices.DeleteFunc(slices.Clone(all), func(c program.Container) bool {
			return owner.Namespace != "" && c.Namespace != owner.Namespace
		})
	}
	want, err := p.wanted(owner, facts, c)
	if err != nil {
		return plan.Plan{}, err
	}
	if c.confined != nil {
		want = want.ConfinedTo(c.confined.to, c.confined.instead)
	}
	switch {
	case c.rest != nil:
		want = want.StayingAt(c.rest.at, facts)
	case c.offline:
		want = want.StayingAt(nil, facts)
	}
	return p.starts.noted(owner.Key, want), nil
}

// wanted returns the plan with all attach points.
func (p *planner) wanted(owner program.Owner, facts program.Node, c change) (plan.Plan, error) {
	if c.rest != nil {
		return plan.WantLoaded(owner, facts, c.rest.loaded), nil
	}
	mapOwners, err := p.reports.MapOwners(owner)
	want := plan.Want(owner, facts, mapOwners)
	if c.offline {
		want.Blocked = nil // what is loaded instead can be what cuts off the node
	}
	return want, err
}

// follow has the next events compared with a version of an owner. It reports whether the last ones weren't.
func (p *planner) follow(owner program.Owner) (another bool) {
	newest, err := p.cluster.UserObject(owner.Kind, owner.Namespace, owner.Name)
	if err == nil && newest.GetUID() == owner.UID && newest.GetGeneration() == owner.Generation {
		p.older.Delete(owner.Key)
		return false
	}
	before, _ := p.older.Swap(owner.Key, owner)
	was, known := before.(program.Owner)
	return !known || was.UID != owner.UID || was.Generation != owner.Generation
}

// addressesOf returns the internal IP addresses of a node.
func addressesOf(node *corev1.Node) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			addresses = append(addresses, ip)
		}
	}
	return addresses
}
