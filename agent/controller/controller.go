// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package controller executes the plans of package plan. It watches the resources that a
// plan depends on, executes its steps, and reports the outcome.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

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
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
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
	// WatchInterfaces calls changed when the watch starts, and after interfaces have changed, until ctx ends. It calls failed
	// if changes are detected late. Nil means that interfaces don't change.
	WatchInterfaces func(ctx context.Context, changed func(), failed func(error))
	// Containers returns the containers and sandboxes on this node, whose pods the API server has.
	Containers func(context.Context, []corev1.Pod) ([]program.Container, error)
	// WatchContainers calls changed with the namespace and labels of pods after their sandboxes or containers have changed, until
	// ctx ends: "" and nil mean any pod. It calls failed if there are no such events. It can be nil: then the pods' statuses say
	// when containers change.
	WatchContainers func(ctx context.Context, changed func(namespace string, labels map[string]string), failed func(error))
	// WatchStarts reports the pods and containers that are about to start, until ctx ends. It can be nil: then programs are
	// attached after the start.
	WatchStarts func(ctx context.Context, starts program.Starts)
	// PodInterfaces sets the interfaces of each of these containers: those in its pod's
	// network namespace.
	PodInterfaces func([]program.Container)
	// PinsDir is the directory with maps that bytecode pins by name, or "" if there is
	// none.
	PinsDir string
	// Logs keeps the errors of Loads that are too long for an object's status.
	Logs verifierlog.Store
	// KernelTypes is the directory with the kernel's types. Without it, functions that programs trace aren't looked up.
	KernelTypes string
	// UprobeNamespaces are the namespaces whose uprobes can run for processes of others, or
	// "*" for all.
	UprobeNamespaces []string
	// Reserved are the priorities that are reserved for cluster-scoped programs.
	Reserved program.Reserved
	// Changes confirms or undoes changes of network programs. New sets its functions. Nil confirms nothing.
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

// Controller reconciles the programs on this node with the user objects: it watches what plans depend on, and has a
// queue of the owners that are affected.
type Controller struct {
	Options

	queue      *queue
	reports    *record.Reports
	reporter   *reporter
	reconciler *reconciler
	facts      *facts
	starts     *starts
	hinted     hinted
}

// New returns a Controller, which reconciles nothing before [Controller.Run]. Its Changes can be
// undone before that.
func New(o Options) *Controller {
	c := &Controller{Options: o, starts: newStarts(o.WatchStarts != nil)}
	c.facts = newFacts(o, c.enqueueAffected)
	queue := newQueue("programs", o.Metrics.Queue(), &c.facts.moments)
	if o.Changes == nil {
		o.Changes = &confirm.Changes{}
	}
	reports := &record.Reports{
		Cluster: o.Cluster, NodeName: o.NodeName, Interval: o.RelistReports, Differs: queue.Add, Changed: queue.addSharers,
	}
	reporter := &reporter{queue: newQueue("reports", o.Metrics.Queue(), nil), reports: reports, settled: queue.Add, wanted: map[program.Key]*writing{}}
	c.Options, c.queue, c.reports, c.reporter = o, queue, reports, reporter
	c.reconciler = &reconciler{
		queue:       queue,
		assignments: assignments{o.Cluster, o.NodeName, reports, o.Changes, &novelties{}},
		planner: planner{
			cluster: o.Cluster, reports: reports, nodeName: o.NodeName, uprobeNamespaces: o.UprobeNamespaces, reserved: o.Reserved,
			facts: c.facts, starts: c.starts,
		},
		policies: &gate.Policies{
			Cluster: o.Cluster, Namespace: o.Namespace, Bytecode: o.Bytecode, Read: queue.Add, RequireSignature: o.RequirePolicy,
		},
		loader:    load.New(load.Options{Inventory: o.Inventory, Bytecode: o.Bytecode, PinsDir: o.PinsDir, KernelTypes: o.KernelTypes, Logs: o.Logs, Replaced: c.tellReplaced}),
		inventory: o.Inventory, reports: reports, reporter: reporter, changes: o.Changes, metrics: o.Metrics, starts: c.starts,
	}
	o.Bytecode.Store.Used, o.Bytecode.Store.Uses, o.Bytecode.Store.Unknown = c.usedImages, c.usesOfImages, c.unreadUse
	o.Changes.Undo, o.Changes.Changed = c.reconciler.undo, queue.Add
	return c
}

// Run runs the controller until ctx ends. OnConnect calls a function each time the daemon
// becomes reachable, until its context ends. Run returns an error if the agent can't work on
// this node.
func (c *Controller) Run(ctx context.Context, onConnect func(context.Context, func())) error {
	tasks, ctx := errgroup.WithContext(ctx)
	background := func(f func(context.Context)) {
		tasks.Go(func() error {
			f(ctx)
			return nil
		})
	}
	background(c.Cluster.Events.Run)
	c.watch(ctx, background)
	background(func(ctx context.Context) { onConnect(ctx, func() { c.daemonReturned(ctx) }) })
	background(func(ctx context.Context) {
		retirement{c.Cluster, c.Inventory, c.Bpffs, c.reconciler.isAttached}.retire(ctx, replacedWithin)
	})
	background(c.watchInterfaces)
	background(c.watchContainers)
	background(c.watchStarts)
	tasks.Go(func() error { return c.compare(ctx) })
	c.work(background)
	err := tasks.Wait()
	c.reporter.finish(ctx)
	return err
}

