// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	bytecode "github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/cli/manifest"
)

// The API server accepts what `kubectl bpfman image inspect --as` prints, for each kind.
func TestManifestsOfBytecodeAreValid(t *testing.T) {
	sections := map[string]string{
		"xdp": "xdp", "tc": "classifier", "tracepoint": "tracepoint/syscalls/sys_enter_kill", "kprobe": "kprobe/try_to_wake_up",
		"kretprobe": "kretprobe/try_to_wake_up", "uprobe": "uprobe/libc:malloc", "uretprobe": "uretprobe/libc:malloc",
		"fentry": "fentry/do_unlinkat", "fexit": "fexit/do_unlinkat", "lsm": "lsm/file_open",
	}
	var content bytecode.Object
	for name, section := range sections {
		content.Programs = append(content.Programs, bytecode.Program{Name: name + "_function", Type: name, Section: section})
	}
	made := 0
	for _, kind := range v1alpha1.UserKinds {
		o := manifest.Options{Kind: kind.Name, Namespace: metav1.NamespaceDefault, Image: "registry.example.com/team/image:v1"}
		choices := [][]string{nil}
		if _, _, err := manifest.Object(content, o); err != nil {
			choices = [][]string{{"kprobe_function"}, {"kretprobe_function"}, {"uprobe_function"}, {"uretprobe_function"}}
		}
		for _, o.Functions = range choices {
			object, _, err := manifest.Object(content, o)
			if err != nil {
				continue // a probe of the other kind
			}
			made++
			options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
			if _, err := client(t, kinds()[kind.Name]).Create(deadline(t), &unstructured.Unstructured{Object: object}, options); err != nil {
				t.Errorf("%s of %v: %v", kind.Name, o.Functions, err)
			}
		}
	}
	// Both kinds of kprobes, and of uprobes in either scope.
	if want := len(v1alpha1.UserKinds) + 3; made != want {
		t.Errorf("made %d objects, want %d", made, want)
	}
}
