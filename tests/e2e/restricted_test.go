// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/decoder"
	"sigs.k8s.io/e2e-framework/klient/k8s"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/examples/maptext"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// TestFirstVolumeOfTheDocs applies the program and the pod of docs/get-started.md, in a namespace that enforces
// the Pod Security Standard restricted. It reads a growing count with `cat`, which is all that the pod contains.
func TestFirstVolumeOfTheDocs(t *testing.T) {
	requireType(t, "TCX")
	const space = "e2e-first"
	var program *v1alpha1.TcxProgram
	var pod *corev1.Pod
	for _, o := range firstObjects(t) {
		switch o := o.(type) {
		case *v1alpha1.TcxProgram:
			program = o
		case *corev1.Pod:
			pod = o
		}
	}
	if program == nil || pod == nil {
		t.Fatal("docs/get-started.md has no TcxProgram, or no Pod")
	}
	program.Name = prefix + program.Name
	program.Spec.ByteCode = image("go-tcx-counter")
	pod.Namespace = space
	pod.Spec.Volumes[0].CSI.VolumeAttributes[v1alpha1.VolumeAttributeProgram] = program.Name
	feature(t,
		step{"the pod is let in and starts", func(ctx context.Context, s *testing.T) {
			restrictedNamespace(ctx, t, space)
			create(ctx, t, program)
			create(ctx, t, pod)
			awaitSuccess(ctx, s, program)
			awaitReady(ctx, s, pod)
		}},
		step{"cat shows packets", func(ctx context.Context, s *testing.T) {
			var before float64
			await(ctx, s, "the count that cat shows grows", func(ctx context.Context) (bool, string) {
				text, err := cat(ctx, pod, "/maps/tcx_stats_map")
				if err != nil {
					return false, err.Error()
				}
				now, err := sumOf(text, 0)
				if err != nil {
					s.Fatalf("%v in:\n%s", err, text)
				}
				if before == 0 {
					before = now
				}
				return now > before, text
			})
		}},
	)
}

// TestPrintedMapTypes reads a map of each type with cat under the standard restricted, as documented in
// docs/volumes.md. It checks that bpf(2) doesn't work with the profile RuntimeDefault.
func TestPrintedMapTypes(t *testing.T) {
	requireType(t, "Tracepoint")
	const space = "e2e-restricted"
	program := tracepoint("e2e-map-types")
	program.Spec.ByteCode, program.Spec.BpfFunctionName = image("map_types"), "map_types"
	pod := restricted(reader(space, "printed", program.Name, "*"))
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Args = busybox, nil
	pod.Spec.Containers[0].Command = []string{"sleep", "infinity"}
	pod.Spec.TerminationGracePeriodSeconds = new(int64)
	opens := restricted(reader(space, "opens", program.Name, "percpu_array_map"))
	feature(t,
		step{"the pods are let in and start", func(ctx context.Context, s *testing.T) {
			restrictedNamespace(ctx, t, space)
			create(ctx, t, program)
			awaitSuccess(ctx, s, program)
			create(ctx, t, pod)
			create(ctx, t, opens)
			awaitReady(ctx, s, pod)
			callKill(ctx, s)
		}},
		step{"what is printed", func(ctx context.Context, s *testing.T) {
			for _, name := range []string{"array_map", "hash_map", "lru_hash_map", "percpu_array_map", "percpu_hash_map", "lru_percpu_map"} {
				await(ctx, s, name+" is printed", func(ctx context.Context) (bool, string) {
					text, err := cat(ctx, pod, "/run/maps/"+name)
					return err == nil && strings.Contains(text, "\n7: {") && strings.Contains(text, "{11,-1,}"), fmt.Sprint(text, err)
				})
			}
		}},
		step{"what isn't", func(ctx context.Context, s *testing.T) {
			for _, name := range []string{"hash_without_btf", "hash_of_unions", "lpm_trie_map", "queue_map", "stack_map", "ring_buffer", "perf_event_map"} {
				if text, err := cat(ctx, pod, "/run/maps/"+name); err == nil || !strings.Contains(err.Error(), "Input/output error") {
					s.Errorf("%s: %q, %v", name, text, err)
				}
			}
		}},
		step{"bpf(2) is forbidden", func(ctx context.Context, s *testing.T) {
			await(ctx, s, "the application that opens maps is refused", func(ctx context.Context) (bool, string) {
				log, err := logOf(ctx, opens)
				return err == nil && strings.Contains(log, "operation not permitted"), fmt.Sprint(log, err)
			})
		}},
	)
}

// TestMapExporter applies the example for metrics with other names, and scrapes it twice.
func TestMapExporter(t *testing.T) {
	requireType(t, "TCX")
	feature(t, step{"its counter grows", func(ctx context.Context, s *testing.T) {
		objects := exampleObjects(ctx, s, "map-exporter")
		for _, o := range objects {
			create(ctx, t, o)
			if user, ok := o.(v1alpha1.UserObject); ok {
				awaitSuccess(ctx, s, user)
			}
		}
		for _, pod := range podsOf(ctx, s, readerOf(objects)) {
			var before string
			await(ctx, s, "the counter of "+pod.Name+" grows", func(ctx context.Context) (bool, string) {
				metrics, err := under.clientset.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, "9435", "metrics", nil).DoRaw(ctx)
				if err != nil {
					return false, err.Error()
				}
				now := regexp.MustCompile(`(?m)^bpf_received_packets_total (\S+)$`).FindSubmatch(metrics)
				if now == nil || !bytes.Contains(metrics, []byte(`bpf_map_readable{map="tcx_stats_map"} 1`)) {
					return false, string(metrics)
				}
				if before == "" {
					before = string(now[1])
				}
				return before != string(now[1]), string(metrics)
			})
		}
	}})
}

// busybox is the image of the pod in docs/get-started.md.
const busybox = "busybox:1.37"

// firstObjects returns the objects in docs/get-started.md, in order.
func firstObjects(t *testing.T) []k8s.Object {
	t.Helper()
	content := must.Read(t, "../../docs/get-started.md")
	var objects []k8s.Object
	for _, block := range regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```").FindAllSubmatch(content, -1) {
		o, err := decoder.DecodeAny(bytes.NewReader(block[1]))
		if err != nil {
			t.Fatalf("docs/get-started.md: %v in:\n%s", err, block[1])
		}
		objects = append(objects, o)
	}
	return objects
}

func restrictedNamespace(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	create(ctx, t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
}

// restricted adds to a reader what the Pod Security Standard restricted requires.
func restricted(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	return pod
}

// cat returns the content of a file in a pod. The error contains the command's error.
func cat(ctx context.Context, pod *corev1.Pod, file string) (string, error) {
	var out, errOut bytes.Buffer
	if err := under.resources.ExecInPod(ctx, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, []string{"cat", file}, &out, &errOut); err != nil {
		return "", fmt.Errorf("cat %s in pod %s: %w: %s", file, pod.Name, err, errOut.String())
	}
	return out.String(), nil
}

// sumOf adds up a field in the output of cat, over elements and CPUs.
func sumOf(text string, field int) (float64, error) {
	sum := 0.0
	for entry, err := range maptext.Parse(strings.NewReader(text)) {
		if err != nil {
			return 0, err
		}
		for _, v := range entry.Values {
			member, err := v.Value.At(field)
			if err != nil {
				return 0, err
			}
			number, err := member.Number()
			if err != nil {
				return 0, err
			}
			sum += number
		}
	}
	return sum, nil
}
