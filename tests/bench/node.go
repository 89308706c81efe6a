// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/node"
)

const (
	helperNamespace = "bpfman-bench"
	helperPod       = "node-probe"
)

// helper is a pod with the node probe on the node under test, next to the daemon, so that
// no measured call crosses a network.
type helper struct {
	kubectl string
}

// startHelper creates the pod in a separate namespace.
func startHelper(ctx context.Context, c client.Client, kubectl, nodeName, image string) (helper, error) {
	h := helper{kubectl: kubectl}
	if err := h.stop(ctx); err != nil { // left by a run that was killed
		return h, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: helperNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}
	privileged, grace := true, int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: helperPod, Namespace: helperNamespace},
		Spec: corev1.PodSpec{
			NodeName: nodeName,
			// The node's /proc leads to the daemon's socket and the components' memory.
			HostPID:                       true,
			TerminationGracePeriodSeconds: &grace,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name:            helperPod,
				Image:           image,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            []string{"wait"},
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			}},
		},
	}
	for _, object := range []client.Object{namespace, pod} {
		if err := c.Create(ctx, object); err != nil {
			return h, fmt.Errorf("create helper %T: %w", object, err)
		}
	}
	if _, err := h.run(ctx, nil, "wait", "pod/"+helperPod, "--for=condition=Ready", "--timeout=60s"); err != nil {
		return h, err
	}
	return h, nil
}

func (h helper) stop(ctx context.Context) error {
	_, err := h.run(ctx, nil, "delete", "namespace", helperNamespace, "--ignore-not-found")
	return err
}

// direct makes the daemon load and attach n programs, with calls from the node.
func (h helper) direct(ctx context.Context, n int, image, function string) (node.Times, error) {
	var times node.Times
	err := h.call(ctx, &times, "time", strconv.Itoa(n), image, function)
	return times, err
}

// memory returns the resident memory, in bytes, of the node's processes with each name.
func (h helper) memory(ctx context.Context, names ...string) (map[string]int, error) {
	var resident map[string]int
	err := h.call(ctx, &resident, append([]string{"memory"}, names...)...)
	return resident, err
}

func (h helper) call(ctx context.Context, out any, args ...string) error {
	answer, err := h.run(ctx, nil, append([]string{"exec", helperPod, "--", "/node-probe"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read answer of %q in the helper pod: %w", args[0], err)
	}
	return nil
}

func (h helper) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	return runKubectl(ctx, h.kubectl, input, append([]string{"--namespace", helperNamespace}, args...)...)
}

func runKubectl(ctx context.Context, kubectl string, input []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, kubectl, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}
