// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nodes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func mounted(message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: "mount-bpffs", Image: "agent:1", Ready: true,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
	}
}

func pod(node string, init corev1.ContainerStatus, containers ...corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{init}, ContainerStatuses: containers},
	}
}

func serves(image string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "bpfman-csi", Image: "csi:1", ImageID: image, Ready: true}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func ended(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
}

func TestProblems(t *testing.T) {
	ours := mounted("bpfman-agent v1")
	deleted := pod("a", mounted("bpfman-agent v0"))
	deleted.DeletionTimestamp = new(metav1.Now())
	crashes := corev1.ContainerStatus{
		Name: "bpfman-csi", Image: "csi:1", RestartCount: 4,
		State:                waiting("CrashLoopBackOff", "back-off 40s"),
		LastTerminationState: ended(2, "flag provided but not defined: -daemon-socket\nUsage of /bpfman-csi:\n  -x"),
	}
	runsAgain := crashes
	runsAgain.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	recovered := runsAgain
	recovered.Ready = true
	once := runsAgain
	once.RestartCount = 1

	for name, c := range map[string]struct {
		pods []corev1.Pod
		want []string
	}{
		"none":      {nil, nil},
		"well":      {[]corev1.Pod{pod("a", ours, corev1.ContainerStatus{Name: "bpfman", Ready: true})}, nil},
		"begins":    {[]corev1.Pod{pod("a", corev1.ContainerStatus{Name: "mount-bpffs", State: waiting("PodInitializing", "")})}, nil},
		"killed":    {[]corev1.Pod{pod("a", ours, once)}, nil},
		"recovered": {[]corev1.Pod{pod("a", ours, recovered)}, nil},
		"goes":      {[]corev1.Pod{deleted}, nil},
		"crashes": {[]corev1.Pod{pod("b", ours, crashes), pod("a", ours, runsAgain)}, []string{
			"container bpfman-csi with image csi:1 fails: exit code 2: flag provided but not defined: -daemon-socket Usage of /bpfman-csi: -x (a, b)",
		}},
		"another image": {[]corev1.Pod{pod("a", corev1.ContainerStatus{
			Name: "mount-bpffs", Image: "quay.io/bpfman/bpfman-agent:latest", RestartCount: 2, State: waiting("CrashLoopBackOff", ""),
			LastTerminationState: ended(2, "flag provided but not defined: -mount-bpffs"),
		})}, []string{"container mount-bpffs with image quay.io/bpfman/bpfman-agent:latest fails: exit code 2: flag provided but not defined: -mount-bpffs (a)"}},
		"no image": {[]corev1.Pod{pod("a", corev1.ContainerStatus{Name: "mount-bpffs", Image: "agent:2", State: waiting("ImagePullBackOff", "not found")})}, []string{
			"container mount-bpffs with image agent:2 fails: ImagePullBackOff: not found (a)",
		}},
		"another plugin": {[]corev1.Pod{pod("a", ours, serves("sha256:0")), pod("b", ours, serves("sha256:1")), pod("c", ours, serves("sha256:2")), pod("d", ours, serves("sha256:3"))}, []string{
			"image csi:1 contains a CSI plugin of version v0, but the operator has version v1 (a)",
		}},
		"another version": {[]corev1.Pod{pod("a", mounted("bpfman-agent v0")), pod("b", ours), pod("c", mounted(""))}, []string{
			"image agent:1 contains an agent of version unknown, but the operator has version v1 (c)",
			"image agent:1 contains an agent of version v0, but the operator has version v1 (a)",
		}},
	} {
		if got := Problems(c.pods, "v1", Versions{"sha256:0": "v0", "sha256:1": "v1", "sha256:2": ""}); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, c.want)
		}
	}
}

func TestManyNodesAreOneLine(t *testing.T) {
	var pods []corev1.Pod
	for i := range 5000 {
		pods = append(pods, pod(fmt.Sprintf("node-%04d", i), mounted("bpfman-agent v0")))
	}
	got := Problems(pods, "v1", nil)
	if len(got) != 1 || !strings.HasSuffix(got[0], "(node-0000, node-0001, node-0002 and 4997 more)") {
		t.Errorf("%q", got)
	}
}
