// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// pluginDir is the output directory of `make kubectl-bpfman`.
const pluginDir = "../../bin"

// plugin runs `kubectl bpfman`, through kubectl, and returns its output.
func plugin(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryPlugin(ctx, t, args...)
	if err != nil {
		t.Fatalf("kubectl bpfman %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func tryPlugin(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	dir, err := filepath.Abs(pluginDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubectl-bpfman")); err != nil {
		prerequisite.Missing(t, "run `make kubectl-bpfman` first", prerequisite.Commands)
	}
	kubectl, err := exec.LookPath(cmp.Or(os.Getenv("KUBECTL"), "kubectl"))
	if err != nil {
		prerequisite.Missing(t, "KUBECTL doesn't say where it is", prerequisite.Kubectl)
	}
	command := exec.CommandContext(ctx, kubectl, append([]string{"bpfman"}, args...)...)
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+settings.kubeconfig)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if stderr.Len() > 0 {
		t.Logf("kubectl bpfman %s said:\n%s", strings.Join(args, " "), stderr.String())
	}
	return string(out), err
}

// pushFlags returns the flags that make the plugin trust the tests' registry.
func pushFlags() []string {
	if settings.pushCA == "" {
		return nil
	}
	return []string{"--registry-ca", settings.pushCA}
}

// TestPluginImage packs the objects of several programs for all platforms, pushes them, reads them back, and
// applies the suggested object. The daemon loads it.
func TestPluginImage(t *testing.T) {
	requirePush(t)
	requireType(t, "TCX")
	if _, err := os.Stat("../../bin/bytecode/go-app-counter.o"); err != nil {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	version := "e2e-" + strings.ToLower(time.Now().UTC().Format("20060102T150405"))
	pushed, seen := settings.push+"/"+bytecodePrefix+"/plugin:"+version, settings.bytecode+"/plugin:"+version
	archive := filepath.Join(t.TempDir(), "plugin.tar")
	apply := func(ctx context.Context, s *testing.T, o v1alpha1.UserObject, args ...string) {
		s.Helper()
		text := plugin(ctx, s, append(append([]string{"image", "inspect", pushed, "--image", seen, "--name", "e2e-plugin-" + args[1]}, args...), pushFlags()...)...)
		if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
			s.Fatalf("%v:\n%s", err, text)
		}
		create(ctx, t, o)
		awaitSuccess(ctx, s, o)
	}
	feature(t,
		step{"built twice, it is the same", func(ctx context.Context, s *testing.T) {
			build := []string{"image", "build", "-f", "../../bin/bytecode/go-app-counter.o", "-o", archive}
			first, second := plugin(ctx, s, build...), plugin(ctx, s, build...)
			if first != second || !regexp.MustCompile(`^sha256:[0-9a-f]{64}\n$`).MatchString(first) {
				s.Errorf("digests %q and %q", first, second)
			}
			reference := plugin(ctx, s, append([]string{"image", "push", pushed, "--from", archive}, pushFlags()...)...)
			if !strings.HasSuffix(reference, "@"+first) {
				s.Errorf("pushed %s, built %s", reference, first)
			}
		}},
		step{"inspected, it says what is in it", func(ctx context.Context, s *testing.T) {
			out := plugin(ctx, s, append([]string{"image", "inspect", pushed}, pushFlags()...)...)
			for _, words := range []string{"linux/amd64, linux/arm64", "tcx_stats ", "classifier", "tcx_stats_map ", "percpu_array"} {
				if !strings.Contains(out, words) {
					s.Errorf("%q is missing in:\n%s", words, out)
				}
			}
		}},
		step{"as a TcxProgram", func(ctx context.Context, s *testing.T) {
			apply(ctx, s, &v1alpha1.TcxProgram{}, "--as", "tcx", "--function", "tcx_stats", "--attach-to", "lo")
		}},
		step{"as a TracepointProgram", func(ctx context.Context, s *testing.T) {
			apply(ctx, s, &v1alpha1.TracepointProgram{}, "--as", "tracepoint")
		}},
		step{"as an application", func(ctx context.Context, s *testing.T) {
			apply(ctx, s, &v1alpha1.BpfApplication{}, "--as", "application", "--function", "tcx_stats,tracepoint_kill_recorder", "--attach-to", "tcx_stats=lo")
		}},
	)
}

