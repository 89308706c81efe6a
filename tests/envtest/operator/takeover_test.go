// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/takeover"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

var standIn = upstream.StandIn{Image: "quay.io/bpfman/bpfman-agent:v0.5.6", Command: []string{"/bpfman-agent"}}

// Only upstream's finalizers are removed, immediately, from objects of each kind.
func TestUpstreamFinalizersOfObjects(t *testing.T) {
	c := cluster(t)
	const users = "example.com/keep"
	for _, kind := range v1alpha1.UserKinds {
		t.Run(kind.Name, func(t *testing.T) {
			o := envtest.Object(t, kind, strings.ToLower(kind.Name)+"-finalizer", envtest.Spec(kind.Name))
			o.SetFinalizers([]string{upstream.Finalizer, users})
			create(t, c, o)
			envtest.Eventually(t, "upstream's finalizer goes", func(ctx context.Context) error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
					return err
				}
				if !slices.Equal(o.GetFinalizers(), []string{users}) {
					return fmt.Errorf("finalizers %q", o.GetFinalizers())
				}
				return nil
			})
			envtest.Eventually(t, "an Event says so", hasEvent(c, o, takeover.ReasonTakenOver, func(note string) bool {
				return strings.Contains(note, upstream.Finalizer)
			}))
			must.Succeed(t, c.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		})
	}
}

// upstreamReport writes a report like upstream's agent.
func upstreamReport(t *testing.T, c client.Client, kind string, owner v1alpha1.UserObject, node string) v1alpha1.ProgramObject {
	t.Helper()
	r := upstream.Report(kind, owner, node, "eth0")
	must.Succeed(t, c.Create(t.Context(), r, upstream.AgentFieldManager))
	r.GetStatus().Conditions = upstream.ReportConditions()
	must.Succeed(t, c.Status().Update(t.Context(), r, upstream.AgentFieldManager))
	return r
}

// Reports of upstream's agent stay exactly as long as it runs on their node. Reports of this project's agent
// stay.
func TestUpstreamReports(t *testing.T) {
	c := cluster(t)
	addNode(t, c, "theirs-a", map[string]string{"pool": "theirs"})
	agent := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-of-upstream", Namespace: namespace, Labels: deploy.PodLabels()},
		Spec:       corev1.PodSpec{NodeName: "theirs-a", Containers: []corev1.Container{{Name: "agent", Image: standIn.Image}}},
	}
	create(t, c, agent)
	// The pod of addNode is one of this project's.
	ourPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-theirs-a", Namespace: namespace}}
	must.Succeed(t, c.Patch(t.Context(), ourPod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/part-of":"bpfman"}}}`))))

	o := tracepoint("theirs", "theirs")
	o.Finalizers = []string{upstream.Finalizer}
	create(t, c, o)
	namespaced := &v1alpha1.TcxNsProgram{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: metav1.NamespaceDefault}}
	must.Succeed(t, json.Unmarshal([]byte(envtest.Spec("TcxNsProgram")), &namespaced.Spec))
	create(t, c, namespaced)
	reports := []v1alpha1.ProgramObject{upstreamReport(t, c, "TracepointProgram", o, "theirs-a"), upstreamReport(t, c, "TcxNsProgram", namespaced, "theirs-a")}
	ours := report(t, c, o, "theirs-a", v1alpha1.BpfProgCondLoaded.Condition())
	shows(t, c, o, "1/1/0 ReconcileSuccess: Attached on 1 of 1 selected node")
	for _, r := range reports {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil || len(r.GetFinalizers()) == 0 || !r.GetDeletionTimestamp().IsZero() {
			t.Errorf("%s isn't left to its agent: %v, %v", r.GetName(), r.GetFinalizers(), err)
		}
	}

	must.Succeed(t, c.Delete(t.Context(), agent, client.GracePeriodSeconds(0)))
	for _, r := range reports {
		envtest.Eventually(t, "a report goes with its agent", gone(c, r))
	}
	envtest.Eventually(t, "an Event says so", hasEvent(c, getConfigMap(t, c), takeover.ReasonTakenOver, func(note string) bool {
		return note == "Deleted 2 reports of upstream's agent on node theirs-a"
	}))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(ours), ours); err != nil || !ours.DeletionTimestamp.IsZero() {
		t.Errorf("our report: %v", err)
	}
}

