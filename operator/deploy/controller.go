// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/operator/contest"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

const (
	// FieldManager is the field manager of what the operator applies.
	FieldManager = "bpfman-operator"

	managedByLabel = "app.kubernetes.io/managed-by"

	// passTimeout bounds one reconciliation, which makes a few requests to the API server.
	passTimeout = 30 * time.Second
)

// The reasons of Events on the ConfigMap.
const (
	// ReasonInvalidConfig means that a value is invalid, so the running configuration is kept.
	ReasonInvalidConfig = "InvalidConfig"
	// ReasonUnknownKey means that a key isn't known, and is probably misspelled.
	ReasonUnknownKey = "UnknownKey"
	// ReasonVerificationMoved means that the daemon's configuration file asks the daemon to verify signatures, which
	// only BytecodePolicies do.
	ReasonVerificationMoved = "VerificationMoved"
	// ReasonNodesLeave means that nodes with volumes can be among those that aren't selected anymore.
	ReasonNodesLeave = "NodesLeave"
	// ReasonVolumesStay means that the CSI plugin is disabled, and pods can have volumes.
	ReasonVolumesStay = "VolumesStay"
	// ReasonApplied means that an object was created or changed.
	ReasonApplied = "Applied"
	// ReasonApplyFailed means that an object couldn't be rendered, or that the API server refused it.
	ReasonApplyFailed = "ApplyFailed"

	action = "Deploy"
)

// Reconciler deploys the node components as the ConfigMap in its namespace specifies. It uses no finalizers. The
// ConfigMap owns the DaemonSet, so the garbage collector deletes the DaemonSet with it. The reconciler itself
// deletes cluster-scoped objects. The namespace owns these, so that they are also deleted if the whole namespace
// is deleted, including the operator.
type Reconciler struct {
	Client client.Client
	// Live reads objects that aren't worth caching, or that must not come from a cache.
	Live      client.Reader
	Recorder  events.EventRecorder
	Namespace string
	// OpenShift means that the cluster is an OpenShift cluster, where pods need constraints that allow the volumes
	// that they mount.
	OpenShift bool
	// Proxy is for the registries of bytecode.
	Proxy     httpproxy.Config
	Announcer *takeover.Announcer
	// Contests are by deployed object.
	Contests *contest.Ledger[string]

	// Reconciliations don't run concurrently.
	pass pass
}

// pass is the state of one reconciliation, and the result of the last one.
type pass struct {
	// deployed is a fingerprint of what the last complete reconciliation deployed. wanted is the fingerprint of
	// the current one.
	deployed, wanted string
	// repairs are the objects that were written, and the clients whose changes that reverted.
	repairs []string
}

func (p *pass) wrote(name, after string) { p.repairs = append(p.repairs, name+" (by "+after+")") }

// SetupWithManager watches the ConfigMap, and the objects that are created from it. The manager's cache contains
// no other objects of these types: see CacheByObject.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// The status of a DaemonSet changes with each pod, and needs no repair.
	intended := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	toConfigMap := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: ConfigMapName}}}
	})
	// What is deployed is watched to repair it. To deploy it, it needn't be listed.
	b := ctrl.NewControllerManagedBy(mgr).
		Named("deploy").
		For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: configured})).
		WatchesRawSource(kindcache.Source(mgr.GetCache(), &appsv1.DaemonSet{}, toConfigMap, intended)).
		WatchesRawSource(kindcache.Source(mgr.GetCache(), &storagev1.CSIDriver{}, toConfigMap))
	if r.OpenShift {
		b = b.WatchesMetadata(constraintsMetadata(), toConfigMap)
	}
	return b.Complete(r)
}

// configured reports whether an update of the ConfigMap affects what is deployed. Updates of the annotation with the
// nodes' problems don't.
func configured(update ctrlevent.UpdateEvent) bool {
	before, isBefore := update.ObjectOld.(*corev1.ConfigMap)
	after, isAfter := update.ObjectNew.(*corev1.ConfigMap)
	return !isBefore || !isAfter || fingerprint(before) != fingerprint(after) || before.Annotations[UpstreamConfig] != after.Annotations[UpstreamConfig] ||
		!slices.Equal(before.Finalizers, after.Finalizers) || !before.DeletionTimestamp.Equal(after.DeletionTimestamp)
}

