// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package validate

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// What an object names is compared with what the bytecode has, once for all platforms.
func TestFunctions(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.TcxProgram{}
	o.Spec.BpfFunctionName = "tcx_statz"
	o.Spec.GlobalData = v1alpha1.GlobalData{"sampling": {1}, "samplin": {1}}
	o.Spec.Globals = v1alpha1.Globals{"port": json.RawMessage("70000")}
	content := object.Object{
		Programs: []object.Program{{Name: "tcx_stats"}, {Name: "xdp_stats"}},
		Globals: []object.Variable{
			{Name: "port", Type: "u16", Size: 2, Described: &reader.Type{Name: "__u16", Kind: reader.Unsigned, Width: 2}},
			{Name: "sampling", Type: "u32", Size: 4, Described: &reader.Type{Name: "__u32", Kind: reader.Unsigned, Width: 4}},
		},
	}
	r := &Result{Kind: "TcxProgram", Object: o}
	r.Compare(Facts{Objects: []object.Object{content, content}})
	want := []string{
		"spec.bpffunctionname: the bytecode has no function tcx_statz; its functions are tcx_stats, xdp_stats; did you mean tcx_stats?",
		"spec.globaldata: the bytecode has no global variable samplin; did you mean sampling?",
		"spec.globaldata.sampling has 1 byte, and the variable has 4 bytes (__u32): to set a value instead of bytes, write globals: {sampling: 1}",
		"spec.globals.port: 70000 is too large for __u16 (0 to 65535)",
	}
	if !slices.Equal(r.Errors, want) || len(r.Warnings) > 0 {
		t.Errorf("%q %q", r.Errors, r.Warnings)
	}
	o.Spec.BpfFunctionName, o.Spec.GlobalData = "xdp_stats", nil
	o.Spec.Globals = nil
	content.Programs[1].Unsupported = "it has 70 arguments"
	r = &Result{Kind: "TcxProgram", Object: o}
	r.Compare(Facts{Objects: []object.Object{content}})
	if want := []string{"spec.bpffunctionname: function xdp_stats can't be loaded: it has 70 arguments"}; !slices.Equal(r.Errors, want) {
		t.Errorf("%q", r.Errors)
	}
}

// Agents attach programs before pods start only if that is turned on.
func TestStarts(t *testing.T) {
	t.Parallel()
	deployed, err := os.ReadFile("../../operator/deploy/daemonset.yaml")
	if err != nil || !strings.Contains(string(deployed), beforeStart) {
		t.Errorf("agents have no argument %s: %v", beforeStart, err)
	}
	agent := func(node string, arguments ...string) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Args: arguments}, {}}}}
	}
	on, off := agent("a", "--a", beforeStart+"/x"), agent("b", "--a")
	labeled := func(name string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node": name}}}
	}
	for name, c := range map[string]struct {
		attachment v1alpha1.ContainerAttachment
		node       string
		agents     []corev1.Pod
		warns      bool
	}{
		"on":                 {v1alpha1.AttachBeforeStart, "", []corev1.Pod{on}, false},
		"off":                {v1alpha1.AttachBeforeStart, "", []corev1.Pod{on, off}, true},
		"off on other nodes": {v1alpha1.AttachBeforeStart, "a", []corev1.Pod{on, off}, false},
		"not known":          {v1alpha1.AttachBeforeStart, "", nil, false},
		"not asked for":      {"", "", []corev1.Pod{off}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &v1alpha1.TcxProgram{}
			o.Spec.Containers = &v1alpha1.ContainerSelector{Attachment: c.attachment}
			if c.node != "" {
				o.Spec.NodeSelector.MatchLabels = map[string]string{"node": c.node}
			}
			r := &Result{Kind: "TcxProgram", Object: o}
			r.Compare(Facts{Nodes: []corev1.Node{labeled("a"), labeled("b")}, Agents: c.agents})
			if (len(r.Warnings) == 1) != c.warns {
				t.Errorf("%q", r.Warnings)
			}
		})
	}
}