// overwritten simulates upstream's operator, which replaces the content of the DaemonSet.
func overwritten(t *testing.T, c client.Client) *appsv1.DaemonSet {
	t.Helper()
	theirs := upstream.DaemonSet(namespace, standIn)
	envtest.Eventually(t, "upstream's operator updates the DaemonSet", func(ctx context.Context) error {
		now := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, now); err != nil {
			return err
		}
		now.Spec, now.Labels, now.Finalizers, now.OwnerReferences = theirs.Spec, theirs.Labels, theirs.Finalizers, nil
		return c.Update(ctx, now, upstream.FieldManager)
	})
	return getDaemonSet(t, c)
}

// isOurs checks that the DaemonSet is exactly what the operator deploys.
func isOurs(c client.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, ds); err != nil {
			return err
		}
		pod := ds.Spec.Template
		env := pod.Spec.Containers[0].Env
		wanted, err := variables(ctx, c)
		if err != nil {
			return err
		}
		switch {
		case len(ds.Finalizers) > 0 || metav1.GetControllerOf(ds) == nil:
			return fmt.Errorf("finalizers %q, owners %v", ds.Finalizers, ds.OwnerReferences)
		case image(ds, "bpfman-csi") == "":
			return errors.New("no CSI plugin")
		case !slices.EqualFunc(env, wanted, func(v corev1.EnvVar, name string) bool { return v.Name == name }) || env[0].ValueFrom != nil || env[0].Value == "":
			return fmt.Errorf("environment of %s: %+v", pod.Spec.Containers[0].Name, env)
		}
		for key := range pod.Annotations {
			if strings.HasPrefix(key, "bpfman.io.") {
				return fmt.Errorf("annotation %s", key)
			}
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name == "default-bpf-fs" {
				return fmt.Errorf("volume %s", v.Name)
			}
		}
		return nil
	}
}

// variables returns the names of the variables that the operator sets for the daemon.
func variables(ctx context.Context, c client.Client) ([]string, error) {
	configMap := &corev1.ConfigMap{}
	if err := c.Get(ctx, configMapKey, configMap); err != nil {
		return nil, err
	}
	config, _, err := deploy.ParseConfig(configMap.Data)
	if err != nil {
		return nil, err
	}
	object, err := deploy.DaemonSet(config, namespace)
	if err != nil {
		return nil, err
	}
	wanted := &appsv1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, wanted); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range wanted.Spec.Template.Spec.Containers[0].Env {
		names = append(names, v.Name)
	}
	return names, nil
}

// alone creates a separate configuration for a test, so that its repairs don't count together with those of other
// tests.
func alone(t *testing.T, c client.Client) *corev1.ConfigMap {
	t.Helper()
	secret := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	configMap := set(t, c, map[string]string{deploy.KeyImagePullSecrets: secret})
	envtest.Eventually(t, "the configuration is deployed", func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, ds); err != nil {
			return err
		}
		if secrets := ds.Spec.Template.Spec.ImagePullSecrets; len(secrets) != 1 || secrets[0].Name != secret {
			return fmt.Errorf("pull secrets %v", secrets)
		}
		return nil
	})
	return configMap
}

// A DaemonSet of upstream's operator is changed in place, so that its pods are rolled out.
func TestUpstreamDaemonSetIsTakenOver(t *testing.T) {
	c := cluster(t)
	configMap := alone(t, c)
	was := overwritten(t, c)
	envtest.Eventually(t, "the DaemonSet is ours", isOurs(c))
	ds := getDaemonSet(t, c)
	if ds.UID != was.UID {
		t.Error("another DaemonSet took its place")
	}
	for _, entry := range ds.ManagedFields {
		if entry.Subresource == "" && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Manager == string(upstream.FieldManager) {
			t.Errorf("upstream's operator still owns %s", entry.FieldsV1.GetRawString())
		}
	}
	for _, words := range []string{"Took over DaemonSet bpfman-daemon", "Removed the finalizer " + upstream.Finalizer} {
		envtest.Eventually(t, "an Event says "+words, hasEvent(c, configMap, takeover.ReasonTakenOver, func(note string) bool { return strings.Contains(note, words) }))
	}
}

