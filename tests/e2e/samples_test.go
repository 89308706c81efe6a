// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/decoder"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const (
	samplesDir  = "../../config/samples"
	examplesDir = "../../examples/config"
)

// TestSamples applies every sample, and every example that counts, with other names than those of a user who tries them on
// the same cluster. Each object is attached. If the daemon doesn't support that on this cluster, the status contains the
// daemon's error. An example's application, which has no privileges, sees growing counts. A policy reports what it lacks.
// After everything is deleted, nothing is left.
func TestSamples(t *testing.T) {
	samples, err := filepath.Glob(filepath.Join(samplesDir, "bpfman.io_*.yaml"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples in %s: %v", samplesDir, err)
	}
	examples, err := filepath.Glob(filepath.Join(examplesDir, "go-*-counter*"))
	if err != nil || len(examples) == 0 {
		t.Fatalf("no examples in %s: %v", examplesDir, err)
	}
	for _, o := range objectsIn(t.Context(), t, filepath.Join(samplesDir, "acme.yaml")) {
		create(t.Context(), t, o)
	}
	for _, file := range samples {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "bpfman.io_v1alpha1_"), ".yaml")
		t.Run(name, func(t *testing.T) { checkSample(t, objectsIn(t.Context(), t, file)) })
	}
	for _, dir := range examples {
		t.Run(filepath.Base(dir), func(t *testing.T) { checkSample(t, exampleObjects(t.Context(), t, filepath.Base(dir))) })
	}
}

// checkSample applies the objects of a sample or an example.
func checkSample(t *testing.T, objects []client.Object) {
	t.Helper()
	feature(t, step{"attached or refused", func(ctx context.Context, s *testing.T) {
		for _, o := range objects {
			create(ctx, t, o)
		}
		for _, o := range objects {
			switch o := o.(type) {
			case v1alpha1.UserObject:
				awaitSecret(ctx, t, o)
				awaitSample(ctx, s, o)
			case *v1alpha1.BytecodePolicy:
				awaitPolicy(ctx, s, o, metav1.ConditionFalse, "acme-cosign") // the Secret doesn't exist
			case *v1alpha1.RolloutPolicy:
				awaitStages(ctx, s, o)
			}
		}
		readers := readerOf(objects)
		if readers == nil {
			return
		}
		for _, pod := range podsOf(ctx, s, readers) {
			awaitGrowth(ctx, s, pod, "", callKill)
		}
		for _, o := range objects {
			if user, ok := o.(v1alpha1.UserObject); ok {
				saw(kindOf(user), func(r *result) { r.counted, r.read = true, true })
			}
		}
	}})
}

// exampleObjects returns the objects of an example, with those that it needs.
func exampleObjects(ctx context.Context, t *testing.T, example string) []client.Object {
	t.Helper()
	dir := filepath.Join(examplesDir, example)
	content := must.Read(t, filepath.Join(dir, "kustomization.yaml"))
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var objects []client.Object
	for _, resource := range kustomization.Resources {
		if other, needs := strings.CutPrefix(resource, "../"); needs {
			objects = append(objects, exampleObjects(ctx, t, other)...)
		} else {
			objects = append(objects, objectsIn(ctx, t, filepath.Join(dir, resource))...)
		}
	}
	return objects
}

// objectsIn returns the objects in a file, with other names.
func objectsIn(ctx context.Context, t *testing.T, file string) []client.Object {
	t.Helper()
	all, err := decoder.DecodeAllFiles(ctx, os.DirFS(filepath.Dir(file)), filepath.Base(file), decoder.MutateOption(rename))
	if err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	objects := make([]client.Object, 0, len(all))
	for _, o := range all {
		objects = append(objects, o)
	}
	return objects
}

const prefix = "e2e-"

func rename(o k8s.Object) error {
	if o.GetNamespace() != "" {
		o.SetNamespace(prefix + o.GetNamespace())
	} else {
		o.SetName(prefix + o.GetName())
	}
	switch o := o.(type) {
	case v1alpha1.UserObject:
		if image := o.GetAppCommon().ByteCode.Image; image != nil {
			image.Url = strings.Replace(image.Url, "quay.io/bpfman-bytecode", settings.bytecode, 1)
		}
		for _, program := range userobject.Programs(o) {
			if c := program.Containers(); c != nil && !program.Namespaced && c.Namespace != bpfmanSpace {
				c.Namespace = prefix + c.Namespace
			}
		}
		if image := o.GetAppCommon().ByteCode.Image; image != nil && image.ImagePullSecret != nil {
			image.ImagePullSecret.Name = prefix + image.ImagePullSecret.Name
		}
	case *appsv1.Deployment:
		o.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64)
		if settings.sampleApp != "" {
			o.Spec.Template.Spec.Containers[0].Image = settings.sampleApp
		}
	case *appsv1.DaemonSet:
		pod := &o.Spec.Template.Spec
		pod.TerminationGracePeriodSeconds = new(int64)
		container := &pod.Containers[0]
		if strings.Contains(o.Name, "go-target") {
			container.Image = settings.uprobed
			return nil
		}
		if strings.Contains(o.Name, "map-exporter") {
			container.Image = settings.exporter
		} else {
			container.Image = settings.counters
			container.Args = append(container.Args, "--interval=250ms")
		}
		for _, v := range pod.Volumes {
			if v.CSI != nil {
				v.CSI.VolumeAttributes[v1alpha1.VolumeAttributeProgram] = prefix + v.CSI.VolumeAttributes[v1alpha1.VolumeAttributeProgram]
			}
		}
	}
	return nil
}

