// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nodes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	pluginComponent = "bpfman-csi"

	logTimeout = 5 * time.Second
	// maxLog is the maximum size of what is read from a log, in bytes. The plugin logs its version when it starts
	// to serve.
	maxLog = 64 << 10
)

// Logs opens the log of a container of the node components, from the start.
type Logs func(ctx context.Context, pod, container string) (io.ReadCloser, error)

// LogsOf opens logs of the pods in a namespace.
func LogsOf(pods typedcorev1.PodInterface) Logs {
	return func(ctx context.Context, pod, container string) (io.ReadCloser, error) {
		log, err := pods.GetLogs(pod, &corev1.PodLogOptions{Container: container, LimitBytes: new(int64(maxLog))}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("open the log of container %s of pod %s: %w", container, pod, err)
		}
		return log, nil
	}
}

// Versions contains the versions of the CSI plugin, by the id of its image. They come from the log of one
// container of each image, because the status of a running container contains no message. If the log's start has
// been rotated away, the version is "".
type Versions map[string]string

// learn reads one log if the version of an image isn't known, and reports whether it did. It removes images that
// no pod runs.
func (v Versions) learn(ctx context.Context, pods []corev1.Pod, logs Logs) (bool, error) {
	running := map[string]string{} // from images to pods
	for i := range pods {
		if plugin := pluginOf(&pods[i]); plugin != nil && pods[i].DeletionTimestamp == nil {
			running[plugin.ImageID] = pods[i].Name
		}
	}
	maps.DeleteFunc(v, func(image, _ string) bool { return running[image] == "" })
	for image, pod := range running {
		if _, known := v[image]; known {
			continue
		}
		version, err := versionOf(ctx, logs, pod)
		if err != nil {
			return false, err
		}
		v[image] = version
		return true, nil
	}
	return false, nil
}

// pluginOf returns the status of a pod's CSI plugin, or nil if it isn't ready.
func pluginOf(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == pluginComponent && status.Ready {
			return status
		}
	}
	return nil
}

func versionOf(ctx context.Context, logs Logs, pod string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	log, err := logs(ctx, pod, pluginComponent)
	if err != nil {
		return "", err
	}
	defer log.Close()
	lines := bufio.NewScanner(io.LimitReader(log, maxLog))
	lines.Buffer(nil, maxLog)
	for lines.Scan() {
		var line struct{ Driver, Version string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Driver == v1alpha1.CSIDriverName && line.Version != "" {
			return line.Version, nil
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return "", fmt.Errorf("read the log of container %s of pod %s: %w", pluginComponent, pod, err)
	}
	return "", nil
}
