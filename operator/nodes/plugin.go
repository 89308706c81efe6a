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
	// maxLog is how much of a log is read, in bytes: the plugin says its version once it serves.
	maxLog = 64 << 10
)

// Logs opens the log of a container of the node components at its start.
type Logs func(ctx context.Context, pod, container string) (io.ReadCloser, error)

// LogsOf opens logs of the pods of a namespace.
func LogsOf(pods typedcorev1.PodInterface) Logs {
	return func(ctx context.Context, pod, container string) (io.ReadCloser, error) {
		log, err := pods.GetLogs(pod, &corev1.PodLogOptions{Container: container, LimitBytes: new(int64(maxLog))}).Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("open the log of container %s of pod %s: %w", container, pod, err)
		}
		return log, nil
	}
}

// Versions are those that the CSI plugin says in its log to be of, by the id of its image, of which one container is asked:
// a container that runs has no other words in its status. Where the log doesn't tell any more, as its start is gone, the
// version is "".
type Versions map[string]string

// learn reads one log, if there is an image of unknown version, and tells whether it did. Versions of images that no pod
// runs are forgotten.
func (v Versions) learn(ctx context.Context, pods []corev1.Pod, logs Logs) (bool, error) {
	running := map[string]string{} // an image's pod
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

// pluginOf is the state of a pod's CSI plugin, nil where it doesn't serve.
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
