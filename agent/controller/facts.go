// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// since contains from which moments on an owner's plan needs the node's state. The zero value stands for the last reads.
type since struct{ interfaces, containers, podInterfaces moment }

// sinceAll returns the since of an event that isn't about a part of the node's state.
func sinceAll(at moment) since { return since{at, at, at} }

// asks contains what owners in a queue ask of the node's state. It can be used concurrently.
type asks struct {
	mu sync.Mutex
	of map[program.Key]since
}

// add adds what an owner asks. What it has asked before and not got stays.
func (a *asks) add(key program.Key, s since) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[program.Key]since{}
	}
	was := a.of[key]
	a.of[key] = since{max(was.interfaces, s.interfaces), max(was.containers, s.containers), max(was.podInterfaces, s.podInterfaces)}
}

// take returns what an owner asks, and forgets it. It returns nil if no event asked: the owner is retried, and the state is
// to be read then.
func (a *asks) take(key program.Key) *since {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, asked := a.of[key]
	delete(a.of, key)
	if !asked {
		return nil
	}
	return &s
}

// facts are the parts of the node's state that plans depend on. Each is read once for an event, however many owners the event
// concerns.
type facts struct {
	moments

	interfaces *snapshot[map[string]program.Interface]
	containers *snapshot[[]program.Container]
	// podInterfaces contains the last containers with the interfaces of their pods.
	podInterfaces *snapshot[[]program.Container]
	// announced are the containers that are about to start. The container runtime doesn't list them yet.
	announced announced
	// ended are sandboxes of the last list that have ended since.
	ended ended
}

// ended are the IDs of sandboxes that the container runtime has reported to end. The zero value is ready to use.
type ended struct {
	mu sync.Mutex
	of map[string]bool
}

// add records the end of a sandbox.
func (e *ended) add(sandbox string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = map[string]bool{}
	}
	e.of[sandbox] = true
}

// listed forgets the sandboxes that aren't listed anymore.
func (e *ended) listed(now []program.Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.of, func(sandbox string, _ bool) bool {
		return !slices.ContainsFunc(now, func(c program.Container) bool { return c.Sandbox == sandbox })
	})
}

// leave returns those of a list whose sandbox hasn't ended.
func (e *ended) leave(all []program.Container) []program.Container {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.of) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c program.Container) bool { return e.of[c.Sandbox] })
}

// newFacts returns the facts of a node, which calls affected after each read that differs from the one before, with what
// differs, and what the owners that it affects are to ask.
func newFacts(o Options, affected func(context.Context, program.Change, since)) *facts {
	f := &facts{}
	f.interfaces = newSnapshot("list network interfaces: the kernel", &f.moments, func(context.Context) (map[string]program.Interface, error) {
		found, err := o.Interfaces()
		return maps.Clone(found), err
	}, func(ctx context.Context, before, now map[string]program.Interface, began moment) {
		node, err := o.Cluster.OwnNode()
		if err != nil {
			node = &corev1.Node{}
		}
		change := program.InterfaceChange(before, now, addressesOf(node))
		change.Primary = change.Primary || err != nil && !change.Empty()
		affected(ctx, change, since{interfaces: began})
	})
	f.containers = newSnapshot("list containers: the container runtime", &f.moments, func(ctx context.Context) ([]program.Container, error) {
		pods, err := o.Cluster.Pods("") // all of the node, to recognize containers without a pod
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		return o.Containers(ctx, pods)
	}, func(ctx context.Context, before, now []program.Container, began moment) {
		change := program.ContainerChange(before, now)
		f.ended.listed(now)
		change.Containers = append(change.Containers, f.announced.listed(now)...)
		affected(ctx, change, since{containers: began})
	})
	f.podInterfaces = newSnapshot("list interfaces of pods: the container runtime", &f.moments, func(ctx context.Context) ([]program.Container, error) {
		last, err := f.containers.get(ctx, 0)
		if err != nil {
			return nil, err
		}
		found := slices.Clone(last.value)
		o.PodInterfaces(found)
		return found, nil
	}, func(ctx context.Context, before, now []program.Container, began moment) {
		affected(ctx, program.ContainerChange(before, now), since{podInterfaces: began})
	})
	return f
}

// hostInterfaces returns the host's interfaces.
func (f *facts) hostInterfaces(ctx context.Context, s *since) (map[string]program.Interface, error) {
	found, err := f.interfaces.get(ctx, f.or(s).interfaces)
	if err != nil {
		return nil, err
	}
	return found.value, nil
}

// or returns what an owner asks. Without s, it asks for reads that begin now.
func (f *facts) or(s *since) since {
	if s == nil {
		return sinceAll(f.event())
	}
	return *s
}

// running returns the containers on the node, with the interfaces of their pods if they are needed. It fails immediately
// while the container runtime, or the kernel about its processes, doesn't respond.
func (f *facts) running(ctx context.Context, s *since, interfaces bool) ([]program.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	asked := f.or(s)
	// Before the lists: what a later list has isn't announced anymore then, although these may lack it.
	announced := f.announced.all()
	last, err := f.containers.inTurn(ctx, asked.containers)
	if err == nil && interfaces {
		// A reading from now on has these containers, or later ones.
		last, err = f.podInterfaces.inTurn(ctx, max(asked.podInterfaces, last.ended))
	}
	if err != nil {
		return nil, err
	}
	return f.ended.leave(merge(last.value, announced)), nil
}

// end records the end of a sandbox, and returns what the last list has of it.
func (f *facts) end(sandbox string) []program.Container {
	last := f.containers.latest()
	if last == nil {
		return nil
	}
	gone := slices.DeleteFunc(slices.Clone(last.value), func(c program.Container) bool { return c.Sandbox != sandbox })
	if len(gone) > 0 {
		f.ended.add(sandbox)
	}
	return gone
}

// knows reports whether a sandbox was in the last list, or is announced.
func (f *facts) knows(sandbox string) bool {
	is := func(c program.Container) bool { return c.Sandbox == sandbox }
	last := f.containers.latest()
	return last != nil && slices.ContainsFunc(last.value, is) || slices.ContainsFunc(f.announced.all(), is)
}

// outlived reports whether the containers of pods that the API server doesn't have were running when containers were last
// read. There are no events about these.
func (f *facts) outlived() bool {
	last := f.containers.latest()
	return last != nil && slices.ContainsFunc(last.value, func(c program.Container) bool { return c.Deleted })
}

// podChanged reports whether the containers that the runtime has for a pod can differ between two states of the pod.
func podChanged(before, now *corev1.Pod) bool {
	return !maps.Equal(before.Labels, now.Labels) || before.Status.Phase != now.Status.Phase || hasSandbox(before) != hasSandbox(now) ||
		!slices.Equal(running(before), running(now))
}

// hasSandbox reports whether the kubelet says that the pod's sandbox and its network are ready.
func hasSandbox(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

// running returns the IDs of a pod's running containers.
func running(pod *corev1.Pod) []string {
	var ids []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.State.Running != nil {
			ids = append(ids, s.ContainerID)
		}
	}
	return ids
}
