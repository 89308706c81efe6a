// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/ui/view"
	"github.com/bpfman/bpfman-operator/cli/why"
)

// The maximum intervals between two views, in which nothing changed but ages, or what isn't watched.
const (
	clusterPace = 30 * time.Second
	objectPace  = 10 * time.Second
)

func (s *Server) cluster(ctx context.Context, r *http.Request, send func(any) error) error {
	q := r.URL.Query()
	filter := view.Filter{Text: q.Get("text"), Type: q.Get("type"), Image: q.Get("image"), Namespace: q.Get("namespace"), Owner: q.Get("owner")}
	return s.facts.onChange(ctx, clusterPace, func(f *facts) error { return send(f.now().Of(filter, time.Now())) })
}

func (s *Server) node(ctx context.Context, r *http.Request, send func(any) error) error {
	name, podName := r.URL.Query().Get("name"), r.URL.Query().Get("pod")
	var last, shown string
	var at time.Time
	read := &v1alpha1.BpfNode{}
	return s.facts.onChange(ctx, objectPace, func(f *facts) error {
		all := f.now()
		cell, known := all.Cell(name)
		if !known && len(all.Reading) == 0 {
			return fmt.Errorf("there is no node %s", name)
		}
		version := ""
		if i := f.inventory(name); i != nil {
			version = i.Version
		}
		problems := view.Problems{Components: all.Components, Unseen: all.Unseen, Reading: all.Reading}
		// What happens on other nodes makes no difference here.
		state := fmt.Sprint(version, cell, problems)
		if state == shown && time.Since(at) < objectPace {
			return nil
		}
		shown, at = state, time.Now()
		if version == "" {
			last, read = "", &v1alpha1.BpfNode{}
		} else if version != last {
			err := s.Cluster.BpfNodes(ctx, []string{name}, func(n *v1alpha1.BpfNode) error { last, read = version, n; return nil })
			if err != nil { // what was read before is better than nothing, until the next attempt
				problems.Unseen = append(problems.Unseen, told(err))
			}
		}
		pods, err := cluster.All[corev1.Pod](ctx, s.Cluster, &corev1.PodList{}, client.MatchingFields{"spec.nodeName": name}) // whose volumes can contain maps
		if err != nil {
			problems.Unseen = append(problems.Unseen, "pods of the node: "+told(err))
		}
		only, err := podNamed(podName, pods)
		if err != nil {
			return err
		}
		return send(view.NodeOf(cell, read, pods, only, inventory.AskedBy(ctx, s.Cluster), problems))
	})
}

// podNamed returns the pod with a namespace and name, or nil for "".
func podNamed(name string, pods []corev1.Pod) (*corev1.Pod, error) {
	if name == "" {
		return nil, nil
	}
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Namespace+"/"+p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("pod %s isn't on this node, or can't be read", name)
	}
	return &pods[i], nil
}

