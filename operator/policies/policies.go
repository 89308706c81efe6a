// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package policies writes the status of policies. That of BytecodePolicies is whether they can be enforced, with which
// keys, and how many programs they allow and deny. When the digest of a key changes there, agents read the keys again.
package policies

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/pace"
	"github.com/bpfman/bpfman-operator/operator/reports"
)

const (
	passTimeout = 30 * time.Second
	// unlistedRetry is the delay before a policy is reconciled again if policies or reports haven't been listed yet.
	unlistedRetry = time.Second
	// writePace is the minimum interval between writes of counts in a small cluster.
	writePace = time.Second
	// materialEvery is the interval at which keys and trusted roots are read. A watch would require the
	// permission to list all Secrets in the namespace.
	materialEvery = 15 * time.Second

	readyMessage = "The rules, keys, and trusted roots are valid"
)

// Reconciler writes the status of BytecodePolicies.
type Reconciler struct {
	Client  client.Client
	Reports *reports.Store
	// Live reads Secrets and ConfigMaps, which aren't cached.
	Live client.Reader
	// Namespace is the namespace where bpfman runs.
	Namespace string
	Clock     clock.PassiveClock

	tally *tally
	// Reconciliations don't run concurrently.
	notes map[string]note // by name
}

// note is what the reconciler remembers about a policy.
type note struct {
	uid        types.UID
	wroteAt    time.Time
	readAt     time.Time
	generation int64
	material   map[string]policy.Material
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager watches policies and reports.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.tally, r.notes = newTally(), map[string]note{}
	return ctrl.NewControllerManagedBy(mgr).Named("policies").
		WatchesRawSource(kindcache.Source(mgr.GetCache(), v1alpha1.PolicyKind.New(), &handler.EnqueueRequestForObject{})).
		WatchesRawSource(reports.Source(r.Reports, r.onReport)).
		Complete(r)
}

// onReport updates the counts after a change of a report.
func (r *Reconciler) onReport(c reports.Change, q queue) {
	for _, name := range r.tally.change(c) {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

// Reconcile updates the status of one policy.
func (r *Reconciler) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	var object v1alpha1.BytecodePolicy
	if err := r.Client.Get(ctx, q.NamespacedName, &object); apierrors.IsNotFound(err) {
		delete(r.notes, q.Name)
		return reconcile.Result{}, nil
	} else if kinds.Unread(err) {
		return reconcile.Result{RequeueAfter: unlistedRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get BytecodePolicy %s: %w", q.Name, err)
	}
	n := r.notes[object.Name]
	if n.uid != object.UID {
		n = note{uid: object.UID}
	}
	secrets, configMaps := policy.References(&object)
	refers := len(secrets)+len(configMaps) > 0
	if n.material == nil || n.generation != object.Generation || refers && r.Clock.Since(n.readAt) >= materialEvery {
		r.read(ctx, &object, &n)
	}
	if knowsMore(&object, n.material) {
		ctrl.LoggerFrom(ctx).Info("The API server doesn't return the keys of a BytecodePolicy; its status stays as it is", "policy", object.Name)
		r.notes[object.Name] = n
		return reconcile.Result{RequeueAfter: materialEvery}, nil
	}
	var again time.Duration
	if refers {
		again = max(materialEvery-r.Clock.Since(n.readAt), time.Second)
	}
	counted := counts{object.Status.Allowed, object.Status.Denied, object.Status.Warned}
	if r.Reports.Listed(true) && r.Reports.Listed(false) {
		counted = r.tally.of(object.Name)
	} else if again == 0 || again > unlistedRetry {
		again = unlistedRetry
	}
	want := status(&object, n.material, counted)
	switch {
	case equality.Semantic.DeepEqual(want, &object.Status):
	case onlyCounts(want, &object.Status) && r.Clock.Since(n.wroteAt) < pace.Between(writePace, r.tally.nodes()):
		due := pace.Between(writePace, r.tally.nodes()) - r.Clock.Since(n.wroteAt)
		if again == 0 || due < again {
			again = due
		}
	default:
		if err := writeStatus(ctx, r.Client, v1alpha1.PolicyKind.Name, &object, want); err != nil {
			return reconcile.Result{}, err
		}
		n.wroteAt = r.Clock.Now()
	}
	r.notes[object.Name] = n
	return reconcile.Result{RequeueAfter: again}, nil
}

// read reads the material of a policy. What isn't returned stays as it was.
func (r *Reconciler) read(ctx context.Context, object *v1alpha1.BytecodePolicy, n *note) {
	now, material := r.Clock.Now(), policy.ReadMaterial(object, materialFrom(ctx, r.Live, r.Namespace))
	if n.generation == object.Generation {
		policy.Keep(material, n.material)
	}
	n.material, n.generation, n.readAt = material, object.Generation, now
}

// knowsMore reports whether the status of a policy has a key that wasn't returned since the operator started. Without the
// key, the status would have agents forget it.
func knowsMore(object *v1alpha1.BytecodePolicy, material map[string]policy.Material) bool {
	return object.Status.ObservedGeneration == object.Generation &&
		slices.ContainsFunc(object.Status.Authorities, func(a v1alpha1.BytecodeAuthorityStatus) bool {
			return a.Digest != "" && material[a.Name].Unknown
		})
}

// status returns the wanted status of a policy.
func status(object *v1alpha1.BytecodePolicy, material map[string]policy.Material, c counts) *v1alpha1.BytecodePolicyStatus {
	want := &v1alpha1.BytecodePolicyStatus{
		ObservedGeneration: object.Generation,
		Allowed:            c.allowed, Denied: c.denied, Warned: c.warned,
	}
	for _, a := range object.Spec.Authorities {
		m := material[a.Name]
		found := v1alpha1.BytecodeAuthorityStatus{Name: a.Name, Digest: m.Digest()}
		if m.Err != nil {
			found.Error = shorten.Middle(m.Err.Error(), maxMessage)
		}
		want.Authorities = append(want.Authorities, found)
	}
	want.Conditions, want.Problem = conditions(object.Status.Conditions, object.Generation, policy.Compile(object, material).Problems(), readyMessage)
	return want
}

// onlyCounts reports whether only the counts differ.
func onlyCounts(a, b *v1alpha1.BytecodePolicyStatus) bool {
	same := b.DeepCopy()
	same.Allowed, same.Denied, same.Warned = a.Allowed, a.Denied, a.Warned
	return equality.Semantic.DeepEqual(a, same)
}
