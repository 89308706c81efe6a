// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// uprobesBefore is the installed value of the key, which the tests of namespaced uprobes need to be "*".
var uprobesBefore = "*"

// allowUprobes lets uprobes of all namespaces be attached.
func allowUprobes(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	config := configMap()
	if err := under.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
		return ctx, fmt.Errorf("get the ConfigMap: %w", err)
	}
	uprobesBefore = config.Data[deploy.KeyUprobeNamespaces]
	return ctx, setUprobes(ctx, "*")
}

func restoreUprobes(ctx context.Context, _ *envconf.Config) (context.Context, error) {
	return ctx, setUprobes(ctx, uprobesBefore)
}

// setUprobes sets the namespaces whose uprobes are attached, and waits until the agents know.
func setUprobes(ctx context.Context, namespaces string) error {
	if uprobesBefore == "*" {
		return nil
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"data":{%q:%q}}`, deploy.KeyUprobeNamespaces, namespaces))
	if err := under.Patch(ctx, configMap(), patch); err != nil {
		return fmt.Errorf("edit the ConfigMap: %w", err)
	}
	err := eventually.Succeeds(ctx, recovery, interval, func(ctx context.Context) error {
		set := nodeComponents()
		if err := under.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		allowed := slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--uprobe-namespaces="+namespaces)
		})
		s := set.Status
		if allowed != (namespaces != "") || s.ObservedGeneration != set.Generation ||
			s.UpdatedNumberScheduled != s.DesiredNumberScheduled || s.NumberReady != s.DesiredNumberScheduled {
			return fmt.Errorf("the argument is there: %v, status %+v", allowed, s)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for the agents: %w", err)
	}
	return nil
}

// TestUprobesOfOneFile runs the same image in two namespaces. The kernel puts a uprobe on the file, which the
// containers share, so a uprobe of one namespace runs for the processes of both. It is only attached where an
// administrator allows that, and says what it sees.
func TestUprobesOfOneFile(t *testing.T) {
	requireType(t, node.NamespacedUprobe)
	const trusted, other = "e2e-uprobes-trusted", "e2e-uprobes-other"
	in := func(namespace string) *v1alpha1.UprobeNsProgram {
		return &v1alpha1.UprobeNsProgram{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "calls"},
			Spec:       v1alpha1.UprobeNsProgramSpec{UprobeNsProgramInfo: uprobeNsInfo("uprobe_counter"), BpfAppCommon: of("go-uprobe-counter")},
		}
	}
	allowed, refused := in(trusted), in(other)
	links := func(ctx context.Context, s *testing.T, o v1alpha1.UserObject, want int) {
		s.Helper()
		await(ctx, s, fmt.Sprintf("%s/%s has %d links", o.GetNamespace(), o.GetName(), want), func(ctx context.Context) (bool, string) {
			got := 0
			for _, n := range under.nodes() {
				programs, err := ask[[]node.Program](ctx, n, "programs")
				if err != nil {
					return false, err.Error()
				}
				for _, p := range programs {
					if p.Metadata[v1alpha1.MetadataUUID] == string(o.GetUID()) {
						got += len(p.Links)
					}
				}
			}
			return got == want, fmt.Sprint(got)
		})
	}
	feature(t,
		step{"pods of one image, and one trusted namespace", func(ctx context.Context, s *testing.T) {
			restoreConfig(ctx, t)
			edit(ctx, s, map[string]string{deploy.KeyUprobeNamespaces: trusted})
			for _, space := range []string{trusted, other} {
				namespace(ctx, t, space)
				pod := uprobeTarget()
				pod.Namespace = space
				create(ctx, t, pod)
				awaitReady(ctx, s, pod)
			}
			create(ctx, t, allowed)
			create(ctx, t, refused)
		}},
		step{"the trusted one says what it sees", func(ctx context.Context, s *testing.T) {
			awaitSuccess(ctx, s, allowed)
			links(ctx, s, allowed, 1)
			p := awaitReason(ctx, s, allowed, v1alpha1.BpfProgCondLoaded, "also in other namespaces")
			if n := len(p.GetStatus().Links); n != 1 {
				s.Errorf("%d links", n)
			}
		}},
		step{"the other is refused", func(ctx context.Context, s *testing.T) {
			awaitFailure(ctx, s, refused, "bpfman.uprobe.namespaces")
			links(ctx, s, refused, 0)
		}},
		step{"no longer trusted, it is detached", func(ctx context.Context, s *testing.T) {
			edit(ctx, s, map[string]string{deploy.KeyUprobeNamespaces: other})
			awaitFailure(ctx, s, allowed, "bpfman.uprobe.namespaces")
			links(ctx, s, allowed, 0)
			awaitSuccess(ctx, s, refused)
		}},
	)
}

// TestUprobeTargetsThatStall attaches uprobes to what the owner of a container can put in the place of a file. The
// daemon's own helper waits for a named pipe forever, and the daemon with it.
func TestUprobeTargetsThatStall(t *testing.T) {
	requireType(t, node.NamespacedUprobe)
	const space = "e2e-uprobes-stall"
	uprobe := func(name, target string) *v1alpha1.UprobeNsProgram {
		o := &v1alpha1.UprobeNsProgram{
			ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name},
			Spec:       v1alpha1.UprobeNsProgramSpec{UprobeNsProgramInfo: uprobeNsInfo("uprobe_counter"), BpfAppCommon: of("go-uprobe-counter")},
		}
		o.Spec.Target = target
		return o
	}
	feature(t,
		step{"a pod with a pipe", func(ctx context.Context, s *testing.T) {
			namespace(ctx, t, space)
			pod := uprobeTarget()
			pod.Namespace = space
			c := &pod.Spec.Containers[0]
			c.Image, c.Command, c.Args = busybox, []string{"sh", "-c", "mkfifo /tmp/pipe && sleep 100000"}, nil
			pod.Spec.Volumes = []corev1.Volume{{Name: "tmp"}}
			c.VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
			create(ctx, t, pod)
			awaitReady(ctx, s, pod)
		}},
		step{"what isn't a file is refused", func(ctx context.Context, s *testing.T) {
			for name, target := range map[string]string{"pipe": "/tmp/pipe", "zero": "/dev/zero", "directory": "/tmp"} {
				o := uprobe(name, target)
				create(ctx, t, o)
				awaitFailure(ctx, s, o, "Unable to attach uprobe in container", "open "+target+" in the container: it isn't a regular file")
			}
		}},
		step{"and other programs are attached", func(ctx context.Context, s *testing.T) {
			o := tracepoint(space + "-other")
			create(ctx, t, o)
			awaitSuccess(ctx, s, o)
		}},
	)
}