// watchInterfaces enqueues the owners that depend on interfaces when these change.
func (c *Controller) watchInterfaces(ctx context.Context) {
	if c.WatchInterfaces == nil {
		return
	}
	c.WatchInterfaces(ctx, func() { c.interfacesChanged(ctx) }, func(err error) {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to watch network interfaces; changes are detected late")
	})
}

// watchContainers has the containers read when the runtime reports that those of a selected pod change. This is before the
// pod's status says so.
func (c *Controller) watchContainers(ctx context.Context) {
	if c.WatchContainers == nil {
		return
	}
	c.WatchContainers(ctx, func(namespace string, labels map[string]string) {
		if namespace == "" || c.anyOwner(ctx, func(owner program.Owner) bool { return owner.SelectsPod(namespace, labels) }) {
			c.facts.containers.refresh()
		}
	}, func(err error) {
		logr.FromContextOrDiscard(ctx).Info("The statuses of pods say when their containers change", "reason", err.Error())
	})
}

// work starts the workers of both queues.
func (c *Controller) work(background func(func(context.Context))) {
	for range workers {
		background(func(ctx context.Context) { c.queue.work(ctx, c.reconciler.reconcile) })
		background(func(ctx context.Context) { c.reporter.work(ctx, c.reporter.report) })
	}
	background(func(ctx context.Context) {
		<-ctx.Done()
		c.queue.ShutDown()
		c.reporter.ShutDown()
	})
}

// daemonReturned enqueues all owners after a reconnection: the daemon might have lost
// programs, and failed steps can succeed now.
func (c *Controller) daemonReturned(ctx context.Context) {
	c.reconciler.loader.Retry()
	c.Inventory.Invalidate()
	for _, key := range c.Inventory.Owners() {
		c.queue.Add(key)
	}
	c.enqueueAll(ctx)
	// Only the daemon knows about owners without objects and reports.
	if err := c.reconciler.ensureInventory(ctx); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to list the daemon's programs; retrying")
	}
}

// compare compares the inventory with the daemon's list periodically until ctx ends, so
// that programs that were unloaded by others are loaded again. It returns an error if the
// daemon has another API, because the agent can't work with it. The agent then stops with a
// termination message for the operator. By then, the reports have the error too.
func (c *Controller) compare(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, c.Drift, false, func(ctx context.Context) (bool, error) {
		changed, err := c.Inventory.Refresh(ctx)
		if daemon.SpeaksOtherAPI(err) {
			return false, err
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to compare the known programs with the daemon's")
		}
		for _, key := range changed {
			logr.FromContextOrDiscard(ctx).Info("The daemon's programs have changed outside of the agent", "object", key.String())
			c.queue.Add(key)
		}
		return false, nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// Reports returns this node's reports as they were last written or read.
func (c *Controller) Reports() []v1alpha1.ProgramObject { return c.reports.All() }

// Unwritten returns the number of objects whose reports on this node aren't written yet, for example because the API server
// refuses them.
func (c *Controller) Unwritten() int { return c.reporter.unwritten() }

// usedImages returns the images that objects on this node can use.
func (c *Controller) usedImages() []bytecode.Image {
	var images []bytecode.Image
	for _, use := range c.usesOfImages() {
		images = append(images, use.Image)
	}
	return images
}

// usesOfImages returns the images that objects on this node can use, with the objects' namespaces: those of the daemon's
// programs, and those of all objects, whether they select the node now or not.
func (c *Controller) usesOfImages() []bytecode.Use {
	used := append(c.Inventory.Images(), c.Changes.Images()...)
	for _, kind := range v1alpha1.UserKinds {
		objects, err := c.Cluster.UserObjects(kind.Name)
		if err != nil {
			continue // see unreadUse
		}
		for _, o := range objects {
			if kinds.Undecodable(o) != "" {
				continue
			}
			if image := o.GetAppCommon().ByteCode.Image; image != nil {
				used = append(used, bytecode.Use{Image: bytecode.Image{Reference: image.Url}, Namespace: o.GetNamespace()})
			}
		}
	}
	return used
}

// unreadUse returns why usedImages can lack images, or nil: the daemon's programs, or a kind that can have objects, haven't
// been read yet.
func (c *Controller) unreadUse() error {
	if !c.Inventory.Known() {
		return errors.New("the daemon's programs aren't known")
	}
	for _, kind := range v1alpha1.UserKinds {
		err := c.Cluster.Kinds.CheckReadable(kind.GroupVersionKind())
		if unread := (*kinds.UnreadError)(nil); errors.As(err, &unread) && !unread.Unused && !apierrors.IsNotFound(unread.Err) {
			return err
		}
	}
	return nil
}

// tellReplaced emits an Event about an owner whose pinned maps were replaced.
func (c *Controller) tellReplaced(owner program.Key, what string) {
	if object, err := c.Cluster.UserObject(owner.Kind, owner.Namespace, owner.Name); err == nil {
		event.Emit(c.Cluster.Events, object, corev1.EventTypeNormal, "PinsRemoved", "Load", fmt.Sprintf("Replaced maps on node %s: %s", c.NodeName, what))
	}
}
