// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package status summarizes the nodes' reports in the status of users' objects. Each event updates a summary in
// memory, so its cost doesn't grow with the number of nodes.
package status

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

// Ref names a user object.
type Ref struct {
	Kind string
	types.NamespacedName
}

// Index contains what is known about nodes, user objects, and BpfPrograms, with a summary for each user object.
// Each method that changes the index returns the user objects whose summary changed.
type Index struct {
	mu    sync.Mutex
	nodes map[string]*node
	// owners contains what reports are about, which includes deleted objects, and objects that only exist in a forged report.
	// objects contains the user objects among them, by UID.
	owners  map[reports.Owner]*owner
	objects map[types.UID]*owner
	agents  int
	// order counts what this process learns about nodes and steps of rollouts.
	order uint64
}

// node exists from the first event that mentions it. Its key is the label value that identifies it in BpfPrograms.
type node struct {
	key, name string
	exists    bool
	reachable bool
	labels    labels.Set
	// pods are the agent's pods that are bound to the node. lingering is the last of them, if it was deleted
	// recently.
	pods      map[types.UID]struct{}
	lingering types.UID
	// notReady contains since when one of the pods isn't ready, and "" for the node itself.
	notReady map[types.UID]time.Time
	// terminated contains when a container of one of the pods terminated last.
	terminated map[types.UID]termination
	// inspected means that there is a BpfNode. conflicts and runTimes are what it says about objects. The keys are kernel ids
	// of programs. seenConflicts includes conflicts that have ended, and can return.
	inspected     bool
	conflicts     []rollout.Conflict
	seenConflicts map[rollout.ConflictID]sighting
	runTimes      map[uint32]runTime
}

func (n *node) runsAgent() bool {
	return n.exists && n.reachable && (n.lingering != "" || len(n.pods) > 0)
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{nodes: map[string]*node{}, owners: map[reports.Owner]*owner{}, objects: map[types.UID]*owner{}}
}

// Summary returns the state of a user object. ok is false if the index doesn't know the object.
func (x *Index) Summary(uid types.UID) (summary Summary, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.objects[uid]
	if o == nil {
		return Summary{}, false
	}
	summary = o.summary()
	summary.Agents = x.agents
	return summary, true
}

// ownerOf returns what is known about a user object, or nothing.
func (x *Index) ownerOf(uid types.UID) Owner {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.objects[uid]; o != nil {
		return o.Owner
	}
	return Owner{}
}

// knows reports whether the index knows a user object.
func (x *Index) knows(uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.objects[uid] != nil
}

// SetOwner adds or updates a user object.
func (x *Index) SetOwner(ref Ref, uid types.UID, spec Owner) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.owner(reports.Owner{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: uid})
	if o.known && sameOwner(o.Owner, spec) {
		return nil
	}
	if o.known {
		x.seeStep(o, spec.Rollout)
	}
	o.Owner, o.known = spec, true
	x.objects[uid] = o
	if spec.Rollout != nil {
		o.canaries = rollout.Canaries(spec.Rollout.Canaries)
	}
	// The change can affect every node.
	for _, n := range x.nodes {
		o.update(n, func(*nodeState) {})
	}
	return []Ref{ref}
}

// seeStep records that the rollout of an object is in another step. A step that was there when the process learned of the
// object began earlier.
func (x *Index) seeStep(o *owner, now *v1alpha1.RolloutStatus) {
	was := o.Rollout
	another := now != nil && (was == nil || was.Hash != now.Hash || was.Revision != now.Revision)
	if another {
		o.rolloutOrder = x.sees(false).order
	}
	if another || now != nil && was.Step != now.Step {
		o.stepOrder = x.sees(false).order
	}
}

func sameOwner(a, b Owner) bool {
	// The generation represents the spec.
	return a.Generation == b.Generation && a.Deleting == b.Deleting && a.Undecodable == b.Undecodable && equality.Semantic.DeepEqual(a.Rollout, b.Rollout)
}

// DeleteOwner removes a user object.
func (x *Index) DeleteOwner(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if o := x.objects[uid]; o != nil {
		delete(x.objects, uid)
		o.known, o.Owner = false, Owner{}
		o.rolloutOrder, o.stepOrder = 0, 0
		for _, r := range o.nodes {
			o.update(r.node, func(*nodeState) {})
		}
		x.forgetOwner(o)
	}
}

