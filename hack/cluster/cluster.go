// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
)

const stopTimeout = time.Minute

// marker is a file that identifies a state directory. Other directories are never removed.
const marker = "bpfman-cluster"

var errNodeEnded = errors.New("a node's init has ended")

// cluster is a cluster on this machine, or a cluster on another machine that this machine joins
// as a node.
type cluster struct {
	options
	number int // the node that the command is about
}

// settings returns the settings of a node.
func (c cluster) settings(number int) component.Settings {
	s := component.Default(uint8(c.instance), c.stateDir, c.kubernetes, number)
	s.Containerd, s.ControlPlaneOnly, s.Uplink = c.containerd, c.controlPlaneOnly, c.uplink
	return s
}

// nodes returns the nodes that have been started on this machine, no matter whether they are
// running.
func (c cluster) nodes() []component.Settings {
	var nodes []component.Settings
	for number := 1; number <= component.MaxNodes; number++ {
		if s := c.settings(number); node.Load(s.StateDir) != nil {
			nodes = append(nodes, s)
		}
	}
	return nodes
}

// commanded returns the node that the command is about, which must have been started.
func (c cluster) commanded() (component.Settings, error) {
	s := c.settings(c.number)
	if node.Load(s.StateDir) == nil {
		return s, fmt.Errorf("there is no node %s: to start nodes, run make cluster-up and cluster add-node", s.Node)
	}
	return s, nil
}

// step runs one step, and prints its name and duration.
func step(name string, run func() error) error {
	start := time.Now()
	err := run()
	outcome := ""
	if err != nil {
		outcome = "  failed"
	}
	fmt.Printf("%6.1fs  %s%s\n", time.Since(start).Seconds(), name, outcome)
	return err
}

