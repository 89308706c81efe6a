// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

// process is the plugin as a separate process, with a fake daemon.
type process struct {
	kubelet
	arguments []string
	command   *exec.Cmd
}

func newProcess(tb testing.TB) *process {
	tb.Helper()
	directory := sandbox.Root(tb)
	sandbox.MountBPFFS(tb, filepath.Join(directory, "fs"))
	daemon := daemontest.New("/")
	daemon.MapsRoot, daemon.Maps = filepath.Join(directory, "fs/maps"), nil
	id := load(tb, daemon, "TracepointProgram", "")
	sandbox.PinMaps(tb, filepath.Join(daemon.MapsRoot, fmt.Sprint(id)), counterMap)
	socket := filepath.Join(directory, "bpfman.sock")
	daemon.Serve(tb, socket)
	return startProcess(tb, socket, daemon.MapsRoot)
}

// startProcess starts the plugin with a daemon.
func startProcess(tb testing.TB, daemonSocket, mapsRoot string) *process {
	tb.Helper()
	directory := sandbox.Root(tb)
	p := &process{kubelet: kubelet{options: options{
		endpoint: filepath.Join(directory, "csi.sock"), kubeletRoot: filepath.Join(directory, "kubelet"),
	}}}
	p.arguments = []string{
		"--endpoint=unix://" + p.endpoint, "--daemon-socket=" + daemonSocket, "--node-name=node-1",
		"--maps-root=" + mapsRoot, "--kubelet-root=" + p.kubeletRoot,
		"--metrics-address=127.0.0.1:0",
	}
	if err := os.MkdirAll(filepath.Join(p.kubeletRoot, "pods"), 0o755); err != nil {
		tb.Fatal(err)
	}
	p.start(tb)
	return p
}

// start starts the process, and waits until it responds.
func (p *process) start(tb testing.TB) {
	tb.Helper()
	if binary := os.Getenv(envBinary); binary != "" {
		p.command = sandbox.StartBinary(tb, binary, p.arguments...)
	} else {
		p.command = sandbox.Start(tb, "plugin", p.arguments...)
	}
	p.connect(tb)
}

func (p *process) kill(tb testing.TB) {
	tb.Helper()
	if err := p.command.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	_ = p.command.Wait()
}

// publishAll publishes the volumes concurrently, and returns the number of successes.
func (p *process) publishAll(tb testing.TB, requests []*csi.NodePublishVolumeRequest, done func()) int {
	tb.Helper()
	var published atomic.Int32
	var group sync.WaitGroup
	for _, request := range requests {
		group.Go(func() {
			if _, err := p.node.NodePublishVolume(tb.Context(), request); err == nil {
				published.Add(1)
			}
			done()
		})
	}
	group.Wait()
	return int(published.Load())
}

func TestKilledPlugin(t *testing.T) {
	p := newProcess(t)
	const rounds, volumes = 10, 20
	for round := range rounds {
		requests := make([]*csi.NodePublishVolumeRequest, volumes)
		for i := range requests {
			requests[i] = p.request(t, fmt.Sprintf("pod-%d-%d", round, i))
		}
		// The kill interrupts the other publications at any step.
		var first sync.Once
		p.publishAll(t, requests, func() { first.Do(func() { p.kill(t) }) })
		p.start(t)
		if published := p.publishAll(t, requests, func() {}); published != volumes {
			t.Fatalf("%d of %d volumes after the retry", published, volumes)
		}
		if mounts := sandbox.Mounts(t, p.kubeletRoot); mounts != volumes {
			t.Fatalf("%d mounts, want %d", mounts, volumes)
		}
		var group sync.WaitGroup
		for i, request := range requests {
			group.Go(func() {
				if i == 0 {
					p.kill(t)
					return
				}
				_, _ = p.node.NodeUnpublishVolume(t.Context(), unpublishOf(request))
			})
		}
		group.Wait()
		p.start(t)
		p.unpublish(t, requests...)
		if mounts := sandbox.Mounts(t, p.kubeletRoot); mounts != 0 {
			t.Fatalf("%d mounts left", mounts)
		}
		left, err := filepath.Glob(filepath.Join(p.kubeletRoot, "pods/*/volumes/kubernetes.io~csi/maps/mount"))
		if err != nil || len(left) != 0 {
			t.Fatalf("directories left: %v, %v", left, err)
		}
	}
}

