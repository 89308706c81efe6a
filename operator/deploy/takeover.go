// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

// takeOver removes upstream's finalizers from an object, and makes the operator the owner of the fields that the
// managers have set with updates. Fields of another owner would be merged with the applied ones. After the takeover,
// fields that this operator doesn't apply are removed.
func (r *Reconciler) takeOver(ctx context.Context, configMap *corev1.ConfigMap, object *metav1.PartialObjectMetadata, managers sets.Set[string]) error {
	name := object.Kind + " " + object.Name
	removed, err := takeover.RemoveFinalizers(ctx, r.Client, object)
	if err != nil {
		return err
	}
	if len(removed) > 0 {
		event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, takeover.ReasonTakenOver, action,
			"Removed the finalizer "+strings.Join(removed, ", ")+" of upstream's operator from "+name)
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			// NotFound means that it was being deleted. It is created next.
			return client.IgnoreNotFound(err)
		}
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(object, managers, FieldManager)
	if err != nil {
		return fmt.Errorf("read the managed fields of %s: %w", name, err)
	}
	if patch == nil {
		return nil
	}
	if err := r.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("take over the fields of %s: %w", name, err)
	}
	event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, takeover.ReasonTakenOver, action,
		"Took over "+name+" from field manager "+strings.Join(sets.List(managers), ", ")+" (Update)")
	return nil
}

// replace handles an object that can't be merged with the applied one. First, it takes over all fields that any
// client has set. If that isn't enough, for example because a field is immutable, it deletes and recreates the
// object. If the API server would refuse the wanted object in any case, replace changes nothing, and returns
// refused.
func (r *Reconciler) replace(ctx context.Context, configMap *corev1.ConfigMap, wanted *unstructured.Unstructured, refused error) error {
	name := wanted.GetKind() + " " + wanted.GetName()
	if err := r.Client.Create(ctx, wanted.DeepCopy(), client.DryRunAll); !apierrors.IsAlreadyExists(err) {
		return refused
	}
	object := metadataOf(wanted)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), object); err != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	if err := r.takeOver(ctx, configMap, object, updaters(object)); err != nil {
		return err
	}
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted.DeepCopy()), client.FieldOwner(FieldManager), client.ForceOwnership)
	if err == nil || !apierrors.IsInvalid(err) {
		return err //nolint:wrapcheck // apply adds context
	}
	if err := r.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s, which can't be updated: %w", name, err)
	}
	event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, takeover.ReasonTakenOver, action, "Deleted "+name+" to create it again, because it can't be updated: "+refused.Error())
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted.DeepCopy()), client.FieldOwner(FieldManager), client.ForceOwnership) //nolint:wrapcheck // apply adds context
}

// updaters returns the clients that have set fields of an object without applying it.
func updaters(object *metav1.PartialObjectMetadata) sets.Set[string] {
	names := sets.New[string]()
	for _, entry := range object.ManagedFields {
		if entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" {
			names.Insert(entry.Manager)
		}
	}
	return names
}

// lastWriter returns the client that last wrote an object other than by the operator's apply.
func lastWriter(object *metav1.PartialObjectMetadata) string {
	entries := slices.DeleteFunc(slices.Clone(object.ManagedFields), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource != "" || e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply
	})
	if len(entries) == 0 {
		return "an unknown client"
	}
	last := slices.MaxFunc(entries, func(a, b metav1.ManagedFieldsEntry) int { return a.Time.Compare(b.Time.Time) })
	return fmt.Sprintf("field manager %s (%s)", last.Manager, last.Operation)
}

// release removes upstream's finalizers from the ConfigMap.
func (r *Reconciler) release(ctx context.Context, configMap *corev1.ConfigMap) error {
	removed, err := takeover.RemoveFinalizers(ctx, r.Client, configMap)
	if len(removed) > 0 {
		event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, takeover.ReasonTakenOver, action,
			"Removed the finalizer "+strings.Join(removed, ", ")+" of upstream's operator")
		r.pass.wrote("ConfigMap "+ConfigMapName, "upstream's operator, which adds its finalizer again")
	}
	return err
}

// UpstreamConfig is an annotation of the ConfigMap: the data of upstream's ConfigMap, as a JSON object. The installation
// keeps them there when it replaces that ConfigMap.
const UpstreamConfig = "bpfman.io/upstream-config"

// takeConfig moves the values in that annotation to the data, and reports each one that it can't move.
func (r *Reconciler) takeConfig(ctx context.Context, configMap *corev1.ConfigMap) error {
	text, kept := configMap.Annotations[UpstreamConfig]
	if _, _, err := ParseConfig(configMap.Data); !kept || err != nil {
		return nil //nolint:nilerr // an invalid configuration is reported when it is deployed, and the annotation stays
	}
	var theirs map[string]string
	var refused []string
	if err := json.Unmarshal([]byte(text), &theirs); err != nil {
		refused = append(refused, "annotation "+UpstreamConfig+": "+err.Error())
	}
	taken, others := mergeUpstreams(configMap.Data, theirs)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": configMap.ResourceVersion, "annotations": map[string]any{UpstreamConfig: nil}},
		"data":     taken,
	})
	if err != nil {
		return fmt.Errorf("encode patch of ConfigMap %s: %w", ConfigMapName, err)
	}
	if err := r.Client.Patch(ctx, configMap, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("take over values of upstream's ConfigMap: %w", err)
	}
	if len(taken) > 0 {
		event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, takeover.ReasonTakenOver, action,
			"Took over values of upstream's ConfigMap: "+strings.Join(slices.Sorted(maps.Keys(taken)), ", "))
	}
	for _, why := range append(refused, others...) {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, takeover.ReasonNotTakenOver, action, "Didn't take over a value of upstream's ConfigMap: "+why)
	}
	return nil
}

// mergeUpstreams returns which values of upstream's ConfigMap replace defaults in valid data, and for each other value
// that the user set, why it doesn't. What the installation sets has precedence.
func mergeUpstreams(data, theirs map[string]string) (taken map[string]string, refused []string) {
	merged := maps.Clone(data)
	taken = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		value, own := strings.TrimSpace(theirs[key]), strings.TrimSpace(data[key])
		known := slices.IndexFunc(keys, func(k Key) bool { return k.Name == key })
		if known < 0 {
			refused = append(refused, key+": the key is unknown")
			continue
		}
		fallback := strings.TrimSpace(keys[known].Default)
		// Upstream's own images are its default.
		if value == "" || value == own || value == fallback || strings.HasPrefix(value, "quay.io/bpfman/") {
			continue
		}
		if own != "" && own != fallback {
			refused = append(refused, fmt.Sprintf("%s: %q, because this installation sets %q", key, value, own))
			continue
		}
		merged[key] = theirs[key]
		if _, _, err := ParseConfig(merged); err != nil {
			refused = append(refused, err.Error())
			merged[key] = own
			continue
		}
		taken[key] = theirs[key]
	}
	return taken, refused
}

// withdrawUpstreams deletes upstream's DaemonSet if there is no ConfigMap. Upstream's operator would have deleted
// it, and no object owns it. The ConfigMap owns this operator's DaemonSet.
func (r *Reconciler) withdrawUpstreams(ctx context.Context) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: DaemonSetName}, object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get DaemonSet %s: %w", DaemonSetName, err)
	}
	if removed, err := takeover.RemoveFinalizers(ctx, r.Client, object); err != nil || len(removed) == 0 {
		return err
	}
	if err := r.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete upstream's DaemonSet %s: %w", DaemonSetName, err)
	}
	return nil
}

func metadataOf(object *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(object.GroupVersionKind())
	return m
}
