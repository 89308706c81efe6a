// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/node"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// Uplink is the interface through which a node reaches the API server.
	Uplink = "eth0"
	// CutOff is a part of the names of functions that drop a node's packets when they are attached to its uplink.
	CutOff = "cut_off"
	// kernel is the release of the nodes' kernel.
	kernel = "6.12.0"
	// confirmWithin is the default of the agent's --confirm-timeout, and bytecodeSize that of --bytecode-dir-size.
	confirmWithin = 30 * time.Second
	bytecodeSize  = 256 << 20
)

// Node is a node of the cluster. It can be changed while components run.
type Node struct {
	Name string
	// Agent is the node's agent, Plugin its CSI plugin, and Inspector what publishes its BpfNode.
	Agent, Plugin, Inspector *Component
	// Daemon is the node's bpfman daemon, which runs already.
	Daemon *Daemon
	// Runtime is the node's container runtime.
	Runtime *Runtime
	// Network is the node's way to the API server. Attached programs affect it: see CutOff. Cable is the next part of it.
	Network, Cable *Network

	world *World
	dir   string

	mu sync.Mutex
	// boot is the number of the boot, and booted its time.
	boot   int
	booted time.Time
	// disk is the number of the directory with what the agent stores.
	disk       int
	interfaces map[string]program.Interface
	plugin     served
	conflicts  []v1alpha1.BpfNodeConflict
	clock      time.Duration
	// wasReached and wasReady are what the Node and the agent's pod were last said to be.
	wasReached, wasReady bool
	// off means that the node is switched off. Paused are the components and pods that start when it is switched on.
	off    bool
	paused []*Component
	pods   []*corev1.Pod

	mounts mounts
	// linksChanged reports changes of interfaces, programs of changes of the daemon's programs, and power of when the node is
	// switched on or off.
	linksChanged, programs, power signal
}

// AddNode adds a node with interface [Uplink], a running daemon, and the pod of an agent that isn't started yet.
func (w *World) AddNode(name string) *Node {
	w.tb.Helper()
	n := &Node{
		Name: name, Network: newNetwork(), Cable: newNetwork(), world: w, dir: filepath.Join(w.dir, name), booted: time.Now(),
		interfaces: map[string]program.Interface{Uplink: {Index: 2}}, mounts: mounts{byTarget: map[string]Volume{}},
	}
	n.Daemon = newDaemon(filepath.Join(n.dir, "daemon"), n.programsChanged)
	n.Runtime = newRuntime(n.proc())
	n.Agent = w.component("agent/"+name, n.runAgent, n.keepDisk)
	n.Plugin = w.component("csi/"+name, n.runPlugin, nil)
	n.Inspector = w.component("inspector/"+name, n.runInspector, nil)
	w.must(n.writeBoot())
	w.must(os.MkdirAll(filepath.Join(n.proc(), "1"), 0o750)) // of init, as a sign that processes can be seen
	w.must(os.MkdirAll(n.store(), 0o750))
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	w.processes.Go(func() { n.runKubelet(w.ctx) })
	n.Join(nil)
	return n
}

// writeBoot writes the boot ID.
func (n *Node) writeBoot() error {
	dir := filepath.Join(n.proc(), "sys/kernel/random")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("create the node's /proc: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "boot_id"), []byte(n.bootID()+"\n"), 0o600)
}

// bootID returns the ID of the current boot. The caller holds mu.
func (n *Node) bootID() string { return fmt.Sprintf("%s-boot-%d", n.Name, n.boot) }

func (n *Node) proc() string { return filepath.Join(n.dir, "proc") }

// store returns the directory with what the agent stores.
func (n *Node) store() string { return filepath.Join(n.dir, fmt.Sprint("disk-", n.disk)) }

// Store returns the directory with what the agent stores. It changes when an agent crashes.
func (n *Node) Store() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store()
}