// Reconcile deploys the node components.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()

	configMap := &corev1.ConfigMap{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: ConfigMapName}, configMap)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get ConfigMap %s: %w", ConfigMapName, err)
	}
	if apierrors.IsNotFound(err) || !configMap.DeletionTimestamp.IsZero() {
		r.pass = pass{}
		errs := []error{r.withdraw(ctx, "the ConfigMap is deleted"), r.withdrawUpstreams(ctx)}
		if err == nil {
			errs = append(errs, r.release(ctx, configMap))
		}
		return reconcile.Result{}, errors.Join(errs...)
	}
	if err := r.takeConfig(ctx, configMap); err != nil {
		return reconcile.Result{}, err
	}
	r.pass = pass{deployed: r.pass.deployed, wanted: fingerprint(configMap)}
	if wait := r.Contests.Wait(r.pass.wanted); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := errors.Join(r.release(ctx, configMap), r.deploy(ctx, configMap)); err != nil {
		return reconcile.Result{}, err
	}
	repeated := r.pass.deployed == r.pass.wanted && len(r.pass.repairs) > 0
	r.pass.deployed = r.pass.wanted
	if repeated && r.Contests.Repeated(r.pass.wanted) {
		r.Announcer.AnotherOperator(ctx, "Objects changed again after they were deployed: "+strings.Join(r.pass.repairs, ", "))
	}
	return reconcile.Result{}, nil
}

// fingerprint returns a hash of everything that affects what is deployed.
func fingerprint(configMap *corev1.ConfigMap) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		fmt.Fprintf(sum, "%q=%q\n", key, configMap.Data[key])
	}
	return string(configMap.UID) + hex.EncodeToString(sum.Sum(nil))
}

func (r *Reconciler) deploy(ctx context.Context, configMap *corev1.ConfigMap) error {
	config, unknown, err := ParseConfig(configMap.Data)
	if len(unknown) > 0 {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonUnknownKey, action, "Ignored unknown keys: "+strings.Join(unknown, ", "))
	}
	if err != nil {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonInvalidConfig, action, "Invalid configuration, the node components are unchanged: "+err.Error())
		return nil //nolint:nilerr // there is nothing to retry: the next change of the ConfigMap triggers a reconciliation
	}
	if warning := config.Daemon.Signatures.warning(); warning != "" {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonVerificationMoved, action, warning)
	}
	config.Proxy = r.Proxy
	daemonSet, err := DaemonSet(config, r.Namespace)
	if err != nil {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonApplyFailed, action, "Failed to apply DaemonSet "+DaemonSetName+": "+err.Error())
		return err
	}
	if err := r.warnOfVolumes(ctx, configMap, daemonSet); err != nil {
		return err
	}
	own(daemonSet, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: configMap.Name, UID: configMap.UID, Controller: new(true)})

	clusterWide, err := r.clusterWide()
	if err != nil {
		return err
	}
	if config.CSI.Disabled {
		if err := r.withdraw(ctx, "the CSI plugin is disabled"); err != nil {
			return err
		}
		clusterWide = nil // all cluster-scoped objects are for pods that mount maps
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Live.Get(ctx, types.NamespacedName{Name: r.Namespace}, namespace); err != nil {
		return fmt.Errorf("get Namespace %s: %w", r.Namespace, err)
	}
	// Try all objects, because a refused CSIDriver must not prevent programs from loading.
	var errs []error
	for _, object := range clusterWide {
		own(object, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID})
		errs = append(errs, r.apply(ctx, configMap, object))
	}
	return errors.Join(append(errs, r.apply(ctx, configMap, daemonSet))...)
}

