// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// bashCompletion is a file in Debian's package bash-completion, which kubectl's completion needs.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// TestCompletionInBash presses the tab key in a bash with kubectl's completion, as set up in
// docs/kubectl-bpfman.md. It completes commands, kinds, objects, nodes, and values of flags.
func TestCompletionInBash(t *testing.T) {
	config := envtest.Config(t)
	plugin := os.Getenv("KUBECTL_BPFMAN")
	if plugin == "" {
		prerequisite.Missing(t, "KUBECTL_BPFMAN isn't set: run `make test-envtest`", prerequisite.Commands)
	}
	if _, err := os.Stat(bashCompletion); err != nil {
		prerequisite.Missing(t, "bash-completion isn't installed: run `make deps`", prerequisite.BashCompletion)
	}

	c := envtest.Client(t, config)
	code := v1alpha1.BytecodeSelector{Path: new("/counter.o")}
	cluster := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter"}}
	cluster.Spec.ByteCode, cluster.Spec.BpfFunctionName, cluster.Spec.Names = code, "count", []string{"syscalls/sys_enter_kill"}
	for _, o := range []client.Object{cluster, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}} {
		must.Succeed(t, c.Create(t.Context(), o))
		t.Cleanup(func() {
			if err := c.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Error(err)
			}
		})
	}

	shell := newShell(t, plugin, envtest.Kubeconfig(t))
	const tab = "\t"
	for name, row := range map[string]struct{ typed, want string }{
		"a command":         {"kubectl bpfman wh" + tab, "kubectl bpfman why"},
		"a command's":       {"kubectl bpfman image ins" + tab, "kubectl bpfman image inspect"},
		"a kind":            {"kubectl bpfman why tracep" + tab, "kubectl bpfman why tracepointprogram/"},
		"an object":         {"kubectl bpfman why tracepointprogram/cou" + tab, "kubectl bpfman why tracepointprogram/counter"},
		"kind, then object": {"kubectl bpfman maps tracep" + tab + "c" + tab, "kubectl bpfman maps tracepointprogram/counter"},
		"a node":            {"kubectl bpfman programs --node wor" + tab, "kubectl bpfman programs --node worker-1"},
		"a flag":            {"kubectl bpfman programs --no-h" + tab, "kubectl bpfman programs --no-headers"},
		"a value":           {"kubectl bpfman programs --by bp" + tab, "kubectl bpfman programs --by bpfman"},
		"a format":          {"kubectl bpfman programs -o y" + tab, "kubectl bpfman programs -o yaml"},
		"nothing known":     {"kubectl bpfman why pod/c" + tab, "kubectl bpfman why pod/c"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shell.complete(t, row.typed); got != row.want {
				t.Errorf("%q becomes %q, not %q", row.typed, got, row.want)
			}
		})
	}
}

// shell contains how to start an interactive bash.
type shell struct{ directory, kubeconfig string }

// newShell creates a directory for PATH with kubectl and the plugin's two programs, and a configuration for bash.
func newShell(t *testing.T, plugin, kubeconfig string) shell {
	t.Helper()
	directory := t.TempDir()
	plugin, err := filepath.Abs(plugin)
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"kubectl":                 filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
		"kubectl-bpfman":          plugin,
		"kubectl_complete-bpfman": filepath.Join(filepath.Dir(plugin), "kubectl_complete-bpfman"),
	} {
		must.Succeed(t, os.Symlink(target, filepath.Join(directory, name)))
	}
	configuration := fmt.Sprintf("source %s\nsource <(kubectl completion bash)\nbind 'set enable-bracketed-paste off'\nbind 'set bell-style none'\n", bashCompletion)
	must.Succeed(t, os.WriteFile(filepath.Join(directory, "bashrc"), []byte(configuration), 0o600))
	return shell{directory, kubeconfig}
}

// complete types a line, and returns the completed line. To read it, it goes to the start of the line, inserts
// echo, and runs the command.
func (s shell) complete(t *testing.T, typed string) string {
	t.Helper()
	const beginning, end, mark = "\x01", "\x05", "completed:"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// script provides a terminal. Without one, bash doesn't handle keys.
	command := exec.CommandContext(ctx, "script", "--quiet", "--command", "bash --noprofile --rcfile "+filepath.Join(s.directory, "bashrc")+" -i", "/dev/null")
	command.Env = []string{"PATH=" + s.directory + ":/usr/bin:/bin", "KUBECONFIG=" + s.kubeconfig, "HOME=" + s.directory, "TERM=dumb", "PS1=", "COLUMNS=500"}
	command.Stdin = strings.NewReader(typed + beginning + "echo " + mark + end + "\nexit\n")
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Fatalf("bash: %v: %s", err, &out)
	}
	for line := range strings.Lines(out.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("bash completes nothing: %q", &out)
	return ""
}