// TestPluginWhy explains programs that are attached, that wait for an interface, and that the verifier rejects,
// with all permissions, and with those to read only the kinds.
func TestPluginWhy(t *testing.T) {
	requireType(t, "TCX")
	fine, waiting, rejected := tcx("e2e-why-fine", "lo"), tcx("e2e-why-waiting", "e2eabsent2"), tcx("e2e-why-rejected", "lo")
	rejected.Spec.ByteCode, rejected.Spec.BpfFunctionName = image("rejected"), "rejected"
	viewer := []string{"--as", "e2e-reader"}
	feature(t,
		step{"attached", func(ctx context.Context, s *testing.T) {
			create(ctx, t, fine)
			awaitSuccess(ctx, s, fine)
			saysWhy(ctx, s, fine, nil, ": attached\n", "tcx_next: Loaded", "lo ingress: attached")
			out := plugin(ctx, s, "why", "tcxprogram/"+fine.Name, "-o", "jsonpath={.nodes[*].state}")
			if want := strings.TrimSpace(strings.Repeat("Attached ", len(under.nodes()))); out != want {
				s.Errorf("states %q, want %q", out, want)
			}
		}},
		step{"without its interface", func(ctx context.Context, s *testing.T) {
			create(ctx, t, waiting)
			awaitFailure(ctx, s, waiting)
			saysWhy(ctx, s, waiting, nil, ": failed\n", "the node has no interface e2eabsent2", "e2eabsent2 ingress: not attached", "To do: the program is attached once interface e2eabsent2 appears: to attach it to ")
		}},
		step{"rejected", func(ctx context.Context, s *testing.T) {
			create(ctx, t, rejected)
			awaitFailure(ctx, s, rejected)
			// With the daemon in Go, the line before it is between the two.
			saysWhy(ctx, s, rejected, nil, "the kernel's verifier refuses the program: ", "R1 offset is outside of the packet", "To do: correct the line of the source")
		}},
		step{"of the whole cluster", func(ctx context.Context, s *testing.T) {
			out := plugin(ctx, s, "why")
			for _, words := range []string{"TcxProgram " + waiting.Name + ": failed\n", "the node has no interface e2eabsent2", "TcxProgram " + rejected.Name + ": failed\n", "kubectl bpfman why tcxprogram/" + rejected.Name} {
				if !strings.Contains(out, words) {
					s.Errorf("%q is missing in:\n%s", words, out)
				}
			}
			if strings.Contains(out, fine.Name) || !strings.Contains(plugin(ctx, s, "why", "-o", "wide"), "TcxProgram "+fine.Name+": attached") {
				s.Errorf("%s, which is attached, isn't only in the wide output:\n%s", fine.Name, out)
			}
		}},
		step{"with rights on the kinds alone", func(ctx context.Context, s *testing.T) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "e2e-why"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{v1alpha1.SchemeGroupVersion.Group}, Resources: []string{"tcxprograms", "bpfprograms"}, Verbs: []string{"get", "list"}},
			}}
			binding := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "e2e-why"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer[1]}},
			}
			create(ctx, t, role)
			create(ctx, t, binding)
			saysWhy(ctx, s, fine, viewer, ": attached\n", "Not readable:", "nodes: ", `User "e2e-reader" cannot list resource "nodes"`)
		}},
		step{"maps", func(ctx context.Context, s *testing.T) {
			o := tracepoint("e2e-why-maps")
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
			namespace(ctx, t, o.Name)
			pod := reader(o.Name, o.Name, o.Name, "*")
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
			var out string
			await(ctx, s, "the maps of the pod's node name the pod", func(ctx context.Context) (bool, string) {
				out = plugin(ctx, s, "maps", "--node", get(ctx, s, pod).Spec.NodeName, "--no-headers")
				return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
					return strings.Contains(line, "tracepoint_stat") && strings.Contains(line, pod.Namespace+"/"+pod.Name)
				}), out
			})
			await(ctx, s, "the inspector sees the maps", func(ctx context.Context) (bool, string) {
				out = plugin(ctx, s, "maps", "tracepointprogram/"+o.Name, "-o", "wide", "--no-headers")
				return strings.Contains(out, "array"), out
			})
			for _, words := range []string{"tracepoint_stats_map", "/run/bpfman/fs/maps/"} {
				if strings.Count(out, words) < len(under.nodes()) {
					s.Errorf("%q isn't there for each node:\n%s", words, out)
				}
			}
		}},
	)
}

// saysWhy checks that the plugin's explanation of an object contains some words.
func saysWhy(ctx context.Context, t *testing.T, o v1alpha1.UserObject, flags []string, words ...string) {
	t.Helper()
	out := plugin(ctx, t, append([]string{"why", strings.ToLower(kindOf(o)) + "/" + o.GetName()}, flags...)...)
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("%q is missing in:\n%s", w, out)
		}
	}
}