func TestRestartWithLiveVolumes(t *testing.T) {
	const volumes, maxReady = 200, 2 * time.Second
	p := newProcess(t)
	requests := make([]*csi.NodePublishVolumeRequest, volumes)
	for i := range requests {
		requests[i] = p.request(t, fmt.Sprint("pod-", i))
	}
	if published := p.publishAll(t, requests, func() {}); published != volumes {
		t.Fatalf("%d of %d volumes", published, volumes)
	}
	// The target for the plugin's own binary is 25 MB.
	t.Logf("RSS after %d volumes at once: %d kB", volumes, residentKB(t, p.command.Process.Pid))
	before := mountTable(t)
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(p.endpoint); !os.IsNotExist(err) {
		t.Errorf("socket left behind: %v", err)
	}
	start := time.Now()
	p.start(t)
	if took := time.Since(start); took > maxReady {
		t.Errorf("ready after %v", took)
	}
	if mountTable(t) != before {
		t.Error("the restart changed the mount table")
	}
	p.unpublish(t, requests...)
	if mounts := sandbox.Mounts(t, p.kubeletRoot); mounts != 0 {
		t.Errorf("%d mounts left", mounts)
	}
}

func mountTable(tb testing.TB) string {
	tb.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		tb.Fatal(err)
	}
	return string(table)
}

// residentKB returns the VmRSS of a process.
func residentKB(tb testing.TB, pid int) int {
	tb.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if value, ok := strings.CutPrefix(scanner.Text(), "VmRSS:"); ok {
			var kB int
			if _, err := fmt.Sscan(value, &kB); err != nil {
				tb.Fatal(err)
			}
			return kB
		}
	}
	tb.Fatal("no VmRSS")
	return 0
}

// TestReboot simulates a reboot of the node. The mounts no longer exist, but the
// directories do. The kubelet publishes the volumes of pods that start again, and
// unpublishes the others.
func TestReboot(t *testing.T) {
	const volumes = 20
	p := newProcess(t)
	requests := make([]*csi.NodePublishVolumeRequest, volumes)
	for i := range requests {
		requests[i] = p.request(t, fmt.Sprint("pod-", i))
	}
	if published := p.publishAll(t, requests, func() {}); published != volumes {
		t.Fatalf("%d of %d volumes", published, volumes)
	}
	p.kill(t)
	for _, request := range requests {
		if err := syscall.Unmount(request.GetTargetPath(), 0); err != nil {
			t.Fatal(err)
		}
	}
	p.start(t)
	again, ended := requests[:volumes/2], requests[volumes/2:]
	if published := p.publishAll(t, again, func() {}); published != len(again) {
		t.Errorf("%d of %d volumes after the reboot", published, len(again))
	}
	for _, request := range again {
		mapID(t, filepath.Join(request.GetTargetPath(), counterMap))
	}
	p.unpublish(t, ended...)
	for _, request := range ended {
		if _, err := os.Lstat(request.GetTargetPath()); !os.IsNotExist(err) {
			t.Errorf("directory left: %v", err)
		}
	}
	if mounts := sandbox.Mounts(t, p.kubeletRoot); mounts != len(again) {
		t.Errorf("%d mounts, want %d", mounts, len(again))
	}
	p.unpublish(t, again...)
	if mounts := sandbox.Mounts(t, p.kubeletRoot); mounts != 0 {
		t.Errorf("%d mounts left", mounts)
	}
}
