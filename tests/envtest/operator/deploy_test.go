// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

var (
	daemonSetKey = types.NamespacedName{Namespace: namespace, Name: deploy.DaemonSetName}
	configMapKey = types.NamespacedName{Namespace: namespace, Name: deploy.ConfigMapName}
)

func getDaemonSet(t *testing.T, c client.Client) *appsv1.DaemonSet {
	t.Helper()
	ds := &appsv1.DaemonSet{}
	envtest.Eventually(t, "the DaemonSet is there", func(ctx context.Context) error { return c.Get(ctx, daemonSetKey, ds) })
	return ds
}

func getConfigMap(t *testing.T, c client.Client) *corev1.ConfigMap {
	t.Helper()
	configMap := &corev1.ConfigMap{}
	must.Succeed(t, c.Get(t.Context(), configMapKey, configMap))
	return configMap
}

// set edits keys of the ConfigMap until the test ends.
func set(t *testing.T, c client.Client, data map[string]string) *corev1.ConfigMap {
	t.Helper()
	before := getConfigMap(t, c)
	edited := before.DeepCopy()
	maps.Copy(edited.Data, data)
	must.Succeed(t, c.Update(t.Context(), edited))
	t.Cleanup(func() {
		restored := edited.DeepCopy()
		restored.Data, restored.ResourceVersion, restored.UID = before.Data, "", ""
		if err := c.Update(context.Background(), restored); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return edited
}

func image(ds *appsv1.DaemonSet, container string) string {
	i := slices.IndexFunc(ds.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return ""
	}
	return ds.Spec.Template.Spec.Containers[i].Image
}

func hasImage(c client.Client, container, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, ds); err != nil {
			return err
		}
		if got := image(ds, container); got != want {
			return fmt.Errorf("image of %s is %q, want %q", container, got, want)
		}
		return nil
	}
}

func TestNodeComponentsAreDeployed(t *testing.T) {
	c := cluster(t)
	ds, configMap := getDaemonSet(t, c), getConfigMap(t, c)
	if owner := metav1.GetControllerOf(ds); owner == nil || owner.UID != configMap.UID {
		t.Errorf("owned by %v, not by the ConfigMap: garbage collection won't take it", owner)
	}
	if len(ds.Finalizers)+len(configMap.Finalizers) > 0 {
		t.Error("there are finalizers")
	}
	driver := &storagev1.CSIDriver{}
	envtest.Eventually(t, "the CSIDriver is there", func(ctx context.Context) error {
		return c.Get(ctx, types.NamespacedName{Name: deploy.CSIDriverName}, driver)
	})
	ns := &corev1.Namespace{}
	must.Succeed(t, c.Get(t.Context(), types.NamespacedName{Name: namespace}, ns))
	if len(driver.OwnerReferences) != 1 || driver.OwnerReferences[0].UID != ns.UID {
		t.Errorf("owned by %v, not by the namespace: it would outlive it", driver.OwnerReferences)
	}
	envtest.Eventually(t, "an Event says so", hasEvent(c, configMap, deploy.ReasonApplied, func(note string) bool {
		return note == "Created DaemonSet bpfman-daemon"
	}))
}

// Upstream's fault 25: an edit of bpfman.toml restarted nothing.
func TestUpstreamFault25ConfigMapEditsReachTheDaemonSet(t *testing.T) {
	c := cluster(t)
	getDaemonSet(t, c)
	set(t, c, map[string]string{deploy.KeyAgentImage: "quay.io/bpfman/bpfman-agent:other", deploy.KeyDaemonTOML: "[database]\nmax_retries = 1\n"})
	envtest.Eventually(t, "the new image is there", hasImage(c, "bpfman-agent", "quay.io/bpfman/bpfman-agent:other"))
	if got := getDaemonSet(t, c).Spec.Template.Annotations["bpfman.io/bpfman.toml"]; got != "[database]\nmax_retries = 1\n\n[signing]\nverify_enabled = false\n" {
		t.Errorf("bpfman.toml is %q", got)
	}
}

