// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/nodes"
	"github.com/bpfman/bpfman-operator/operator/takeover"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// The ConfigMap shows the current problems of the node components: an agent that exits because of a daemon with
// another API, with its error. A pod of upstream's DaemonSet, which is about to be replaced, has no problems.
func TestWhatIsWrongWithNodeComponents(t *testing.T) {
	c := cluster(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}
	create(t, c, node)
	spec := corev1.PodSpec{NodeName: node.Name, ServiceAccountName: "bpfman-daemon", Containers: []corev1.Container{
		{Name: "bpfman-agent", Image: "agent"},
	}}
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "upstreams", Namespace: namespace, Labels: deploy.PodLabels()}, Spec: spec}
	create(t, c, theirs)
	theirs.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "mount-bpffs", Image: "quay.io/bpfman/bpfman-agent:v0.5.6", ImageID: "sha256:t", Ready: true,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
	}}
	must.Succeed(t, c.Status().Update(t.Context(), theirs))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "wrong", Namespace: namespace, Labels: map[string]string{takeover.PartOfLabel: "bpfman"}}, Spec: spec}
	maps.Copy(pod.Labels, deploy.PodLabels())
	create(t, c, pod)

	configMap := &corev1.ConfigMap{}
	says := func(want ...string) {
		t.Helper()
		envtest.Eventually(t, fmt.Sprintf("the ConfigMap says %q", want), func(ctx context.Context) error {
			if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: deploy.ConfigMapName}, configMap); err != nil {
				return err
			}
			if got := configMap.Annotations[nodes.Annotation]; got != strings.Join(want, "\n") {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
	}
	become := func(containers ...corev1.ContainerStatus) {
		t.Helper()
		pod.Status.ContainerStatuses = containers
		must.Succeed(t, c.Status().Update(t.Context(), pod))
	}
	const cause = "list programs: the daemon in container bpfman has an incompatible API (bpfman v0.5?)"
	agent := corev1.ContainerStatus{
		Name: "bpfman-agent", Image: "agent", ImageID: "sha256:a", RestartCount: 2,
		State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: cause}},
	}
	become(agent)
	agentFails := "ComponentFails: container bpfman-agent with image agent fails: exit code 1: " + cause + " (wrong)"
	says(agentFails)
	envtest.Eventually(t, "an Event says so", hasEvent(c, configMap, nodes.ReasonProblem, func(note string) bool { return strings.Contains(note, agentFails) }))

	agent.Ready = true
	become(agent)
	says()
}

// If the API server refuses the pods of the DaemonSet, the ConfigMap has its reason, until the pods are there.
func TestRefusedNodePods(t *testing.T) {
	c := cluster(t)
	daemonSet := &appsv1.DaemonSet{}
	envtest.Eventually(t, "the DaemonSet is deployed", func(ctx context.Context) error {
		return c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: deploy.DaemonSetName}, daemonSet)
	})
	schedule := func(current int32) {
		t.Helper()
		envtest.Eventually(t, "the DaemonSet has a status", func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(daemonSet), daemonSet); err != nil {
				return err
			}
			daemonSet.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: current}
			return c.Status().Update(ctx, daemonSet)
		})
	}
	schedule(0)
	create(t, c, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refused"}, Type: corev1.EventTypeWarning, Reason: "FailedCreate", LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: namespace, Name: daemonSet.Name, UID: daemonSet.UID},
		Message:        `Error creating: pods "bpfman-daemon-x7k2p" is forbidden: exceeded quota: small`,
	})
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deploy.ConfigMapName}}
	const refused = `PodsRefused: the API server refuses pods of DaemonSet bpfman-daemon: pods "bpfman-daemon" is forbidden: exceeded quota: small`
	says := func(want bool) {
		t.Helper()
		envtest.Eventually(t, fmt.Sprintf("the ConfigMap says that pods are refused: %v", want), func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); err != nil {
				return err
			}
			if got := configMap.Annotations[nodes.Annotation]; strings.Contains(got, refused) != want {
				return fmt.Errorf("it says %q", got)
			}
			return nil
		})
	}
	says(true)
	envtest.Eventually(t, "an Event says so", hasEvent(c, configMap, nodes.ReasonProblem, func(note string) bool { return strings.Contains(note, refused) }))
	schedule(1)
	says(false)
}
