// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package probe runs the node probe, tests/cmd/node-probe, on nodes, and asks it.
package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"

	"github.com/bpfman/bpfman-operator/tests/eventually"
)

// Name is the name of the DaemonSet, and of the container in its pods.
const Name = "node-probe"

// Exec runs a command of the node probe on a node, and returns its output.
type Exec func(ctx context.Context, command ...string) ([]byte, error)

// Ask runs a command of the node probe, and decodes its answer, if there is one.
func Ask[T any](ctx context.Context, exec Exec, command ...string) (answer T, err error) {
	out, err := exec(ctx, command...)
	if err != nil || len(out) == 0 {
		return answer, err
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return answer, fmt.Errorf("answer of %s: %w", strings.Join(command, " "), err)
	}
	return answer, nil
}

// Pods are privileged pods with the node probe, one on each node, in a namespace of their own.
type Pods struct {
	kube      *resources.Resources
	namespace string
	// ByNode contains the names of the pods.
	ByNode map[string]string
}

// Start creates the namespace and the pods, and waits until those on the given nodes are ready.
func Start(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, image string, nodes []string, timeout time.Duration) (*Pods, error) {
	kube, err := resources.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	p := &Pods{kube, namespace.Name, map[string]string{}}
	labels := map[string]string{"app": Name}
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, "pod-security.kubernetes.io/enforce", "privileged")
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: namespace.Name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// The node's /proc leads to the daemon's socket and the components' memory.
					HostPID: true, HostNetwork: true, TerminationGracePeriodSeconds: new(int64),
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: Name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"wait"},
						SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
					}},
				},
			},
		},
	}
	c := kube.GetControllerRuntimeClient()
	for _, o := range []client.Object{namespace, set} {
		if err := c.Create(ctx, o); err != nil {
			return p, fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	err = eventually.Succeeds(ctx, timeout, 200*time.Millisecond, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(namespace.Name), client.MatchingLabels(labels)); err != nil {
			return fmt.Errorf("list the pods: %w", err)
		}
		for _, pod := range pods.Items {
			if slices.Contains(nodes, pod.Spec.NodeName) && Ready(&pod) {
				p.ByNode[pod.Spec.NodeName] = pod.Name
			}
		}
		if len(p.ByNode) < len(nodes) {
			return fmt.Errorf("it is ready on %v", p.ByNode)
		}
		return nil
	})
	if err != nil {
		return p, fmt.Errorf("wait for the node probe %s on %v: %w", image, nodes, err)
	}
	return p, nil
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// On runs commands on a node.
func (p *Pods) On(node string) Exec { return p.In(p.ByNode[node]) }

// In runs commands in a pod of the namespace, which has the node probe's container.
func (p *Pods) In(pod string) Exec {
	return func(ctx context.Context, command ...string) ([]byte, error) {
		var out, errOut bytes.Buffer
		if err := p.kube.ExecInPod(ctx, p.namespace, pod, Name, append([]string{"/" + Name}, command...), &out, &errOut); err != nil {
			return nil, fmt.Errorf("%s in pod %s: %w: %s", strings.Join(command, " "), pod, err, strings.TrimSpace(errOut.String()))
		}
		return out.Bytes(), nil
	}
}