// keepDisk keeps what a crashed agent has stored, so that what it does later has no effect.
func (n *Node) keepDisk() {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.store()
	n.disk++
	n.world.must(os.CopyFS(n.store(), os.DirFS(before)))
}

// runAgent runs an agent until it ends.
func (n *Node) runAgent(p *process) error {
	store := n.Store()
	measured := metrics.New(prometheus.NewRegistry())
	a, err := agent.New(n.connect(p).config(), agent.Options{
		NodeName: n.Name, Namespace: Namespace, BytecodeDir: store, BytecodeSize: n.world.stored, Confirm: confirmWithin,
		UprobeNamespaces: []string{"*"}, Metrics: measured,
	}, agent.Node{
		Daemon:     gobpfman.NewBpfmanClient(&daemonConn{process: p, daemon: n.Daemon}),
		OnConnect:  n.Daemon.onConnect,
		DaemonRoot: n.Daemon.Root, Bpffs: filepath.Join(n.Daemon.Root, "run/bpfman/fs"),
		Proc: n.proc(), Uptime: n.uptime, Kernel: kernel,
		Interfaces: n.Interfaces, WatchInterfaces: n.watchInterfaces,
		Containers: node.NewRuntime(n.Runtime.dial).Containers, PodInterfaces: node.NewPodInterfaces(n.proc()).Set,
		CheckProcess: node.CheckProcesses(n.proc()),
		Read:         p.read,
	}, n.world.log.WithName(n.Name))
	if err != nil {
		return fmt.Errorf("create the agent of %s: %w", n.Name, err)
	}
	return a.Run(p.ctx)
}

// connect returns a process's connection to the API server. New connections need a clock that is right.
func (n *Node) connect(p *process) *connection {
	c := p.connect(n.Network, n.Cable, n.world.Network)
	c.distrusts = func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.clock != 0
	}
	return c
}

// SetClock sets the difference of the node's clock from the time of day, beside which certificates aren't valid. The kernel dates
// new programs with it. Nothing measures intervals with it.
func (n *Node) SetClock(by time.Duration) {
	n.mu.Lock()
	n.clock = by
	n.mu.Unlock()
	n.Daemon.setClock(by)
}

func (n *Node) uptime() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.booted)
}

// Interfaces returns the node's interfaces.
func (n *Node) Interfaces() (map[string]program.Interface, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.interfaces), nil
}

// SetInterface adds or changes an interface.
func (n *Node) SetInterface(name string, is program.Interface) {
	n.changeInterfaces(func(all map[string]program.Interface) { all[name] = is })
}

// RemoveInterface removes an interface.
func (n *Node) RemoveInterface(name string) {
	n.changeInterfaces(func(all map[string]program.Interface) { delete(all, name) })
}

func (n *Node) changeInterfaces(change func(map[string]program.Interface)) {
	n.mu.Lock()
	change(n.interfaces)
	n.mu.Unlock()
	n.linksChanged.change()
}

// watchInterfaces calls changed as agent/node does with the kernel's messages.
func (n *Node) watchInterfaces(ctx context.Context, changed func(), _ func(error)) {
	const settle = 50 * time.Millisecond
	for {
		next := n.linksChanged.next()
		changed()
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return
		}
	}
}

// programsChanged cuts the node off from the API server while a program that drops packets is attached to its uplink.
func (n *Node) programsChanged() {
	n.programs.change()
	for _, p := range n.Daemon.Programs() {
		if !strings.Contains(p.Function, CutOff) {
			continue
		}
		for _, link := range p.Links {
			if interfaceOf(link) == Uplink {
				n.Network.Set(Silent)
				return
			}
		}
	}
	n.Network.Set(Up)
}

func interfaceOf(link *gobpfman.AttachInfo) string {
	for _, info := range []interface{ GetIface() string }{link.GetXdpAttachInfo(), link.GetTcAttachInfo(), link.GetTcxAttachInfo()} {
		if name := info.GetIface(); name != "" {
			return name
		}
	}
	return ""
}
