// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
)

const stopTimeout = time.Minute

// marker is the file that tells a state directory from any other: nothing
// else is ever removed.
const marker = "bpfman-cluster"

var errNodeEnded = errors.New("the node's init has ended")

// cluster is one cluster of this machine.
type cluster struct {
	options
	settings component.Settings
}

// step runs one step and prints its name and time.
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

// locked runs while no other does for this instance. The lock is a socket
// without a file, which the kernel lets go of with the process.
func (c cluster) locked(ctx context.Context, run func(context.Context) error) error {
	waiting := false
	var lock net.Listener
	err := component.Wait(ctx, func(ctx context.Context) (err error) {
		lock, err = (&net.ListenConfig{}).Listen(ctx, "unix", "@"+c.settings.Cgroup)
		if err != nil && !waiting {
			waiting = true
			fmt.Println("waiting for another cluster command to end")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for another cluster command: %w", err)
	}
	defer lock.Close()
	return run(ctx)
}

// up brings the cluster up, or finds it up, with the newest images.
func (c cluster) up(ctx context.Context) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("the cluster wasn't up after %v", c.timeout))
	defer cancel()
	err := errNodeEnded
	if node.Load(c.stateDir).Alive() {
		err = c.await(ctx)
	}
	if errors.Is(err, errNodeEnded) {
		if err := c.start(ctx); err != nil {
			return err
		}
		err = c.await(ctx)
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

// start begins from nothing: remains of an earlier cluster are removed.
func (c cluster) start(ctx context.Context) error {
	if err := c.clean(ctx); err != nil {
		return err
	}
	if c.kubernetes == "" {
		return errors.New("--kubernetes must name the multi-call binary of hack/kubernetes")
	}
	if err := step("certificates and configuration", c.prepare); err != nil {
		return err
	}
	return step("namespaces, cgroups and network", func() error {
		arguments := []string{
			"--instance=" + strconv.Itoa(c.instance), "--state-dir=" + c.stateDir, "--kubernetes=" + c.kubernetes,
			"--part=" + c.part, "--uplink=" + c.uplink,
		}
		_, err := node.Start(c.settings, initProgram(c.settings), arguments)
		return err
	})
}

// prepare makes the state directory.
func (c cluster) prepare() error {
	if err := os.MkdirAll(c.stateDir, 0o755); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.stateDir, marker), nil, 0o644); err != nil {
		return fmt.Errorf("marking the state directory: %w", err)
	}
	if err := component.Write(c.settings, c.join); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	if err := os.WriteFile(initProgram(c.settings), self, 0o755); err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	return nil
}

// await waits until pods can run, loading images meanwhile.
func (c cluster) await(ctx context.Context) error {
	api, err := component.NewAPI(c.settings)
	if err != nil {
		return err
	}
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	group, ctx := errgroup.WithContext(ctx)
	ask := func(ask func(context.Context) error) error {
		return component.Wait(ctx, func(ctx context.Context) error {
			if !node.Load(c.stateDir).Alive() {
				ended(errNodeEnded)
			}
			return ask(ctx)
		})
	}
	// A node that is a machine of its own has taken that machine's network: it is asked for at
	// the control plane.
	if c.settings.Part != component.Node {
		group.Go(func() error {
			if err := step("API server ready", func() error { return ask(api.Ready) }); err != nil {
				return err
			}
			if c.settings.Part == component.ControlPlane {
				return nil
			}
			return step("node ready", func() error { return ask(api.NodeReady) })
		})
	}
	if c.settings.Part != component.ControlPlane {
		group.Go(func() error { return c.loadImages(ctx) })
	}
	return group.Wait()
}

// explain prints the end of the logs of a cluster that doesn't start.
func (c cluster) explain() {
	for _, name := range []string{"node", "kube-apiserver", "containerd", "kubelet"} {
		text, err := os.ReadFile(c.settings.Log(name))
		if err != nil || len(text) == 0 {
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		if len(lines) > 5 {
			lines = lines[len(lines)-5:]
		}
		fmt.Fprintf(os.Stderr, "--- %s\n%s\n", c.settings.Log(name), bytes.Join(lines, []byte("\n")))
	}
}

func (c cluster) writeKubeconfig() error {
	text, err := os.ReadFile(c.settings.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.kubeconfig), 0o755); err != nil {
		return fmt.Errorf("making the directory of the kubeconfig: %w", err)
	}
	if err := os.WriteFile(c.kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return nil
}

// down removes the cluster, or what is left of one.
func (c cluster) down(ctx context.Context) error {
	return step("the cluster is gone", func() error { return c.clean(ctx) })
}

func (c cluster) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, fmt.Errorf("the cluster wasn't down after %v", stopTimeout))
	defer cancel()
	entries, err := os.ReadDir(c.stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(c.stateDir, marker)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty and not a cluster's: give another --state-dir", c.stateDir)
	}
	if err := node.Stop(ctx, c.settings); err != nil {
		return err
	}
	written, err := os.ReadFile(c.settings.AdminKubeconfig())
	if err == nil {
		if published, err := os.ReadFile(c.kubeconfig); err == nil && bytes.Equal(published, written) {
			_ = os.Remove(c.kubeconfig)
		}
	}
	if err := os.RemoveAll(c.stateDir); err != nil {
		return fmt.Errorf("removing the state directory: %w", err)
	}
	return nil
}

// status prints what runs.
func (c cluster) status(ctx context.Context) error {
	state := node.Load(c.stateDir)
	if !state.Alive() {
		return errors.New("no cluster is running: make cluster-up starts one")
	}
	fmt.Printf("node        %s, process %d, files seen at %s\n", c.settings.Node, state.PID, state.Root())
	fmt.Printf("logs        %s\n", c.settings.Dir("logs"))
	fmt.Printf("registry    %s:%s, CA %s\n", c.settings.IP.Addr(), component.RegistryPort, c.settings.RegistryCA())
	fmt.Printf("kubeconfig  %s\n", c.kubeconfig)
	api, err := component.NewAPI(c.settings)
	if err != nil {
		return err
	}
	for _, check := range []struct {
		name string
		ask  func(context.Context) error
	}{{"API server", api.Ready}, {"node", api.NodeReady}} {
		if err := check.ask(ctx); err != nil {
			return fmt.Errorf("the %s is not ready: %w", check.name, err)
		}
	}
	fmt.Println("ready")
	return nil
}

// exec becomes the command, or a shell, in those namespaces of the node.
func (c cluster) exec(namespaces string, command []string) error {
	state := node.Load(c.stateDir)
	if !state.Alive() {
		return errors.New("no cluster is running: make cluster-up starts one")
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("finding nsenter: %w", err)
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		command = []string{"bash"}
	}
	args := append([]string{"nsenter", "--target", strconv.Itoa(state.PID), namespaces, "--"}, command...)
	return fmt.Errorf("executing nsenter: %w", syscall.Exec(nsenter, args, os.Environ()))
}
