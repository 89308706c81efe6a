// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
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
	return h, h.awaitReady(ctx, helperPod)
}

func (h helper) awaitReady(ctx context.Context, pod string) error {
	_, err := h.run(ctx, "wait", "pod/"+pod, "--for=condition=Ready", "--timeout=60s")
	return err
}

func (h helper) stop(ctx context.Context) error {
	_, err := h.run(ctx, "delete", "namespace", helperNamespace, "--ignore-not-found")
	return err
}

// direct makes the cluster's daemon load and attach n programs of a file in the store,
// with calls from the node.
func (h helper) direct(ctx context.Context, n int, file, function string) (node.Times, error) {
	var times node.Times
	err := h.call(ctx, &times, "time", strconv.Itoa(n), file, function)
	return times, err
}

// shipped makes the daemon that runs as upstream ships it load and attach n programs of
// an image.
func (h helper) shipped(ctx context.Context, n int, image, function string) (node.Times, error) {
	var times node.Times
	err := h.callIn(ctx, shippedPod, helperPod, &times, "time-at", shippedSocket, strconv.Itoa(n), image, function)
	return times, err
}

// stored returns the file from which the cluster's daemon loads an image.
func (h helper) stored(ctx context.Context, image string) (string, error) {
	var files []string
	if err := h.call(ctx, &files, "list", node.Daemon, storeDir); err != nil {
		return "", err
	}
	file := storedFile(files, image)
	if file == "" {
		return "", fmt.Errorf("the store %s on the node has no object of %s, only %v: does the agent keep what it reads?", storeDir, image, files)
	}
	return file, nil
}

// loseState removes what a reboot of the node removes, and freezes the agent.
func (h helper) loseState(ctx context.Context) error {
	_, err := h.run(ctx, "exec", helperPod, "--", "/node-probe", "lose-state")
	return err
}

// thaw lets the frozen processes go on.
func (h helper) thaw(ctx context.Context) error {
	var failed error
	for _, executable := range []string{node.Daemon, node.Agent} {
		_, err := h.run(context.WithoutCancel(ctx), "exec", helperPod, "--", "/node-probe", "continue", executable)
		failed = errors.Join(failed, err)
	}
	return failed
}

// storeDir is the directory of the agent's store of objects.
const storeDir = "/var/lib/bpfman/bytecode/images"

// storedFile returns the object of an image among files in the order of their change. With
// several digests, it is the newest. The store names objects <repository>@<digest>.o.
func storedFile(files []string, image string) string {
	repository := repositoryOf(image)
	for _, file := range slices.Backward(files) {
		name, found := strings.CutPrefix(file, storeDir+"/"+repository+"@sha256:")
		if found && strings.HasSuffix(name, ".o") {
			return file
		}
	}
	return ""
}

// repositoryOf returns a reference without its tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		image = image[:colon]
	}
	return image
}

// memory returns the resident memory, in bytes, of the node's processes with each name.
func (h helper) memory(ctx context.Context, names ...string) (map[string]int, error) {
	var resident map[string]int
	err := h.call(ctx, &resident, append([]string{"memory"}, names...)...)
	return resident, err
}

func (h helper) call(ctx context.Context, out any, args ...string) error {
	return h.callIn(ctx, helperPod, helperPod, out, args...)
}

func (h helper) callIn(ctx context.Context, pod, container string, out any, args ...string) error {
	answer, err := h.run(ctx, append([]string{"exec", pod, "--container", container, "--", "/node-probe"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("read answer of %q in the helper pod: %w", args[0], err)
	}
	return nil
}

func (h helper) run(ctx context.Context, args ...string) ([]byte, error) {
	return runKubectl(ctx, h.kubectl, nil, append([]string{"--namespace", helperNamespace}, args...)...)
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
