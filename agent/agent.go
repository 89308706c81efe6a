// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package agent combines the parts of the agent of one node.
package agent

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/controller"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Component is the agent's name in requests and Events.
const Component = "bpfman-agent"

// Options are the options of the command.
type Options struct {
	// NodeName is the name of the agent's node.
	NodeName string
	// Namespace is the namespace of the Secrets and ConfigMaps that policies refer to, and of the operator's hints. It is ""
	// outside of a cluster.
	Namespace string
	// BytecodeDir is the directory for the objects of bytecode images and for the records of changes, and BytecodeSize the
	// maximum size of the objects in bytes.
	BytecodeDir  string
	BytecodeSize int64
	// Confirm is the time limit for a response of the API server after a change of network programs. 0 confirms nothing.
	Confirm time.Duration
	// RequirePolicy refuses images for which no policy in mode enforce requires a signature.
	RequirePolicy bool
	// UprobeNamespaces are the namespaces whose uprobes can run for processes of others, or "*" for all.
	UprobeNamespaces []string
	// Reserved are the priorities that are reserved for cluster-scoped programs.
	Reserved program.Reserved
	// Metrics counts what the agent does.
	Metrics *metrics.Metrics
}

// Node is what the agent uses of its node, apart from its directories.
type Node struct {
	// Daemon calls the bpfman daemon.
	Daemon gobpfman.BpfmanClient
	// OnConnect calls a function each time the daemon becomes reachable, until its context ends.
	OnConnect func(context.Context, func())
	// DaemonRoot is the path of the daemon's root file system, or "" if the agent has the same one. Bpffs is the mount point of
	// its BPF file system.
	DaemonRoot, Bpffs string
	// Proc is a directory with this boot's ID at the path that it has in /proc. Uptime returns the time since that boot. It
	// continues while the agent doesn't run.
	Proc   string
	Uptime func() time.Duration
	// Kernel is the release of the node's kernel, to which bytecode is adapted.
	Kernel string
	// Interfaces returns the host's network interfaces. WatchInterfaces calls changed after they have changed, and failed if
	// changes may have been missed.
	Interfaces      func() (map[string]program.Interface, error)
	WatchInterfaces func(ctx context.Context, changed func(), failed func(error))
	// Containers returns the containers and sandboxes on the node, whose pods the API server has. PodInterfaces sets the interfaces of each
	// of them.
	Containers    func(context.Context, []corev1.Pod) ([]program.Container, error)
	PodInterfaces func([]program.Container)
	// CheckProcess returns an error unless a process is still the one of its container or sandbox. It can be nil.
	CheckProcess func(program.Process) error
	// WatchContainers calls changed after the sandboxes or containers of a pod have changed: see [controller.Options].
	WatchContainers func(ctx context.Context, changed func(namespace string, labels map[string]string), failed func(error))
	// WatchStarts reports the pods and containers that are about to start: see [controller.Options]. It can be nil.
	WatchStarts func(ctx context.Context, starts program.Starts)
	// PinsDir is the directory with maps that bytecode pins by name, and KernelTypes the one with the kernel's types. They are
	// "" if there is none.
	PinsDir, KernelTypes string
	// Read reads an image from its registry.
	Read func(context.Context, *reader.Request, *bytecode.Files) reader.Answer
}

// Agent is the agent of one node.
type Agent struct {
	*controller.Controller

	guard *definitions.Guard
	node  Node
	log   logr.Logger
}

// changesDir is the directory of the records of changes, in the store's directory.
const changesDir = "changes"