// awaitSecret creates the pull Secret of the object when the status says that it doesn't
// exist.
func awaitSecret(ctx context.Context, t *testing.T, o v1alpha1.UserObject) {
	t.Helper()
	image := o.GetAppCommon().ByteCode.Image
	if image == nil || image.ImagePullSecret == nil {
		return
	}
	awaitFailure(ctx, t, o, image.ImagePullSecret.Name, "not found")
	create(ctx, t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: image.ImagePullSecret.Name, Namespace: image.ImagePullSecret.Namespace},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"quay.io":{"username":"reader","password":"e2e"}}}`)},
	})
}

// awaitSample waits for the result that the trials with the daemon lead to expect.
func awaitSample(ctx context.Context, t *testing.T, o v1alpha1.UserObject) {
	t.Helper()
	var refusals []node.Trial
	for _, name := range typesOf(o) {
		if trial := under.trials[name]; !trial.Attached {
			refusals = append(refusals, trial)
		}
	}
	if len(refusals) == 0 {
		awaitSuccess(ctx, t, o)
		return
	}
	idle := false
	await(ctx, t, fmt.Sprintf("%s %s is refused with %v", kindOf(o), o.GetName(), refusals), func(ctx context.Context) (bool, string) {
		c, err := conditionOf(ctx, o)
		if err != nil || v1alpha1.ProgramConditionTypeOf(c.Type) == v1alpha1.ProgramReconcileSuccess {
			// If there is nothing to attach to, this is a success on any kernel.
			idle = strings.Contains(c.Message, "nothing to attach to")
			return idle, fmt.Sprintf("%s: %s, %v", c.Type, c.Message, err)
		}
		programs, err := programsOf(ctx, o)
		for _, p := range programs {
			for _, c := range p.GetStatus().Conditions {
				for _, refusal := range refusals {
					if strings.Contains(c.Message, wordsOf(refusal)) {
						return true, ""
					}
				}
			}
		}
		return false, fmt.Sprintf("%s: %s, %v", c.Type, c.Message, err)
	})
	if idle {
		return
	}
	for _, r := range refusals {
		saw(kindOf(o), func(seen *result) { seen.loaded = seen.loaded || r.Loaded })
	}
	var types []prerequisite.Name
	for _, r := range refusals {
		types = append(types, typeOf(t, r))
	}
	prerequisite.Missing(t, "refused, as by the daemon itself: "+inTheWay(refusals...), types...)
}

// refusedProgram matches the kernel's error in what a daemon says: in the structures of Rust, or at the end of a sentence in Go.
var refusedProgram = regexp.MustCompile(`message: "([^"]*)" \}, verifier_log|: load program: (.*)$`)

// wordsOf returns the constant part of the daemon's error, as the agent shows it.
func wordsOf(t node.Trial) string {
	if match := refusedProgram.FindStringSubmatch(t.Error); match != nil {
		return cmp.Or(match[1:]...)
	}
	words, _, _ := strings.Cut(t.Error, " with pid ")
	return words
}

// typesOf returns the types of programs in an object, with the names of the trials.
func typesOf(o v1alpha1.UserObject) []string {
	switch o := o.(type) {
	case *v1alpha1.BpfApplication:
		var types []string
		for _, p := range o.Spec.Programs {
			types = append(types, trialOf(string(p.Type), p.Uprobe != nil && p.Uprobe.Containers != nil))
		}
		return types
	case *v1alpha1.BpfNsApplication:
		var types []string
		for _, p := range o.Spec.Programs {
			types = append(types, trialOf(string(p.Type), true))
		}
		return types
	case *v1alpha1.ClusterBpfApplication:
		var types []string
		for i := range o.Spec.Programs {
			for _, p := range o.Spec.Programs[i].Members() {
				types = append(types, trialOf(string(p.Type), p.Uprobe != nil && p.Uprobe.Containers != nil))
			}
		}
		return types
	case *v1alpha1.UprobeProgram:
		return []string{trialOf("Uprobe", o.Spec.Containers != nil)}
	default:
		kind := strings.TrimSuffix(strings.TrimSuffix(kindOf(o), "Program"), "Ns")
		for _, name := range trialOrder {
			if strings.EqualFold(kind, name) {
				return []string{trialOf(name, o.GetNamespace() != "")}
			}
		}
		return nil
	}
}

func trialOf(memberType string, inContainers bool) string {
	switch {
	case strings.HasPrefix(memberType, "U") && inContainers:
		return node.ContainerUprobe
	case strings.HasPrefix(memberType, "U"):
		return "Uprobe"
	case strings.HasPrefix(memberType, "K"):
		return "Kprobe"
	default:
		return memberType
	}
}
