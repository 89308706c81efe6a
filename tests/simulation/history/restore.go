// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

// restore restores etcd from a backup, as Kubernetes' documentation asks for it: then all components are restarted. Kubelets write
// their nodes and pods again, and users apply what they want.
func (c *Cluster) restore(backup *apiserver.Snapshot) {
	c.note("RESTORE")
	var running []*simulation.Component
	for _, component := range c.Components() {
		if component.Running() {
			component.Crash()
			running = append(running, component)
		}
	}
	kept := map[string][]*unstructured.Unstructured{"nodes": c.API.List("nodes"), "pods": c.API.List("pods")}
	c.checking.Lock()
	c.API.Restore(backup)
	c.rememberAll()
	c.checking.Unlock()
	for resource, all := range kept {
		c.keepAll(resource, all)
	}
	c.mu.Lock()
	c.changed[""], c.restored = true, true
	c.mu.Unlock()
	c.applyAll()
	for _, component := range running {
		c.disturb(Fault{Target: component.Name}.of())
		component.Start()
	}
}

// rememberAll is like remember for all objects. The caller holds checking.
func (c *Cluster) rememberAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for resource := range c.objects {
		c.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	for _, group := range c.API.Resources() {
		for _, o := range c.API.List(group.String()) {
			if c.objects[group.Resource] == nil {
				c.objects[group.Resource] = map[string]*unstructured.Unstructured{}
			}
			c.objects[group.Resource][o.GetNamespace()+"/"+o.GetName()] = o
		}
	}
}

// keepAll makes the objects of a resource those that there were.
func (c *Cluster) keepAll(resource string, all []*unstructured.Unstructured) {
	there := map[string]bool{}
	for _, o := range all {
		there[o.GetNamespace()+"/"+o.GetName()] = true
		if err := c.API.Put(o); err != nil {
			c.tb.Fatal(err)
		}
	}
	for _, o := range c.API.List(resource) {
		if !there[o.GetNamespace()+"/"+o.GetName()] {
			c.must(client.IgnoreNotFound(c.Client.Delete(c.tb.Context(), o, client.GracePeriodSeconds(0))))
		}
	}
}

// applyAll makes the users' objects and RolloutPolicies those of the model.
func (c *Cluster) applyAll() {
	ctx := c.tb.Context()
	for _, kind := range v1alpha1.UserKinds {
		for _, o := range c.Objects(kind.Resource()) {
			if c.wanted(o.GetName()) == nil {
				c.must(client.IgnoreNotFound(c.Client.Delete(ctx, o)))
			}
		}
	}
	for _, wanted := range c.Model.Objects {
		o := c.objectOf(wanted)
		is := o.DeepCopyObject().(v1alpha1.UserObject) //nolint:forcetypeassert,errcheck // a copy of an object is one
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(is), is)
		switch {
		case apierrors.IsNotFound(err):
			c.must(c.Client.Create(ctx, o))
		case err != nil:
			c.must(err)
		case !reflect.DeepEqual(is.GetLabels(), o.GetLabels()) || rolloutHash(is) != rolloutHash(o):
			c.must(replace(ctx, c, chaos.Step{Object: wanted}))
		}
	}
	for _, p := range c.rolloutPolicies() {
		err := c.Client.Create(ctx, p)
		if !c.Model.Staged {
			err = client.IgnoreNotFound(c.Client.Delete(ctx, p))
		}
		if !apierrors.IsAlreadyExists(err) {
			c.must(err)
		}
	}
}

func (c *Cluster) must(err error) {
	if err != nil {
		c.tb.Fatal(err)
	}
}

// join has a node that was deleted join the cluster again, with its labels.
func (c *Cluster) join(n *simulation.Node) {
	if c.API.Get("nodes", "", n.Name) != nil {
		return
	}
	labels := map[string]string{}
	if zone := c.Model.Zones[n.Name]; zone != "" {
		labels[chaos.ZoneLabel] = zone
	}
	n.Join(labels)
}
