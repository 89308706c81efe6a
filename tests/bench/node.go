// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
)

const helperNamespace = "bpfman-bench"

// helper is a pod with the node probe on the node under test, next to the daemon, so that
// no measured call crosses a network.
type helper struct {
	kubectl string
	pods    *probe.Pods
	node    string
}

// startHelper creates the pod in a separate namespace.
func startHelper(ctx context.Context, config *rest.Config, kubectl, nodeName, image string) (helper, error) {
	h := helper{kubectl: kubectl, node: nodeName}
	if err := h.stop(ctx); err != nil { // left by a run that was killed
		return h, err
	}
	var err error
	h.pods, err = probe.Start(ctx, config, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: helperNamespace}}, image, []string{nodeName}, time.Minute)
	return h, err
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
	return probe.Ask[node.Times](ctx, h.pods.On(h.node), "time", strconv.Itoa(n), file, function)
}

// shipped makes the daemon that runs as upstream ships it load and attach n programs of
// an image.
func (h helper) shipped(ctx context.Context, n int, image, function string) (node.Times, error) {
	return probe.Ask[node.Times](ctx, h.pods.In(shippedPod), "time-at", shippedSocket, strconv.Itoa(n), image, function)
}

// stored returns the file from which the cluster's daemon loads an image.
func (h helper) stored(ctx context.Context, image string) (string, error) {
	files, err := probe.Ask[[]string](ctx, h.pods.On(h.node), "list", node.Daemon, storeDir)
	if err != nil {
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
	_, err := probe.Ask[any](ctx, h.pods.On(h.node), "lose-state")
	return err
}

// thaw lets the frozen processes go on.
func (h helper) thaw(ctx context.Context) error {
	var failed error
	for _, executable := range []string{node.Daemon, node.Agent} {
		_, err := probe.Ask[any](context.WithoutCancel(ctx), h.pods.On(h.node), "continue", executable)
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
	return probe.Ask[map[string]int](ctx, h.pods.On(h.node), append([]string{"memory"}, names...)...)
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
