// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
)

// Init is the second stage of the node's init, which is process 1 of the node. It sets
// up the node, serves the registry, and keeps the components running until it is killed.
func Init(ctx context.Context, s component.Settings, serveRegistry func(context.Context) error) error {
	if os.Getpid() != 1 {
		return errors.New("this is for the node's first process only")
	}
	if err := unix.Sethostname([]byte(s.Node)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := setUpMounts(s); err != nil {
		return err
	}
	if err := leaveRootCgroup(); err != nil {
		return err
	}
	if err := setUpNetwork(s); err != nil {
		return err
	}
	if err := component.Install(s); err != nil {
		return err
	}
	if s.HasControlPlane() {
		go func() {
			log.Printf("registry: %v", serveRegistry(ctx))
		}()
	}
	api, err := component.NewAPI(s)
	if err != nil {
		return err
	}
	apiReady := make(chan struct{})
	go func() {
		if component.Wait(ctx, api.Ready) == nil {
			close(apiReady)
		}
	}()
	children := newSupervisor()
	for _, process := range component.Processes(s) {
		go func() {
			if process.NeedsAPI {
				<-apiReady
			}
			children.keepRunning(process, s)
		}()
	}
	children.reap()
	return nil
}

// leaveRootCgroup moves the init to a child cgroup with cgroup v2, because a v2 cgroup
// with processes can't enable controllers for its children.
func leaveRootCgroup() error {
	const root = "/sys/fs/cgroup"
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) { // cgroup v1
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the cgroup version: %w", err)
	}
	own := filepath.Join(root, "init")
	if err := os.Mkdir(own, 0o755); err != nil {
		return fmt.Errorf("create the init's cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("1"), 0); err != nil {
		return fmt.Errorf("move the init to its cgroup: %w", err)
	}
	enableControllers(root)
	return nil
}
