// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/operator/deploy"
)

const (
	// unheard is the time without its kubelet after which the node controller regards a node as unknown.
	unheard = 40 * time.Second
	// becomesReady is the time from an agent's start until its pod is ready.
	becomesReady = 5 * time.Second
)

// Join creates the Node object with labels, and its agent's pod, as the kubelet and the DaemonSet's controller do.
func (n *Node) Join(labels map[string]string) {
	n.world.tb.Helper()
	all := map[string]string{corev1.LabelHostname: n.Name}
	maps.Copy(all, labels)
	n.world.Create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: all},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		},
	})
	n.createPod()
	n.report(n.reaches(), n.Agent.Running())
}

// createPod creates the pod of the node's agent.
func (n *Node) createPod() {
	n.world.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: n.agentPod(), Labels: deploy.PodLabels()},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{
			{Name: deploy.DaemonContainer, Image: "daemon:v1"},
			{Name: deploy.AgentContainer, Image: "agent:v1"},
			{Name: deploy.CSIContainer, Image: "csi:v1"},
			{Name: deploy.InspectorContainer, Image: "inspector:v1"},
		}},
	})
}

// ReplacePod replaces the pod of the node's agent, as an upgrade does.
func (n *Node) ReplacePod() {
	n.world.tb.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: n.agentPod()}}
	err := n.world.Client.Delete(n.world.tb.Context(), pod, client.GracePeriodSeconds(0))
	if apierrors.IsNotFound(err) {
		return // the node was deleted
	}
	n.world.must(err)
	n.createPod()
	n.report(n.reaches(), n.Agent.Running())
}

// Leave deletes the Node object and its agent's pod. The node can join again.
func (n *Node) Leave() {
	n.world.tb.Helper()
	for _, o := range []client.Object{
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: n.agentPod()}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}},
	} {
		n.world.must(client.IgnoreNotFound(n.world.Client.Delete(n.world.tb.Context(), o, client.GracePeriodSeconds(0))))
	}
}

func (n *Node) agentPod() string { return "bpfman-daemon-" + n.Name }

func readiness(ready bool) []corev1.PodCondition {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
}

// runKubelet reports whether the node and its agent are ready, as the kubelet and the node controller do.
func (n *Node) runKubelet(ctx context.Context) {
	for {
		changes := []<-chan struct{}{n.power.next(), n.Agent.changed.next()}
		for _, network := range []*Network{n.Network, n.Cable, n.world.Network} {
			_, changed := network.Reach()
			changes = append(changes, changed)
		}
		reaches, runs := n.reaches(), n.Agent.Running()
		reached, ready := n.reported()
		settled := becomesReady
		if reached && !reaches {
			settled = unheard
		}
		if reaches == reached && (runs && reaches) == ready {
			settled = forever
		}
		if !anyOf(ctx, changes, settled) {
			return
		}
		if n.reaches() != reaches || n.Agent.Running() != runs || settled == forever {
			continue // it is looked at again
		}
		n.report(reaches, runs && reaches)
	}
}

// reaches reports whether the kubelet reaches the API server.
func (n *Node) reaches() bool {
	return !n.IsOff() && now([]*Network{n.Network, n.Cable, n.world.Network}) == nil
}

// reported returns what report was last called with.
func (n *Node) reported() (reached, ready bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.wasReached, n.wasReady
}

// report updates the conditions of the Node and of the agent's pod.
func (n *Node) report(reached, ready bool) {
	n.mu.Lock()
	n.wasReached, n.wasReady = reached, ready
	n.mu.Unlock()
	condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()}
	taints := []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
	if reached {
		condition.Status, taints = corev1.ConditionTrue, nil
	}
	n.update(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, n.world.Client, func(o client.Object) bool {
		node, ok := o.(*corev1.Node)
		if !ok || len(node.Spec.Taints) == len(taints) {
			return false
		}
		node.Spec.Taints = taints
		return true
	})
	n.update(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, statusOf{n.world.Client}, func(o client.Object) bool {
		node, ok := o.(*corev1.Node)
		if !ok || len(node.Status.Conditions) == 1 && node.Status.Conditions[0].Status == condition.Status {
			return false
		}
		node.Status.Conditions = []corev1.NodeCondition{condition}
		return true
	})
	n.update(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: n.agentPod()}}, statusOf{n.world.Client}, func(o client.Object) bool {
		pod, ok := o.(*corev1.Pod)
		if !ok || len(pod.Status.Conditions) == 1 && pod.Status.Conditions[0].Status == readiness(ready)[0].Status {
			return false
		}
		pod.Status.Phase, pod.Status.Conditions, pod.Status.ContainerStatuses = corev1.PodRunning, readiness(ready), nil
		for _, c := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, Ready: ready || c.Name != deploy.AgentContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			})
		}
		return true
	})
}

// updater updates an object, or its status.
type updater interface {
	Update(context.Context, client.Object, ...client.UpdateOption) error
}

// statusOf updates the status.
type statusOf struct{ client.Client }

// Update implements updater.
func (s statusOf) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return s.Status().Update(ctx, o)
}

// update writes an object if change changes it, and if there is one.
func (n *Node) update(o client.Object, with updater, change func(client.Object) bool) {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := n.world.Client.Get(n.world.ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !change(o) {
			return nil
		}
		return with.Update(n.world.ctx, o)
	})
	if err != nil && !apierrors.IsNotFound(err) && n.world.ctx.Err() == nil {
		n.world.tb.Errorf("write %s as its kubelet: %v", o.GetName(), err)
	}
}

// PowerOff switches the node off: its components crash, and nothing is left of its programs, pods, mounts, and /run.
func (n *Node) PowerOff() {
	n.mu.Lock()
	if n.off {
		n.mu.Unlock()
		return
	}
	n.off = true
	n.mu.Unlock()
	n.power.change()
	var paused []*Component
	for _, c := range []*Component{n.Agent, n.Plugin, n.Inspector} {
		if c.Running() {
			paused = append(paused, c)
		}
		c.Crash()
	}
	n.Daemon.Kill()
	pods := n.Runtime.powerOff()
	n.world.must(n.Daemon.Forget())
	n.mounts.clear()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused, n.pods = paused, pods
}

// IsOff reports whether the node is switched off.
func (n *Node) IsOff() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.off
}

// PowerOn boots the node. The components and pods that ran when it was switched off run again.
func (n *Node) PowerOn() {
	n.mu.Lock()
	if !n.off {
		n.mu.Unlock()
		return
	}
	n.off, n.boot, n.booted = false, n.boot+1, time.Now()
	n.world.must(n.writeBoot())
	paused, pods := n.paused, n.pods
	n.mu.Unlock()
	n.power.change()
	n.Daemon.Start()
	for _, c := range paused {
		c.Start()
	}
	for _, pod := range pods {
		n.startPod(pod)
	}
}

// Reboot switches the node off, and on after a time.
func (n *Node) Reboot(takes time.Duration) {
	n.PowerOff()
	time.AfterFunc(takes, n.PowerOn)
}

// end ends what isn't a component.
func (n *Node) end() {
	n.Runtime.powerOff()
	n.Daemon.Kill()
}