// The daemon can't verify signatures, because it reads no images. What the user wanted isn't lost.
func TestUnsignedBytecodeStaysRefused(t *testing.T) {
	c := cluster(t)
	getDaemonSet(t, c)
	requires := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			ds := &appsv1.DaemonSet{}
			if err := c.Get(ctx, daemonSetKey, ds); err != nil {
				return err
			}
			for _, container := range ds.Spec.Template.Spec.Containers {
				if container.Name == "bpfman-agent" && slices.Contains(container.Args, "--require-policy") != want {
					return fmt.Errorf("the agent has %q", container.Args)
				}
			}
			return nil
		}
	}
	t.Run("refused", func(t *testing.T) {
		configMap := set(t, c, map[string]string{deploy.KeyDaemonTOML: "[signing]\nallow_unsigned = false\n"})
		envtest.Eventually(t, "the agent refuses bytecode without a policy", requires(true))
		envtest.Eventually(t, "an Event says what to do", hasEvent(c, configMap, deploy.ReasonVerificationMoved, func(note string) bool {
			return strings.Contains(note, "BytecodePolicy with mode: enforce")
		}))
	})
	envtest.Eventually(t, "the agent needs no policy", requires(false))
}

func TestWithoutCSI(t *testing.T) {
	c := cluster(t)
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: deploy.CSIDriverName}}
	there := func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(driver), driver) }
	envtest.Eventually(t, "the CSIDriver is there", there)
	t.Run("disabled", func(t *testing.T) {
		set(t, c, map[string]string{deploy.KeyCSIEnabled: "false"})
		envtest.Eventually(t, "the CSIDriver goes", gone(c, driver))
		envtest.Eventually(t, "the plugin goes", hasImage(c, "bpfman-csi", ""))
	})
	envtest.Eventually(t, "the CSIDriver comes back", there)
	envtest.Eventually(t, "the plugin comes back", hasImage(c, "bpfman-csi", "quay.io/bpfman/bpfman-csi:latest"))
}

// A BpfNode that no inspector updates would look as if nothing changed.
func TestBpfNodesGoWithTheInspector(t *testing.T) {
	c := cluster(t)
	getDaemonSet(t, c)
	inspected := func(name string) *v1alpha1.BpfNode {
		addNode(t, c, name, map[string]string{"kubernetes.io/os": "linux"})
		object := &v1alpha1.BpfNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		create(t, c, object)
		return object
	}
	stays, left := inspected("inspected"), inspected("inspected-no-more")
	changeNode(t, c, left.Name, func(n *corev1.Node) { n.Labels = nil })
	envtest.Eventually(t, "that of a node that isn't selected goes", gone(c, left))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stays), stays); err != nil {
		t.Errorf("the other: %v", err)
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent-" + stays.Name}}
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: deploy.InspectorContainer}}
	must.Succeed(t, c.Status().Update(t.Context(), pod))
	set(t, c, map[string]string{deploy.KeyInspectorEnabled: "false"})
	envtest.Eventually(t, "the inspector goes", hasImage(c, deploy.InspectorContainer, ""))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stays), stays); err != nil {
		t.Errorf("it is gone before its inspector: %v", err)
	}
	must.Succeed(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	envtest.Eventually(t, "it goes with its inspector", gone(c, stays))
}

func TestBrokenValueKeepsWhatRuns(t *testing.T) {
	c := cluster(t)
	envtest.Eventually(t, "what runs is the default", hasImage(c, "bpfman-agent", "quay.io/bpfman/bpfman-agent:latest"))
	configMap := set(t, c, map[string]string{
		deploy.KeyAgentImage:    "quay.io/bpfman/bpfman-agent:never",
		deploy.KeyAgentLogLevel: "loud",
		"bpfman.agnet.image":    "oops",
	})
	envtest.Eventually(t, "an Event names the key and the reason", hasEvent(c, configMap, deploy.ReasonInvalidConfig, func(note string) bool {
		return strings.Contains(note, deploy.KeyAgentLogLevel+`: "loud" is not one of info, debug, trace`)
	}))
	envtest.Eventually(t, "an Event names the unknown key", hasEvent(c, configMap, deploy.ReasonUnknownKey, func(note string) bool {
		return strings.Contains(note, "bpfman.agnet.image")
	}))
	if got := image(getDaemonSet(t, c), "bpfman-agent"); got != "quay.io/bpfman/bpfman-agent:latest" {
		t.Errorf("the DaemonSet was changed: image %s", got)
	}
	set(t, c, map[string]string{deploy.KeyAgentLogLevel: "debug"})
	envtest.Eventually(t, "the mended ConfigMap takes effect", hasImage(c, "bpfman-agent", "quay.io/bpfman/bpfman-agent:never"))
}