// New returns an agent that has only read its directories.
func New(config *rest.Config, o Options, node Node, log logr.Logger) (*Agent, error) {
	server, err := cluster.New(config, Component, o.NodeName, o.Namespace, log)
	if err != nil {
		return nil, err
	}
	changes, err := newChanges(config, o, node)
	if err != nil {
		return nil, err
	}
	inventory := daemon.NewInventory(node.Daemon, node.DaemonRoot)
	inventory.Check = node.CheckProcess
	if err := inventory.RecordFormer(filepath.Join(o.BytecodeDir, changesDir, "former-daemon"), node.Proc); err != nil {
		return nil, err
	}
	store := &bytecode.Store{Dir: o.BytecodeDir, Limit: o.BytecodeSize, Kernel: node.Kernel}
	a := &Agent{node: node, log: log, Controller: controller.New(controller.Options{
		Cluster:         server,
		Namespace:       o.Namespace,
		Bytecode:        &bytecode.Library{Read: node.Read, Store: store, Observe: o.Metrics.Read},
		RequirePolicy:   o.RequirePolicy,
		Inventory:       inventory,
		NodeName:        o.NodeName,
		Drift:           time.Minute,
		Interfaces:      node.Interfaces,
		WatchInterfaces: node.WatchInterfaces,
		Containers:      node.Containers,
		PodInterfaces:   node.PodInterfaces,
		WatchContainers: node.WatchContainers,
		WatchStarts:     node.WatchStarts,
		PinsDir:         node.PinsDir,
		KernelTypes:     node.KernelTypes,
		Logs:            verifierlog.Store{Dir: filepath.Join(o.BytecodeDir, verifierlog.Dir)},

		UprobeNamespaces: o.UprobeNamespaces,
		Reserved:         o.Reserved,

		Changes: changes,
		Metrics: o.Metrics,
		Bpffs:   node.Bpffs,
	})}
	a.guard = &definitions.Guard{
		Check:  server.Definitions,
		Report: func(_ context.Context, refusal error) { log.Error(refusal, "Not starting the controllers yet") },
		Retry:  lookAgain, Interval: lookLater,
		Stop: server.Kinds.Rescoped,
	}
	server.Kinds.Held = func() error { return cmp.Or(a.guard.Held(), a.Inventory.Ready()) }
	return a, store.Open()
}

// newChanges returns what confirms changes of network programs. With the time limit 0, it only records them.
func newChanges(config *rest.Config, o Options, node Node) (*confirm.Changes, error) {
	dir := filepath.Join(o.BytecodeDir, changesDir)
	asker, err := confirm.NewAsker(config, filepath.Join(dir, "api-servers"))
	if err != nil {
		return nil, err
	}
	changes := &confirm.Changes{Limit: o.Confirm, Ask: asker.Ask, Prepare: asker.Prepare, Uptime: node.Uptime}
	return changes, changes.Open(dir, node.Proc)
}

// Intervals of checks of the cluster's CRDs: lookAgain until the controllers start, and
// lookLater after that, which is long because all nodes check. If the CRDs are of another
// bpfman, the operator reports that immediately.
const (
	lookAgain = 10 * time.Second
	lookLater = 10 * time.Minute
)

// Run runs the agent until ctx ends. It returns an error if the agent can't work on this node.
func (a *Agent) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(logr.NewContext(ctx, a.log))
	a.guard.Open = func() error {
		tasks.Go(func() error { return a.Controller.Run(ctx, a.node.OnConnect) })
		return nil
	}
	tasks.Go(func() error { return a.guard.Start(ctx) })
	tasks.Go(func() error { return a.Changes.Run(ctx) }) // also without the API server
	return errors.Join(tasks.Wait(), a.forget())         //nolint:contextcheck // ctx has ended
}

const (
	// configMap is the ConfigMap with bpfman's configuration. Without it, bpfman is being uninstalled.
	configMap = "bpfman-config"
	// forgetDeadline is the timeout for a request when the agent stops. Its pod has 15 seconds.
	forgetDeadline = 5 * time.Second
)

// forget removes the stored bytecode if bpfman is being uninstalled. Nobody else can: the
// store is on the node's disk. The records of changes stay: if the ConfigMap comes back, a version that was rolled back
// must not be tried again.
func (a *Agent) forget() error {
	ctx, stop := context.WithTimeout(context.Background(), forgetDeadline)
	defer stop()
	found, err := a.Cluster.ConfigMap(ctx, a.Namespace, configMap)
	switch {
	case a.Namespace == "": // outside of a cluster
		return nil
	case err == nil && found.DeletionTimestamp == nil:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		a.log.Error(err, "Failed to find out whether bpfman is being uninstalled; the stored bytecode is kept")
		return nil
	}
	store := a.Bytecode.Store
	a.log.Info("Bpfman is being uninstalled; removing the stored bytecode", "dir", store.Dir)
	return store.Clear(changesDir)
}