// warnOfVolumes emits an Event if nodes that have the CSI plugin might not have it after the change. Their kubelets can't
// unmount volumes without it.
func (r *Reconciler) warnOfVolumes(ctx context.Context, configMap *corev1.ConfigMap, daemonSet *unstructured.Unstructured) error {
	deployed, wanted := &appsv1.DaemonSet{}, &appsv1.DaemonSet{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: DaemonSetName}, deployed)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get DaemonSet %s: %w", DaemonSetName, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(daemonSet.Object, wanted); err != nil {
		return fmt.Errorf("read the rendered DaemonSet: %w", err)
	}
	before, after := deployed.Spec.Template.Spec, wanted.Spec.Template.Spec
	const until = ", programs stay attached, and pods with volumes of maps can't terminate until the node pods run there again"
	switch {
	case leaves(before.NodeSelector, after.NodeSelector):
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonNodesLeave, action, KeyNodeSelector+" selects other nodes: on those that it no longer selects"+until)
	case repels(before.Tolerations, after.Tolerations):
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonNodesLeave, action, KeyTolerations+" tolerates fewer taints: on nodes that have them"+until)
	}
	if hasCSI(before) && !hasCSI(after) {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonVolumesStay, action, KeyCSIEnabled+" is false: pods that have volumes of maps can't terminate until it is true again")
	}
	return nil
}

// leaves reports whether a node selector excludes nodes that another one, which is deployed, can select.
func leaves(deployed, selector map[string]string) bool {
	for label, value := range selector {
		if now, selected := deployed[label]; (!selected || now != value) && label != corev1.LabelOSStable {
			return true
		}
	}
	return false
}

// repels reports whether deployed tolerations aren't all among the wanted ones.
func repels(deployed, wanted []corev1.Toleration) bool {
	return slices.ContainsFunc(deployed, func(was corev1.Toleration) bool {
		return !slices.ContainsFunc(wanted, func(is corev1.Toleration) bool { return equality.Semantic.DeepEqual(is, was) })
	})
}

func hasCSI(pod corev1.PodSpec) bool {
	return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == CSIContainer })
}

// clusterWide returns the cluster-scoped objects.
func (r *Reconciler) clusterWide() ([]*unstructured.Unstructured, error) {
	driver, err := CSIDriver()
	if err != nil || !r.OpenShift {
		return []*unstructured.Unstructured{driver}, err
	}
	constraints, err := Constraints()
	return []*unstructured.Unstructured{driver, constraints}, err
}

// apply applies the wanted object. The API server compares it with the existing object, and writes nothing if
// nothing differs.
func (r *Reconciler) apply(ctx context.Context, configMap *corev1.ConfigMap, object *unstructured.Unstructured) error {
	name := object.GetKind() + " " + object.GetName()
	before := metadataOf(object)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), before)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	created, generation, writer := apierrors.IsNotFound(err), before.GetGeneration(), lastWriter(before)
	if !created {
		if err := r.takeOver(ctx, configMap, before, sets.New(takeover.FieldManager)); err != nil {
			return err
		}
	}
	wanted := object.DeepCopy()
	err = r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(FieldManager), client.ForceOwnership)
	if apierrors.IsInvalid(err) && !created {
		err = r.replace(ctx, configMap, wanted, err)
	}
	if err != nil {
		event.Emit(r.Recorder, configMap, corev1.EventTypeWarning, ReasonApplyFailed, action, "Failed to apply "+name+": "+err.Error())
		return fmt.Errorf("apply %s: %w", name, err)
	}
	switch {
	case created:
		event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, ReasonApplied, action, "Created "+name)
	case generation != object.GetGeneration():
		r.pass.wrote(name, writer)
		event.Emit(r.Recorder, configMap, corev1.EventTypeNormal, ReasonApplied, action, "Updated "+name)
	}
	return nil
}

// withdraw deletes cluster-scoped objects, which the garbage collector doesn't delete with the ConfigMap.
func (r *Reconciler) withdraw(ctx context.Context, reason string) error {
	clusterWide, err := r.clusterWide()
	if err != nil {
		return err
	}
	var errs []error
	for _, object := range clusterWide {
		errs = append(errs, r.remove(ctx, object, reason))
	}
	return errors.Join(errs...)
}

// remove deletes an object if it belongs to the operator.
func (r *Reconciler) remove(ctx context.Context, object *unstructured.Unstructured, reason string) error {
	name := object.GetKind() + " " + object.GetName()
	found := metadataOf(object)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), found)
	if apierrors.IsNotFound(err) || (err == nil && found.Labels[managedByLabel] != FieldManager) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", name, err)
	}
	if err := r.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted an object", "object", name, "reason", reason)
	return nil
}

func own(object *unstructured.Unstructured, owner metav1.OwnerReference) {
	object.SetOwnerReferences([]metav1.OwnerReference{owner})
}
