// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package wire

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// A daemon that hangs in one call doesn't answer the probe, whichever call it is. When that call ends, the daemon answers.
func TestHang(t *testing.T) {
	c := start(t)
	answers := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return bpfman.Ask(ctx, c.Client)
	}
	must.Succeed(t, answers(bpfman.MaxSilence))

	pipe := filepath.Join(t.TempDir(), "pipe")
	must.Succeed(t, unix.Mkfifo(pipe, 0o600))
	ended := make(chan error, 1)
	go func() {
		_, err := c.Client.Load(t.Context(), &gobpfman.LoadRequest{
			Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: pipe}}, Info: []*gobpfman.LoadInfo{tcx("tcx_next")},
		})
		ended <- err
	}()
	// The open returns when the daemon has opened the pipe. The daemon reads until it is closed.
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	must.Succeed(t, err)
	if answers(2*time.Second) == nil {
		t.Error("the daemon answered while it waited for the pipe")
	}
	must.Succeed(t, writer.Close())
	if err := <-ended; err == nil {
		t.Error("loaded nothing")
	}
	must.Succeed(t, answers(bpfman.MaxSilence))
}

// The kubelet's probe waits longer than the longest call takes.
func TestProbeOutlastsLoads(t *testing.T) {
	config, _, err := deploy.ParseConfig(map[string]string{
		deploy.KeyDaemonImage: "a", deploy.KeyAgentImage: "a", deploy.KeyCSIImage: "a", deploy.KeyInspectorImage: "a",
	})
	must.Succeed(t, err)
	object, err := deploy.DaemonSet(config, "bpfman")
	must.Succeed(t, err)
	daemonSet := appsv1.DaemonSet{}
	must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &daemonSet))
	for _, container := range daemonSet.Spec.Template.Spec.Containers {
		if container.Name != deploy.DaemonContainer {
			continue
		}
		command := container.LivenessProbe.Exec.Command
		if !slices.Contains(command, "--timeout="+bpfman.MaxSilence.String()) {
			t.Errorf("%q, but a call can take %v", command, bpfman.MaxSilence)
		}
	}
}
