// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RunPod creates a pod for the node. Its kubelet mounts the pod's volumes, and then starts its containers, of which there is one
// by default.
func (n *Node) RunPod(pod *corev1.Pod) {
	n.world.tb.Helper()
	pod.Spec.NodeName = n.Name
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "main"}}
	}
	pod.Status.Phase = corev1.PodPending
	n.world.Create(pod)
	n.startPod(pod.DeepCopy())
}

func (n *Node) startPod(pod *corev1.Pod) {
	ctx, stop := context.WithCancelCause(context.Background())
	n.Runtime.keep(pod, stop)
	n.world.processes.Go(func() { n.keepPod(ctx, pod.DeepCopy()) })
}

const (
	// mountRetry and mountRetryMost are the delays between the kubelet's attempts to mount a volume.
	mountRetry, mountRetryMost = 500 * time.Millisecond, 2*time.Minute + 2*time.Second
	// republish is the interval of the calls for a volume that is mounted (requiresRepublish).
	republish = 75 * time.Second
)

// keepPod does what a kubelet does for a pod until it is removed.
func (n *Node) keepPod(ctx context.Context, pod *corev1.Pod) {
	volumes, pause, running := volumesOf(pod), mountRetry, false
	for {
		mounted := true
		for _, v := range volumes {
			mounted = callPlugin(n, v, csi.NodeServer.NodePublishVolume) == nil && mounted
		}
		if ctx.Err() == nil && mounted && !running {
			running = true
			n.world.must(n.Runtime.run(pod))
			n.reportPod(pod)
		}
		wait := republish
		if !mounted {
			wait, pause = pause, min(2*pause, mountRetryMost)
		}
		if running && len(volumes) == 0 {
			wait = math.MaxInt64
		}
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), errPowerOff) {
				n.unmount(volumes) //nolint:contextcheck // the kubelet unmounts when ctx has ended
			}
			return
		case <-time.After(wait):
		}
	}
}

// unmount unmounts the volumes of a pod that was removed.
func (n *Node) unmount(volumes []*csi.NodePublishVolumeRequest) {
	for _, v := range volumes {
		request := &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: v.GetTargetPath()}
		for pause := mountRetry; callPlugin(n, request, csi.NodeServer.NodeUnpublishVolume) != nil && !n.world.isOver(); pause = min(2*pause, mountRetryMost) {
			<-time.After(pause)
		}
	}
}

// RestartContainer restarts a container of a running pod of the node.
func (n *Node) RestartContainer(pod *corev1.Pod, name string) {
	n.world.tb.Helper()
	n.world.must(n.Runtime.restart(pod.UID, name))
	n.reportPod(pod.DeepCopy())
}

// reportPod updates the pod's status, as the kubelet does.
func (n *Node) reportPod(pod *corev1.Pod) {
	all := n.Runtime.sandboxes()
	i := slices.IndexFunc(all, func(s *sandbox) bool { return s.pod.UID == pod.UID })
	if i < 0 {
		return
	}
	status := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, ContainerID: "containerd://" + all[i].containers[c.Name].id,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := n.world.Client.Get(n.world.ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		pod.Status = status
		return n.world.Client.Status().Update(n.world.ctx, pod)
	})
	if client.IgnoreNotFound(err) != nil && n.world.ctx.Err() == nil {
		n.world.tb.Errorf("report the status of pod %s: %v", pod.Name, err)
	}
}

// RemovePod deletes a pod of the node. Its kubelet ends it, unmounts its volumes, and then has its object removed.
func (n *Node) RemovePod(pod *corev1.Pod) {
	n.world.tb.Helper()
	ctx := n.world.tb.Context()
	n.world.must(client.IgnoreNotFound(n.world.Client.Delete(ctx, pod)))
	n.Runtime.remove(pod.UID)
	n.world.must(client.IgnoreNotFound(n.world.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))))
}