// SetReport adds or updates a report. It ignores a report without an owner.
func (x *Index) SetReport(p *reports.Report) []Ref {
	of := p.Owner.Value()
	if of.UID == "" {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.owner(of)
	label := p.Node.Value().Label
	return changed(o, o.update(x.node(label, label), func(r *nodeState) { r.put(p) }))
}

// DeleteReport removes a report.
func (x *Index) DeleteReport(p *reports.Report) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	label := p.Node.Value().Label
	o := x.owners[p.Owner.Value()]
	if o == nil {
		return nil
	}
	n := x.node(label, label)
	refs := changed(o, o.update(n, func(r *nodeState) { r.remove(p.Name) }))
	x.forgetOwner(o)
	x.forgetNode(n)
	return refs
}

// Misses reports whether the node of a report has to report more programs: it runs an agent, the report's user
// object selects it, and it hasn't reported all programs of the object.
func (x *Index) Misses(p *reports.Report) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.owners[p.Owner.Value()]
	if o == nil || !o.known {
		return false
	}
	r := o.nodes[p.Node.Value().Label]
	return r != nil && r.outcome == waiting
}

// SetNode adds or updates a node.
func (x *Index) SetNode(name string, set map[string]string, reachable bool) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(name), name)
	if n.exists && n.reachable == reachable && maps.Equal(n.labels, set) {
		return nil
	}
	return x.changeNode(n, func() {
		n.name, n.exists, n.reachable, n.labels = name, true, reachable, set
	})
}

// DeleteNode removes a node. Its reports no longer count.
func (x *Index) DeleteNode(name string) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(name), name)
	refs := x.changeNode(n, func() { n.exists, n.labels = false, nil; delete(n.notReady, ""); delete(n.terminated, "") })
	x.forgetNode(n)
	return refs
}

// AddAgent adds a pod of the agent that is bound to the node.
func (x *Index) AddAgent(nodeName string, pod types.UID) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	if _, there := n.pods[pod]; there {
		return nil
	}
	return x.changeNode(n, func() { n.pods[pod], n.lingering = struct{}{}, "" })
}

// RemoveAgent removes a pod of the agent. If it was the node's last one, the node still counts as running an
// agent: the DaemonSet replaces its pods one by one, and this must not change the status. The caller then calls
// SettleAgent after the time for a replacement has passed.
func (x *Index) RemoveAgent(nodeName string, pod types.UID) (last bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	if _, there := n.pods[pod]; !there {
		x.forgetNode(n)
		return false
	}
	delete(n.pods, pod)
	delete(n.notReady, pod)
	delete(n.terminated, pod)
	if len(n.pods) > 0 {
		return false
	}
	n.lingering = pod
	return true
}

// SettleAgent ends the grace period that RemoveAgent started for the pod. It doesn't affect the grace period of
// another pod.
func (x *Index) SettleAgent(nodeName string, pod types.UID) []Ref {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(v1alpha1.LabelValue(nodeName), nodeName)
	if n.lingering != pod {
		x.forgetNode(n)
		return nil
	}
	refs := x.changeNode(n, func() { n.lingering = "" })
	x.forgetNode(n)
	return refs
}

// changeNode changes a node, and updates all owners.
func (x *Index) changeNode(n *node, change func()) []Ref {
	ran, agents := n.runsAgent(), x.agents
	change()
	if runs := n.runsAgent(); runs && !ran {
		x.agents++
	} else if ran && !runs {
		x.agents--
	}
	// The status of objects that select no node depends on whether there is any agent.
	firstOrLast := (agents == 0) != (x.agents == 0)
	var refs []Ref
	for _, o := range x.owners {
		refs = append(refs, changed(o, o.update(n, func(*nodeState) {}) || firstOrLast)...)
	}
	return refs
}

func (x *Index) node(key, name string) *node {
	n := x.nodes[key]
	if n == nil {
		n = &node{key: key, name: name, pods: map[types.UID]struct{}{}, notReady: map[types.UID]time.Time{}, terminated: map[types.UID]termination{}}
		x.nodes[key] = n
	}
	return n
}

func (x *Index) owner(id reports.Owner) *owner {
	o := x.owners[id]
	if o == nil {
		o = newOwner(id)
		x.owners[id] = o
	}
	return o
}

// forgetOwner removes an owner without an object and BpfPrograms.
func (x *Index) forgetOwner(o *owner) {
	if !o.known && len(o.nodes) == 0 {
		delete(x.owners, o.id)
	}
}

// forgetNode removes a node that nothing refers to.
func (x *Index) forgetNode(n *node) {
	if n.exists || n.lingering != "" || len(n.pods) > 0 || n.inspected {
		return
	}
	for _, o := range x.owners {
		if o.nodes[n.key] != nil {
			return
		}
	}
	delete(x.nodes, n.key)
}

func changed(o *owner, yes bool) []Ref {
	if !yes || !o.known {
		return nil
	}
	return []Ref{o.ref}
}
