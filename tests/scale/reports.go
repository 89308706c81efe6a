// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/envtest"
)

// firstProgram is the kernel's id of the first program of a node.
const firstProgram = 101

// reporter writes reports like agents, for nodes without an agent.
type reporter struct {
	// client has the agent's permissions: it can write reports, but can't get one. live can.
	client, live client.Client
	owners       []program.Owner
}

// newReporter returns a reporter for these objects, which must exist.
func newReporter(c *controlPlane, of []v1alpha1.UserObject) (*reporter, error) {
	config := c.as(agentAccount)
	config.UserAgent = "bpfman-agent"
	own, err := client.New(config, client.Options{Scheme: envtest.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	r := &reporter{client: own, live: c.client}
	for _, o := range of {
		owner := program.OwnerOf(kindOf(o), o)
		r.owners = append(r.owners, owner)
	}
	return r, nil
}

func kindOf(o v1alpha1.UserObject) string {
	for _, k := range v1alpha1.UserKinds {
		if reflect.TypeOf(k.New()) == reflect.TypeOf(o) {
			return k.Name
		}
	}
	return ""
}

// reportsOf returns the reports of a node on which the n-th owner's programs are loaded and attached.
func reportsOf(owner program.Owner, n int, node string) []v1alpha1.ProgramObject {
	want := plan.Want(owner, program.Node{Name: node, Interfaces: interfaces}, nil)
	id := uint32(firstProgram + 2*n) //nolint:gosec // there are hundreds, with one link each
	var actual []daemon.Program
	for _, load := range want.Loads {
		for _, p := range load.Programs {
			loaded := daemon.Program{
				ID: id, Function: p.Function(), Owner: owner.Key, OwnerUID: string(owner.UID), LoadID: load.ID,
				MapIDs: []uint32{1000 + id}, Maps: map[string]string{"counter": fmt.Sprintf("/run/bpfman/fs/maps/%d/counter", id)},
				Tag: "0123456789abcdef", LoadedAt: "2026-01-01T00:00:00+0000", Links: map[uint32]daemon.Link{},
			}
			for i, point := range p.Points {
				loaded.Links[id+1+uint32(i)] = plan.LinkOf(point)
			}
			actual = append(actual, loaded)
		}
	}
	return report.Programs(owner, node, want, actual, report.Outcome{})
}

// nodes writes all reports of the nodes from first to last, several concurrently. It returns the time of the last
// write.
func (r *reporter) nodes(ctx context.Context, first, last int) (time.Time, error) {
	var mu sync.Mutex
	var ended time.Time
	writing, ctx := errgroup.WithContext(ctx)
	writing.SetLimit(writers)
	for i := first; i < last; i++ {
		writing.Go(func() error {
			if err := r.node(ctx, nodeName(i)); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); now.After(ended) {
				ended = now
			}
			return nil
		})
	}
	err := writing.Wait()
	return ended, err
}

// node writes all reports of a node.
func (r *reporter) node(ctx context.Context, node string) error {
	for n, owner := range r.owners {
		for _, object := range reportsOf(owner, n, node) {
			if err := r.write(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// write creates a report and writes its status, like the agent.
func (r *reporter) write(ctx context.Context, object v1alpha1.ProgramObject) error {
	status := object.GetStatus().DeepCopy()
	if err := r.client.Create(ctx, object); err != nil {
		return fmt.Errorf("create report %s: %w", object.GetName(), err)
	}
	*object.GetStatus() = *status
	return r.writeStatus(ctx, object)
}

// writeStatus sets the transition times of the conditions, and writes the status.
func (r *reporter) writeStatus(ctx context.Context, object v1alpha1.ProgramObject) error {
	conditions := object.GetStatus().Conditions
	object.GetStatus().Conditions = nil
	v1alpha1.SetConditions(&object.GetStatus().Conditions, conditions...)
	if err := r.client.Status().Update(ctx, object); err != nil {
		return fmt.Errorf("write status of report %s: %w", object.GetName(), err)
	}
	return nil
}

// set sets another condition in all reports of a node, like the agent.
func (r *reporter) set(ctx context.Context, node string, condition metav1.Condition) error {
	for n, owner := range r.owners {
		for _, object := range reportsOf(owner, n, node) {
			if err := r.live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return fmt.Errorf("get report %s: %w", object.GetName(), err)
			}
			condition.ObservedGeneration = owner.Generation
			object.GetStatus().Conditions = []metav1.Condition{condition}
			if err := r.writeStatus(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove deletes all reports of nodes.
func (r *reporter) remove(ctx context.Context, first, last int) error {
	removing, ctx := errgroup.WithContext(ctx)
	removing.SetLimit(writers)
	for i := first; i < last; i++ {
		for n, owner := range r.owners {
			removing.Go(func() error {
				for _, object := range reportsOf(owner, n, nodeName(i)) {
					if err := client.IgnoreNotFound(r.client.Delete(ctx, object)); err != nil {
						return fmt.Errorf("delete report %s: %w", object.GetName(), err)
					}
				}
				return nil
			})
		}
	}
	return removing.Wait()
}

// sameAsAgents returns an error if a real agent's reports of a node differ from those of the reporter, so that
// measurements with the reporter are valid for agents. Ids depend on the order in which a node loads programs, and
// times on the clock.
func (r *reporter) sameAsAgents(ctx context.Context, node string) error {
	for n, owner := range r.owners {
		for _, made := range reportsOf(owner, n, node) {
			theirs, ok := made.DeepCopyObject().(v1alpha1.ProgramObject)
			if !ok {
				return fmt.Errorf("%T is not a report", made)
			}
			if err := r.live.Get(ctx, client.ObjectKeyFromObject(made), theirs); err != nil {
				return fmt.Errorf("get report %s: %w", made.GetName(), err)
			}
			if difference := cmp.Diff(plain(theirs), plain(made)); difference != "" {
				return fmt.Errorf("report %s of a real agent (-) isn't what is written for the other nodes (+): %s", made.GetName(), difference)
			}
		}
	}
	return nil
}

// plain returns a report without what differs between nodes, or between runs.
func plain(o v1alpha1.ProgramObject) map[string]any {
	status := o.GetStatus().DeepCopy()
	status.ProgramID, status.MapIDs = 0, make([]uint32, len(status.MapIDs))
	for i := range status.Links {
		status.Links[i].LinkID = 0
	}
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	maps := map[string]int{}
	for name := range o.GetSpec().Maps {
		maps[name]++
	}
	annotations := map[string]bool{}
	for name := range o.GetAnnotations() {
		annotations[name] = true
	}
	return map[string]any{
		"name": o.GetName(), "labels": o.GetLabels(), "annotations": annotations, "owners": o.GetOwnerReferences(),
		"type": o.GetSpec().Type, "maps": maps, "status": *status,
	}
}

// gone waits until a node has no reports.
func (r *reporter) gone(ctx context.Context, node string) error {
	return poll(ctx, "the reports of "+node+" to go", time.Minute, func(ctx context.Context) (bool, error) {
		for n, owner := range r.owners {
			for _, object := range reportsOf(owner, n, node) {
				err := r.live.Get(ctx, client.ObjectKeyFromObject(object), object)
				if !apierrors.IsNotFound(err) {
					return false, err
				}
			}
		}
		return true, nil
	})
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
