// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/klient/decoder"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const samplesDir = "../../config/samples"

// TestSamples applies every sample with another name. It is attached. If the daemon
// doesn't support that on this cluster, the status contains the daemon's error. After it
// is deleted, nothing is left. A policy reports what it lacks.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(samplesDir, "bpfman.io_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples in %s: %v", samplesDir, err)
	}
	for _, o := range sample(t.Context(), t, "acme.yaml") {
		create(t.Context(), t, o)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "bpfman.io_v1alpha1_"), ".yaml")
		t.Run(name, func(t *testing.T) {
			for _, o := range sample(t.Context(), t, filepath.Base(file)) {
				switch o := o.(type) {
				case v1alpha1.UserObject:
					feature(t,
						step{"applied", func(ctx context.Context, _ *testing.T) {
							create(ctx, t, o)
							awaitSecret(ctx, t, o)
						}},
						step{"attached or refused", func(ctx context.Context, s *testing.T) { awaitSample(ctx, s, o) }},
					)
				case *v1alpha1.BytecodePolicy:
					create(t.Context(), t, o)
					awaitPolicy(t.Context(), t, o, metav1.ConditionFalse, "acme-cosign") // the Secret doesn't exist
				case *v1alpha1.RolloutPolicy:
					create(t.Context(), t, o)
					awaitStages(t.Context(), t, o)
				default:
					t.Fatalf("%s has a %T", file, o)
				}
			}
		})
	}
}

func sample(ctx context.Context, t *testing.T, file string) []client.Object {
	t.Helper()
	all, err := decoder.DecodeAllFiles(ctx, os.DirFS(samplesDir), file, decoder.MutateOption(rename))
	if err != nil {
		t.Fatalf("read sample %s: %v", file, err)
	}
	objects := make([]client.Object, 0, len(all))
	for _, o := range all {
		objects = append(objects, o)
	}
	return objects
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
		if err != nil || c.Type == string(v1alpha1.ProgramReconcileSuccess) {
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

// wordsOf returns the constant part of the daemon's error.
func wordsOf(t node.Trial) string {
	words, _, _ := strings.Cut(t.Error, " with pid ")
	// With several programs, each has its own log.
	words, _, _ = strings.Cut(words, ", verifier_log")
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