// If it is being deleted, its finalizers are removed, and it is created again.
func TestUpstreamDaemonSetBeingDeleted(t *testing.T) {
	c := cluster(t)
	alone(t, c)
	held := getDaemonSet(t, c)
	must.Succeed(t, c.Patch(t.Context(), held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["`+upstream.Finalizer+`"]}}`))))
	must.Succeed(t, c.Delete(t.Context(), held))
	envtest.Eventually(t, "another takes its place", func(ctx context.Context) error {
		ds := &appsv1.DaemonSet{}
		if err := c.Get(ctx, daemonSetKey, ds); err != nil {
			return err
		}
		if ds.UID == held.UID {
			return fmt.Errorf("it is there, with finalizers %q", ds.Finalizers)
		}
		return isOurs(c)(ctx)
	})
}

// A DaemonSet that another tool applied, and that can't be merged, is deleted and created again.
func TestDaemonSetThatCannotBeChanged(t *testing.T) {
	c := cluster(t)
	configMap := alone(t, c)
	for _, change := range []struct {
		name string
		edit func(*appsv1.DaemonSet)
		as   func(context.Context, *appsv1.DaemonSet) error
	}{
		{"another selector", func(ds *appsv1.DaemonSet) {
			ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "daemon"}}
			ds.Spec.Template.Labels["name"] = "daemon"
		}, func(ctx context.Context, ds *appsv1.DaemonSet) error { return c.Create(ctx, ds, upstream.FieldManager) }},
		{"applied by another", func(*appsv1.DaemonSet) {}, func(ctx context.Context, ds *appsv1.DaemonSet) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ds)
			if err != nil {
				return err
			}
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}), client.FieldOwner("gitops"), client.ForceOwnership)
		}},
		{"nobody knows by whom", func(*appsv1.DaemonSet) {}, func(ctx context.Context, ds *appsv1.DaemonSet) error {
			ds.ManagedFields = []metav1.ManagedFieldsEntry{{}}
			return c.Create(ctx, ds)
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			theirs := upstream.DaemonSet(namespace, standIn)
			change.edit(theirs)
			envtest.Eventually(t, "it is theirs", func(ctx context.Context) error {
				if err := c.Delete(ctx, getDaemonSet(t, c)); client.IgnoreNotFound(err) != nil { //nolint:contextcheck // it has the test's context
					return err
				}
				fresh := theirs.DeepCopy()
				if err := change.as(ctx, fresh); err != nil {
					return err
				}
				return nil
			})
			envtest.Eventually(t, "the DaemonSet is ours", isOurs(c))
		})
	}
	envtest.Eventually(t, "an Event says why", hasEvent(c, configMap, takeover.ReasonTakenOver, func(note string) bool {
		return strings.Contains(note, "Deleted DaemonSet bpfman-daemon to create it again") && strings.Contains(note, "immutable")
	}))
}

func TestUpstreamCSIDriver(t *testing.T) {
	c := cluster(t)
	alone(t, c)
	envtest.Eventually(t, "upstream's CSIDriver is there", func(ctx context.Context) error {
		driver := upstream.CSIDriver()
		if err := c.Delete(ctx, driver); client.IgnoreNotFound(err) != nil {
			return err
		}
		return c.Create(ctx, driver, upstream.FieldManager)
	})
	envtest.Eventually(t, "it is as ours", func(ctx context.Context) error {
		driver := &storagev1.CSIDriver{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(upstream.CSIDriver()), driver); err != nil {
			return err
		}
		if *driver.Spec.FSGroupPolicy != storagev1.NoneFSGroupPolicy || !*driver.Spec.RequiresRepublish || len(driver.OwnerReferences) != 1 {
			return fmt.Errorf("%+v", driver.Spec)
		}
		return nil
	})
}

func TestUpstreamConfigMap(t *testing.T) {
	c := cluster(t)
	alone(t, c)
	hold := func(t *testing.T) *corev1.ConfigMap {
		t.Helper()
		configMap := getConfigMap(t, c)
		must.Succeed(t, c.Patch(t.Context(), configMap, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["`+upstream.Finalizer+`"]}}`)), upstream.FieldManager))
		return configMap
	}
	configMap := hold(t)
	envtest.Eventually(t, "its finalizer goes", func(ctx context.Context) error {
		if err := c.Get(ctx, configMapKey, configMap); err != nil {
			return err
		}
		if len(configMap.Finalizers) > 0 {
			return fmt.Errorf("finalizers %q", configMap.Finalizers)
		}
		return nil
	})
	envtest.Eventually(t, "an Event says so", hasEvent(c, configMap, takeover.ReasonTakenOver, func(note string) bool {
		return strings.Contains(note, upstream.Finalizer)
	}))

	// Deleted with everything that upstream's operator would have removed.
	overwritten(t, c)
	configMap = hold(t)
	must.Succeed(t, c.Delete(t.Context(), configMap))
	envtest.Eventually(t, "the ConfigMap ends", gone(c, configMap))
	envtest.Eventually(t, "the CSIDriver goes", gone(c, upstream.CSIDriver()))
	configMap.ResourceVersion, configMap.UID, configMap.Finalizers, configMap.DeletionTimestamp = "", "", nil, nil
	must.Succeed(t, c.Create(t.Context(), configMap))
	envtest.Eventually(t, "all is back with the ConfigMap", isOurs(c))
}

