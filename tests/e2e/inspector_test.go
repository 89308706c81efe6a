// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const (
	// inspected bounds the wait until a node's BpfNode contains a change. The inspector
	// scans every three seconds, and writes at most every ten. The rest is for busy
	// machines, and for containers that end later than their deleted pod.
	inspected = 20 * time.Second
	// foreign is a program that bpfman doesn't know.
	foreign = "held_inspected"
)

// bpfNode returns the inspector's report about a node.
func bpfNode(ctx context.Context, nodeName string) (*v1alpha1.BpfNode, error) {
	node := &v1alpha1.BpfNode{}
	err := under.Get(ctx, client.ObjectKey{Name: nodeName}, node)
	return node, err
}

// awaitInspected waits until the BpfNode of a node satisfies a condition.
func awaitInspected(ctx context.Context, t *testing.T, nodeName, what string, right func(*v1alpha1.BpfNode) bool) {
	t.Helper()
	began := time.Now()
	awaitFor(ctx, t, inspected, what, func(ctx context.Context) (bool, string) {
		node, err := bpfNode(ctx, nodeName)
		return err == nil && right(node), fmt.Sprintf("%+v, %v", node.Status.Programs, err)
	})
	t.Logf("%s after %v", what, time.Since(began).Round(100*time.Millisecond))
}

// TestInspector checks that each node's BpfNode contains the program of an object with
// its owner, and the program of a pod with the pod, and that both disappear when they are
// unloaded.
func TestInspector(t *testing.T) {
	requireType(t, "Tracepoint")
	requireType(t, "TCX")
	nodeName := under.nodes()[0]
	o := tracepoint("e2e-inspected")
	space, privileged := "e2e-inspected", true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "foreign"},
		Spec: corev1.PodSpec{
			NodeName: nodeName, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "holder", Image: settings.probe, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"hold", "inspected", "tcx", "eth0", "1"},
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			}},
		},
	}
	owned := func(p v1alpha1.BpfNodeProgram) bool { return p.Owner != nil && p.Owner.Name == o.Name }
	of := func(p v1alpha1.BpfNodeProgram) bool {
		return p.Name == foreign && slices.ContainsFunc(p.Holders, func(h v1alpha1.BpfNodeHolder) bool { return h.Namespace == space && h.Pod == pod.Name })
	}
	feature(t,
		step{"an object's program", func(ctx context.Context, s *testing.T) {
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
			programs, err := programsOf(ctx, o)
			if err != nil {
				s.Fatal(err)
			}
			awaitInspected(ctx, s, nodeName, "there with its owner", func(node *v1alpha1.BpfNode) bool {
				i := slices.IndexFunc(node.Status.Programs, owned)
				if i < 0 {
					return false
				}
				p := node.Status.Programs[i]
				return p.Bpfman && p.Owner.Kind == "TracepointProgram" && p.Owner.Namespace == "" && p.Type == "tracepoint" && len(p.AttachPoints) == 1 &&
					p.AttachPoints[0].Type == "tracepoint" && p.AttachPoints[0].LinkID != 0 && slices.ContainsFunc(programs, func(program v1alpha1.ProgramObject) bool {
					return program.GetStatus().ProgramID == p.ID
				})
			})
		}},
		step{"a pod's program", func(ctx context.Context, s *testing.T) {
			create(ctx, t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}})
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
			awaitInspected(ctx, s, nodeName, "there with its pod", func(node *v1alpha1.BpfNode) bool {
				i := slices.IndexFunc(node.Status.Programs, of)
				if i < 0 {
					return false
				}
				p := node.Status.Programs[i]
				return !p.Bpfman && p.Owner == nil && len(p.AttachPoints) == 1 && p.AttachPoints[0].Type == "tcx/ingress" && p.AttachPoints[0].Interface == "eth0" &&
					p.AttachPoints[0].Namespace == space && p.AttachPoints[0].Pod == pod.Name && p.AttachPoints[0].Position == 1 &&
					!slices.ContainsFunc(p.Holders, func(h v1alpha1.BpfNodeHolder) bool {
						return h.Container != "holder" || h.Process != "node-probe" || h.Gone
					})
			})
		}},
		step{"the pod's user sees both", func(ctx context.Context, s *testing.T) {
			out := plugin(ctx, s, "pods", pod.Name, "-n", space)
			ofPod, ofNode, found := strings.Cut(out, "on node "+nodeName)
			if !found || !strings.Contains(ofPod, "in pod "+space+"/"+pod.Name) || !strings.Contains(ofPod, "tcx/ingress eth0") || !strings.Contains(ofPod, foreign) ||
				!strings.Contains(ofNode, "TracepointProgram "+o.Name) {
				s.Errorf("kubectl bpfman pods says:\n%s", out)
			}
			if out := plugin(ctx, s, "pods", "-n", space); !strings.Contains(out, pod.Name) {
				s.Errorf("kubectl bpfman pods says:\n%s", out)
			}
		}},
		step{"the pod is deleted", func(ctx context.Context, s *testing.T) {
			must.Succeed(s, remove(ctx, pod))
			awaitInspected(ctx, s, nodeName, "gone with its pod", func(node *v1alpha1.BpfNode) bool { return !slices.ContainsFunc(node.Status.Programs, of) })
		}},
		step{"the object is deleted", func(ctx context.Context, s *testing.T) {
			removeProgram(ctx, s, o)
			awaitInspected(ctx, s, nodeName, "gone with its object", func(node *v1alpha1.BpfNode) bool { return !slices.ContainsFunc(node.Status.Programs, owned) })
		}},
	)
}