// Upstream's fault 9: an edited or deleted DaemonSet wasn't repaired.
func TestUpstreamFault09DriftIsRepaired(t *testing.T) {
	c := cluster(t)
	ds := getDaemonSet(t, c)
	want := image(ds, "bpfman-csi")
	for i := range ds.Spec.Template.Spec.Containers {
		ds.Spec.Template.Spec.Containers[i].Image = "example.com/evil:latest"
	}
	must.Succeed(t, c.Update(t.Context(), ds, client.FieldOwner(admin)))
	envtest.Eventually(t, "the edited DaemonSet is repaired", hasImage(c, "bpfman-csi", want))

	must.Succeed(t, c.Delete(t.Context(), ds))
	envtest.Eventually(t, "the deleted DaemonSet is back", func(ctx context.Context) error {
		back := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, back); err != nil {
			return err
		}
		if back.UID == ds.UID {
			return errors.New("it hasn't gone yet")
		}
		return nil
	})

	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: deploy.CSIDriverName}}
	must.Succeed(t, c.Delete(t.Context(), driver))
	envtest.Eventually(t, "the deleted CSIDriver is back", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKeyFromObject(driver), driver)
	})
}

// Fields of other owners stay unchanged, and nothing is written if nothing changes.
func TestNothingIsWrittenTwice(t *testing.T) {
	c := cluster(t)
	ds := getDaemonSet(t, c)
	patch := client.MergeFrom(ds.DeepCopy())
	ds.Annotations = map[string]string{"example.com/note": "someone's"}
	must.Succeed(t, c.Patch(t.Context(), ds, patch, client.FieldOwner(admin)))
	set(t, c, map[string]string{deploy.KeyCSILogLevel: "debug"})
	after := &appsv1.DaemonSet{}
	envtest.Eventually(t, "the edit takes effect", func(ctx context.Context) error {
		if err := c.Get(ctx, daemonSetKey, after); err != nil {
			return err
		}
		if after.Generation == ds.Generation {
			return errors.New("not yet")
		}
		return nil
	})
	if after.Annotations["example.com/note"] != "someone's" {
		t.Error("another's annotation is gone")
	}
	if after.Generation != ds.Generation+1 {
		t.Errorf("%d writes for one edit", after.Generation-ds.Generation)
	}
	owned := slices.IndexFunc(after.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == deploy.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
	if owned < 0 || strings.Contains(after.ManagedFields[owned].FieldsV1.GetRawString(), "example.com/note") {
		t.Errorf("field ownership: %v", after.ManagedFields)
	}
}

// Upstream's fault 22, and its finalizers: without the ConfigMap, everything is deleted, and nothing
// is created.
func TestUpstreamFault22ConfigMapGone(t *testing.T) {
	c := cluster(t)
	getDaemonSet(t, c)
	configMap := getConfigMap(t, c)
	must.Succeed(t, c.Delete(t.Context(), configMap))
	envtest.Eventually(t, "the CSIDriver goes", gone(c, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: deploy.CSIDriverName}}))
	// This is the garbage collector's task, which doesn't run here.
	must.Succeed(t, c.Delete(t.Context(), getDaemonSet(t, c)))
	configMap.ResourceVersion, configMap.UID = "", ""
	must.Succeed(t, c.Create(t.Context(), configMap))
	envtest.Eventually(t, "all is back with the ConfigMap", func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, ds); err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(ds); owner == nil || owner.UID != configMap.UID {
			return fmt.Errorf("owned by %v", owner)
		}
		return c.Get(ctx, types.NamespacedName{Name: deploy.CSIDriverName}, &storagev1.CSIDriver{})
	})
}

// Upstream's fault 28: ConfigMaps with the name in other namespaces were watched, and couldn't be
// handled.
func TestUpstreamFault28ConfigMapsOfOtherNamespacesAreLeftAlone(t *testing.T) {
	c := cluster(t)
	getDaemonSet(t, c)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: deploy.ConfigMapName},
		Data:       map[string]string{deploy.KeyAgentImage: "quay.io/bpfman/bpfman-agent:foreign"},
	}
	create(t, c, foreign)
	version := foreign.ResourceVersion
	// A later change shows that there was enough time.
	set(t, c, map[string]string{deploy.KeyAgentImage: "quay.io/bpfman/bpfman-agent:own"})
	envtest.Eventually(t, "the own one's image is there", hasImage(c, "bpfman-agent", "quay.io/bpfman/bpfman-agent:own"))
	must.Succeed(t, c.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	var sets appsv1.DaemonSetList
	must.Succeed(t, c.List(t.Context(), &sets))
	if foreign.ResourceVersion != version || len(sets.Items) != 1 {
		t.Errorf("version %s became %s, %d DaemonSets", version, foreign.ResourceVersion, len(sets.Items))
	}
}
