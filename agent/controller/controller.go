// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package controller executes the plans of package plan. It watches the resources that a
// plan depends on, executes its steps, and reports the outcome.
package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/gate"
	"github.com/bpfman/bpfman-operator/agent/load"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/record"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// Options are what a Controller needs of its node and of the cluster.
type Options struct {
	// Cluster provides access to the API server.
	Cluster *cluster.Cluster
	// Namespace is the agent's namespace, with the Secrets and ConfigMaps that policies
	// refer to.
	Namespace string
	// Bytecode answers what is in an image, and who signed it. New sets which images its store keeps.
	Bytecode *bytecode.Library
	// RequirePolicy refuses images for which no policy in mode enforce requires a
	// signature.
	RequirePolicy bool
	// Inventory contains the daemon's programs.
	Inventory *daemon.Inventory
	// NodeName is the name of the agent's node.
	NodeName string
	// Drift is the interval of comparing the inventory with the daemon's list.
	Drift time.Duration
	// Bpffs is the mount point of the daemon's BPF file system.
	Bpffs string
	// Interfaces returns the host's network interfaces.
	Interfaces func() (map[string]program.Interface, error)
	// Containers returns the running containers of pods on this node.
	Containers func(context.Context, []corev1.Pod) ([]program.Container, error)
	// PodInterfaces sets the interfaces of each of these containers: those in its pod's
	// network namespace.
	PodInterfaces func([]program.Container)
	// PinsDir is the directory with maps that bytecode pins by name, or "" if there is
	// none.
	PinsDir string
	// UprobeNamespaces are the namespaces whose uprobes can run for processes of others, or
	// "*" for all.
	UprobeNamespaces []string
	// Changes confirms or undoes changes of network programs. It can be nil. New sets its functions.
	Changes *confirm.Changes
	// Metrics counts repairs. It can be nil.
	Metrics *metrics.Metrics
	// FindKinds is the average interval of checks for the first object of an unused kind,
	// in case there is no hint from the operator. 0 means 4 minutes.
	FindKinds time.Duration
	// RelistReports is the minimum interval of periodic lists of this node's reports. The
	// maximum is twice as long. 0 means 3 hours.
	RelistReports time.Duration
}

// Controller reconciles the programs on this node with the user objects.
type Controller struct {
	Options

	queue    *queue
	reports  *record.Reports
	hinted   hinted
	policies *gate.Policies
	loader   *load.Loader
	// undoing is held for writing while a change is undone, and for reading while plans are executed.
	undoing sync.RWMutex
	// sharers contains the keys of owners that use maps of other programs.
	sharers sync.Map
}

// New returns a Controller, which reconciles nothing before [Controller.Run]. Its Changes can be
// undone before that.
func New(o Options) *Controller {
	c := &Controller{Options: o, queue: newQueue(o.Metrics.Queue())}
	c.reports = &record.Reports{
		Cluster: o.Cluster, NodeName: o.NodeName, Interval: o.RelistReports,
		Differs: func(key program.Key) { c.queue.Add(key) }, Changed: c.enqueueSharers,
	}
	c.policies = &gate.Policies{
		Cluster: o.Cluster, Namespace: o.Namespace, Bytecode: o.Bytecode, RequireSignature: o.RequirePolicy,
		Read: func(key program.Key) { c.queue.Add(key) },
	}
	c.loader = &load.Loader{Inventory: o.Inventory, Bytecode: o.Bytecode, PinsDir: o.PinsDir, Replaced: c.tellReplaced}
	o.Bytecode.Store.Used = c.usedImages
	if o.Changes != nil {
		o.Changes.Undo, o.Changes.Changed = c.undo, c.queue.Add
	}
	return c
}

// Reports returns this node's reports as they were last written or read.
func (c *Controller) Reports() []v1alpha1.ProgramObject { return c.reports.All() }

// usedImages returns the images that objects on this node can use: those of the daemon's
// programs, and those of all objects, whether they select the node now or not.
func (c *Controller) usedImages() []bytecode.Image {
	used := append(c.Inventory.Images(), c.Changes.Images()...)
	for _, kind := range v1alpha1.UserKinds {
		objects, err := c.Cluster.UserObjects(kind.Name)
		if err != nil {
			continue // kinds that aren't read have no objects that the agent knows
		}
		for _, o := range objects {
			if kinds.Undecodable(o) != "" {
				continue
			}
			if image := o.GetAppCommon().ByteCode.Image; image != nil {
				used = append(used, bytecode.Image{Reference: image.Url})
			}
		}
	}
	return used
}

// tellReplaced emits an Event about an owner whose pinned maps were replaced.
func (c *Controller) tellReplaced(owner program.Key, what string) {
	if object, err := c.Cluster.UserObject(owner.Kind, owner.Namespace, owner.Name); err == nil {
		event.Emit(c.Cluster.Events, object, corev1.EventTypeNormal, "PinsRemoved", "Load", fmt.Sprintf("Replaced maps on node %s: %s", c.NodeName, what))
	}
}