// locked runs a function while it holds the lock of this instance. The lock is a socket without a
// file, which the kernel releases when the process ends.
func (c cluster) locked(ctx context.Context, run func(context.Context) error) error {
	waiting := false
	var lock net.Listener
	err := component.Wait(ctx, func(ctx context.Context) (err error) {
		lock, err = (&net.ListenConfig{}).Listen(ctx, "unix", "@"+c.settings(1).Cgroup)
		if err != nil && !waiting {
			waiting = true
			fmt.Println("waiting for another cluster command to end")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for another cluster command: %w", err)
	}
	defer lock.Close()
	return run(ctx)
}

// up starts the cluster unless it is running, with at least the requested number of nodes, and
// loads the newest images.
func (c cluster) up(ctx context.Context) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the cluster wasn't up after %v", c.timeout))
	defer cancel()
	err := c.bringUp(ctx)
	// A node that looked alive can have been ending.
	if errors.Is(err, errNodeEnded) {
		err = c.bringUp(ctx)
	}
	if err != nil {
		c.explain()
		return err
	}
	if err := c.writeKubeconfig(); err != nil {
		return err
	}
	fmt.Printf("%6.1fs  the cluster is up: export KUBECONFIG=%s\n", time.Since(start).Seconds(), c.kubeconfig)
	return nil
}

// bringUp starts the nodes that aren't running, and waits for all nodes.
func (c cluster) bringUp(ctx context.Context) error {
	var numbers []int
	if c.join == "" {
		for number := range max(1, c.atLeast) {
			numbers = append(numbers, 1+number)
		}
	} else {
		numbers = append(numbers, c.number)
	}
	// Without the first node, there is no cluster. Remove what is left of an earlier one.
	if !node.Load(c.settings(numbers[0]).StateDir).Alive() {
		if err := c.clean(ctx); err != nil {
			return err
		}
	}
	for _, s := range c.nodes() {
		numbers = append(numbers, s.Number)
	}
	slices.Sort(numbers)
	if err := c.start(slices.Compact(numbers)); err != nil {
		return err
	}
	return c.await(ctx, c.nodes())
}

// start starts the given nodes, unless they are running.
func (c cluster) start(numbers []int) error {
	if c.kubernetes == "" {
		return errors.New("--kubernetes must name the multi-call binary of hack/kubernetes")
	}
	var asleep, unknown []component.Settings
	for _, number := range numbers {
		s := c.settings(number)
		state := node.Load(s.StateDir)
		if !state.Alive() {
			asleep = append(asleep, s)
		}
		if state == nil {
			unknown = append(unknown, s)
		}
	}
	if len(asleep) == 0 {
		return nil
	}
	if err := step("certificates and configuration", func() error { return c.configure(unknown) }); err != nil {
		return err
	}
	return step("namespaces, cgroups and network", func() error { return c.switchOn(asleep) })
}

// configure writes the files that nodes read when they start.
func (c cluster) configure(nodes []component.Settings) error {
	if err := c.prepare(); err != nil {
		return err
	}
	for _, s := range nodes {
		if err := component.Write(s, cmp.Or(c.join, c.stateDir)); err != nil {
			return err
		}
	}
	return nil
}

// switchOn starts the init of each node, after it creates the network if necessary.
func (c cluster) switchOn(nodes []component.Settings) error {
	if c.join == "" {
		if err := node.MakeNetwork(c.settings(1)); err != nil {
			return err
		}
	}
	for _, s := range nodes {
		if _, err := node.Start(s, c.initProgram(), c.arguments(s)); err != nil {
			return fmt.Errorf("start node %s: %w", s.Node, err)
		}
	}
	return nil
}

// arguments returns the command line of a node's init.
func (c cluster) arguments(s component.Settings) []string {
	return []string{
		"--instance=" + strconv.Itoa(c.instance), "--state-dir=" + c.stateDir, "--kubernetes=" + c.kubernetes, "--containerd=" + c.containerd,
		"--node=" + strconv.Itoa(s.Number), "--control-plane-only=" + strconv.FormatBool(c.controlPlaneOnly), "--uplink=" + c.uplink,
	}
}

// prepare creates the state directory of the cluster.
func (c cluster) prepare() error {
	if err := os.MkdirAll(c.stateDir, 0o755); err != nil {
		return fmt.Errorf("create the state directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.stateDir, marker), nil, 0o644); err != nil {
		return fmt.Errorf("mark the state directory: %w", err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	// Replace the file by renaming, because the other nodes run the existing one.
	if err := os.WriteFile(c.initProgram()+".new", self, 0o755); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	if err := os.Rename(c.initProgram()+".new", c.initProgram()); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return nil
}

// await waits until pods can run on the nodes. It loads images in the meantime.
func (c cluster) await(ctx context.Context, nodes []component.Settings) error {
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	group, ctx := errgroup.WithContext(ctx)
	ask := func(s component.Settings, ask func(context.Context) error) error {
		return component.Wait(ctx, func(ctx context.Context) error {
			if !node.Load(s.StateDir).Alive() {
				ended(errNodeEnded)
			}
			return ask(ctx)
		})
	}
	for _, s := range nodes {
		// The network of a machine that is a node is the node's, so this check runs on the
		// control plane.
		if s.Uplink != "" {
			continue
		}
		api, err := component.NewAPI(s)
		if err != nil {
			return err
		}
		group.Go(func() error {
			if s.HasControlPlane() {
				if err := step("API server ready", func() error { return ask(s, api.Ready) }); err != nil {
					return err
				}
			}
			if !s.RunsPods() {
				return nil
			}
			// After a restart, the node's status can still be that of the previous run.
			since := node.Load(s.StateDir).Started
			return step("node "+s.Node+" ready", func() error {
				return ask(s, func(ctx context.Context) error { return api.NodeReady(ctx, since) })
			})
		})
	}
	group.Go(func() error { return c.loadImagesOn(ctx, nodes) })
	return group.Wait()
}

// explain prints the end of the logs of nodes that don't start.
func (c cluster) explain() {
	for _, s := range c.nodes() {
		for _, name := range []string{"node", "kube-apiserver", "containerd", "kubelet"} {
			text, err := os.ReadFile(s.Log(name))
			if err != nil || len(text) == 0 {
				continue
			}
			lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
			if len(lines) > 5 {
				lines = lines[len(lines)-5:]
			}
			fmt.Fprintf(os.Stderr, "--- %s\n%s\n", s.Log(name), bytes.Join(lines, []byte("\n")))
		}
	}
}

func (c cluster) writeKubeconfig() error {
	text, err := os.ReadFile(c.settings(c.number).AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.kubeconfig), 0o755); err != nil {
		return fmt.Errorf("create the directory of the kubeconfig: %w", err)
	}
	if err := os.WriteFile(c.kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// down removes the cluster, or what is left of it.
func (c cluster) down(ctx context.Context) error {
	return step("the cluster is removed", func() error { return c.clean(ctx) })
}

func (c cluster) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, fmt.Errorf("the cluster wasn't down after %v", stopTimeout))
	defer cancel()
	entries, err := os.ReadDir(c.stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(c.stateDir, marker)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty, and doesn't belong to a cluster: specify another --state-dir", c.stateDir)
	}
	// Stop all possible nodes, because one can be starting.
	for number := 1; number <= component.MaxNodes; number++ {
		if err := node.Stop(ctx, c.settings(number)); err != nil {
			return err
		}
	}
	if err := node.RemoveNetwork(c.settings(1)); err != nil {
		return err
	}
	written, err := os.ReadFile(c.settings(1).AdminKubeconfig())
	if err == nil {
		if published, err := os.ReadFile(c.kubeconfig); err == nil && bytes.Equal(published, written) {
			_ = os.Remove(c.kubeconfig)
		}
	}
	if err := os.RemoveAll(c.stateDir); err != nil {
		return fmt.Errorf("remove the state directory: %w", err)
	}
	return nil
}

// status prints the state of the nodes.
func (c cluster) status(ctx context.Context) error {
	nodes := c.nodes()
	if len(nodes) == 0 {
		return errors.New("no cluster is running: to start one, run make cluster-up")
	}
	first := c.settings(1)
	fmt.Printf("registry    %s:%s, CA %s\n", first.API, component.RegistryPort, first.RegistryCA())
	fmt.Printf("kubeconfig  %s\n", c.kubeconfig)
	var wrong []error
	for _, s := range nodes {
		state := node.Load(s.StateDir)
		if !state.Alive() {
			fmt.Printf("node        %s doesn't run: cluster --node %d boot starts it\n", s.Node, s.Number)
			wrong = append(wrong, fmt.Errorf("the node %s doesn't run", s.Node))
			continue
		}
		fmt.Printf("node        %s, %s, process %d, files seen at %s, logs in %s\n", s.Node, s.IP.Addr(), state.PID, state.Root(), s.Dir("logs"))
		if err := ready(ctx, s); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	fmt.Println("ready")
	return nil
}

// ready returns nil if the node is ready, and the API server too, if the node has one.
func ready(ctx context.Context, s component.Settings) error {
	api, err := component.NewAPI(s)
	if err != nil {
		return err
	}
	if s.HasControlPlane() {
		if err := api.Ready(ctx); err != nil {
			return fmt.Errorf("the API server is not ready: %w", err)
		}
	}
	if !s.RunsPods() {
		return nil
	}
	if err := api.NodeReady(ctx, time.Time{}); err != nil {
		return fmt.Errorf("the node %s is not ready: %w", s.Node, err)
	}
	return nil
}

// exec replaces this process with a command, or a shell, inside the node.
func (c cluster) exec(command []string) error {
	s, err := c.commanded()
	if err != nil {
		return err
	}
	state := node.Load(s.StateDir)
	if !state.Alive() {
		return fmt.Errorf("the node %s doesn't run: cluster --node %d boot starts it", s.Node, s.Number)
	}
	return enter(command, "--target", strconv.Itoa(state.PID), "--all")
}

// execNet replaces this process with a command, or a shell, in the cluster's network.
func (c cluster) execNet(command []string) error {
	if len(c.nodes()) == 0 {
		return errors.New("no cluster is running: to start one, run make cluster-up")
	}
	return enter(command, "--net="+c.settings(1).Network())
}

// enter replaces this process with a command, or a shell, in the given namespaces.
func enter(command []string, namespaces ...string) error {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("find nsenter: %w", err)
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		command = []string{"bash"}
	}
	args := slices.Concat([]string{"nsenter"}, namespaces, []string{"--"}, command)
	return fmt.Errorf("execute nsenter: %w", syscall.Exec(nsenter, args, os.Environ()))
}