func ownerIn(q url.Values) v1alpha1.BpfNodeOwner {
	return v1alpha1.BpfNodeOwner{Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
}

func (s *Server) object(ctx context.Context, r *http.Request, send func(any) error) error {
	owner := ownerIn(r.URL.Query())
	var shown *view.Declared
	var at time.Time
	nodes := map[string]*v1alpha1.BpfNode{}
	return s.facts.onChange(ctx, objectPace, func(f *facts) error {
		// Only a change of this object, or time, makes another look worth its requests.
		now, all := f.object(owner), f.now()
		if now == shown && time.Since(at) < paceOf(len(all.Machines)) {
			return nil
		}
		shown, at = now, time.Now()
		facts, page, err := s.Explain(ctx, owner, all.ConflictsOf(owner))
		if err != nil {
			return err
		}
		problems := view.Problems{Components: all.Components, Reading: all.Reading}
		revisions, err := s.Revisions(ctx, facts.Object)
		if err != nil {
			problems.Unseen = append(problems.Unseen, "revisions: "+told(err))
		}
		if err := s.mapsOf(ctx, f, facts.Reports, nodes); err != nil {
			problems.Unseen = append(problems.Unseen, "global variables: "+told(err))
		}
		return send(view.ObjectOf(page, facts, nodes, revisions, all.Events, problems))
	})
}

// paceOf is the minimum interval between two looks at an object that hasn't changed. Each look lists the nodes and the
// agents, so the API server's work for an open page must not grow with them.
func paceOf(nodes int) time.Duration {
	const perNode = 20 * time.Millisecond
	return max(objectPace/2, time.Duration(nodes)*perNode)
}

// maxInventories is the maximum number of nodes whose BpfNodes a view of an object reads.
const maxInventories = 20

// mapsOf adds the BpfNodes of the nodes in reports, with only the maps that the reports name, because a BpfNode can have
// a size of a megabyte. It reads one again if it lacks such a map and has changed.
func (s *Server) mapsOf(ctx context.Context, f *facts, reports []v1alpha1.ProgramObject, nodes map[string]*v1alpha1.BpfNode) error {
	wanted := map[string][]uint32{}
	for _, r := range reports {
		node := r.GetStatus().Node
		if _, found := wanted[node]; found || len(wanted) < maxInventories {
			wanted[node] = append(wanted[node], r.GetStatus().MapIDs...)
		}
	}
	var failed error
	for node, ids := range wanted {
		if known := nodes[node]; known != nil {
			missing := func(id uint32) bool {
				return !slices.ContainsFunc(known.Status.Maps, func(m v1alpha1.BpfNodeMap) bool { return m.ID == id })
			}
			i := f.inventory(node)
			if i == nil || i.Version == known.ResourceVersion || !slices.ContainsFunc(ids, missing) {
				continue
			}
		}
		err := s.Cluster.BpfNodes(ctx, []string{node}, func(n *v1alpha1.BpfNode) error {
			listed := slices.DeleteFunc(n.Status.Maps, func(m v1alpha1.BpfNodeMap) bool { return !slices.Contains(ids, m.ID) })
			n.Status = v1alpha1.BpfNodeStatus{Maps: slices.Clone(listed)} // without the rest of the array
			nodes[node] = n
			return nil
		})
		if failed == nil { // one says enough
			failed = err
		}
	}
	return failed
}

// followFailures reads on which nodes objects fail, when the status of a failing object changes. It reads only the
// reports of failing objects, because a large cluster has hundreds of thousands.
func (s *Server) followFailures(ctx context.Context) {
	read := map[v1alpha1.BpfNodeOwner]*view.Declared{}
	_ = s.facts.onChange(ctx, time.Hour, func(f *facts) error { // ends with the context
		objects := f.now().Objects
		for owner, d := range objects {
			failing := d.User != nil && d.User.GetStatus().Nodes != nil && d.User.GetStatus().Nodes.Failed > 0
			if !failing || read[owner] == d {
				continue
			}
			nodes, err := s.failingNodes(ctx, owner)
			if err != nil {
				continue // until the next change; a user who can't read reports doesn't see on which nodes objects fail
			}
			read[owner] = d
			if !slices.Equal(nodes, f.failingOf(owner)) {
				f.change(func() { f.failing[owner] = nodes })
			}
		}
		for owner := range read {
			if d := objects[owner]; d != read[owner] {
				delete(read, owner)
				f.change(func() { delete(f.failing, owner) })
			}
		}
		return nil
	})
}

func (f *facts) failingOf(owner v1alpha1.BpfNodeOwner) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failing[owner]
}

func (s *Server) failingNodes(ctx context.Context, owner v1alpha1.BpfNodeOwner) ([]string, error) {
	reports, err := cluster.Reports(ctx, s.Cluster, owner)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, r := range reports {
		status := r.GetStatus()
		if len(status.Conditions) > 0 && v1alpha1.BpfProgramConditionType(status.Conditions[0].Type).Failed() {
			nodes = append(nodes, status.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// followComponents reads the problems of the node components from time to time.
func (s *Server) followComponents(ctx context.Context) {
	const what = "problems of the components"
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		found, err := s.Cluster.Components(ctx, s.Components)
		problems := why.Problems(found)
		s.facts.change(func() {
			s.facts.components = problems
			delete(s.facts.sources, what)
			if err != nil {
				s.facts.sources[what] = &source{problem: told(err)}
			}
		})
	}, clusterPace)
}