// What only upstream has is deleted once, when the operator starts. TestMain creates it before.
func TestUpstreamRoles(t *testing.T) {
	c := cluster(t)
	for _, o := range upstream.Only(namespace) {
		envtest.Eventually(t, fmt.Sprintf("%T %s goes", o, o.GetName()), gone(c, o))
	}
	// Other tests can have created another ConfigMap in the meantime.
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapKey.Name}}
	envtest.Eventually(t, "an Event says so", hasEvent(c, configMap, takeover.ReasonTakenOver, func(note string) bool {
		return strings.Contains(note, "ClusterRole bpfman-proxy-role") && strings.Contains(note, "ClusterRoleBinding bpfman-auth-delegator") && strings.Contains(note, "Role bpfman-agent-role")
	}))
	for _, o := range upstream.Roles(namespace) {
		only := slices.ContainsFunc(upstream.Only(namespace), func(other client.Object) bool {
			return other.GetName() == o.GetName() && fmt.Sprintf("%T", other) == fmt.Sprintf("%T", o)
		})
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil && !only {
			t.Errorf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

// What the user edited in upstream's ConfigMap, which the installation keeps in an annotation, is taken over.
func TestUpstreamConfig(t *testing.T) {
	c := cluster(t)
	configMap := set(t, c, map[string]string{deploy.KeyAgentLogLevel: "info"})
	patch := []byte(`{"metadata":{"annotations":{"bpfman.io/upstream-config":` +
		`"{\"bpfman.agent.log.level\":\"debug\",\"bpfman.csi.log.level\":\"loud\",\"bpfman.typo\":\"x\"}"}}}`)
	must.Succeed(t, c.Patch(t.Context(), configMap, client.RawPatch("application/merge-patch+json", patch)))
	envtest.Eventually(t, "the values are taken over", func(ctx context.Context) error {
		if err := c.Get(ctx, configMapKey, configMap); err != nil {
			return err
		}
		if _, kept := configMap.Annotations[deploy.UpstreamConfig]; kept || configMap.Data[deploy.KeyAgentLogLevel] != "debug" || configMap.Data["bpfman.typo"] != "" {
			return fmt.Errorf("annotations %q, data %q", configMap.Annotations, configMap.Data)
		}
		return nil
	})
	for reason, note := range map[string]string{
		takeover.ReasonTakenOver: "Took over values of upstream's ConfigMap: bpfman.agent.log.level", takeover.ReasonNotTakenOver: "bpfman.typo: the key is unknown",
	} {
		envtest.Eventually(t, "an Event says so", hasEvent(c, configMap, reason, func(said string) bool { return strings.Contains(said, note) }))
	}
	envtest.Eventually(t, "an Event says what is invalid", hasEvent(c, configMap, takeover.ReasonNotTakenOver, func(said string) bool {
		return strings.Contains(said, `bpfman.csi.log.level: "loud" is not one of`)
	}))
}
