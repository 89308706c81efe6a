// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package wire

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// A daemon that hangs doesn't answer the probe.
func TestHang(t *testing.T) {
	c := start(t)
	answers := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return bpfman.Ask(ctx, c.Client)
	}
	must.Succeed(t, answers(bpfman.MaxSilence))
	must.Succeed(t, unix.Kill(c.PID, unix.SIGSTOP))
	if answers(time.Second) == nil {
		t.Error("a daemon that is stopped answered")
	}
	must.Succeed(t, unix.Kill(c.PID, unix.SIGCONT))
	must.Succeed(t, answers(bpfman.MaxSilence))
}

// The kubelet's probe waits longer than the longest call takes.
func TestProbeOutlastsLoads(t *testing.T) {
	object, err := deploy.DaemonSet(deployed(t), "bpfman")
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
