// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	// PartOfLabel is the label of all parts of this operator's installation. Upstream's have none.
	PartOfLabel = "app.kubernetes.io/part-of"
	partOf      = "bpfman"
)

// Roles deletes the roles and bindings that only upstream's installation of v0.5 or v0.6 has, once after each start. An
// installation of this operator replaces those that both have.
type Roles struct {
	Client client.Client
	// Live reads from the API server, because the operator has permission to get these objects by name, but not to
	// watch them.
	Live      client.Reader
	Announcer *Announcer
	Namespace string
}

// only returns these objects, with their names in upstream's config/default. An object with such a name but other
// content isn't upstream's.
func (r *Roles) only() []client.Object {
	return []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "bpfman-bpfman-operator-rolebinding")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "bpfman-proxy-rolebinding")},
		&rbacv1.ClusterRoleBinding{ObjectMeta: named("", "bpfman-auth-delegator")},
		&rbacv1.ClusterRole{ObjectMeta: named("", "bpfman-proxy-role")},
		&rbacv1.ClusterRole{ObjectMeta: named("", "bpfman-bpfprogram-editor-role")},
		&rbacv1.RoleBinding{ObjectMeta: named(r.Namespace, "bpfman-agent-rolebinding")},
		&rbacv1.Role{ObjectMeta: named(r.Namespace, "bpfman-agent-role")},
		&rbacv1.Role{ObjectMeta: named(r.Namespace, "bpfman-bpfnsprogram-editor-role")},
		&rbacv1.Role{ObjectMeta: named(r.Namespace, "bpfman-bpfnsprogram-viewer-role")},
	}
}

// SetupWithManager makes the manager delete them when the operator becomes the leader.
func (r *Roles) SetupWithManager(mgr ctrl.Manager) error { return mgr.Add(r) }

// Start deletes them, and retries until it succeeds.
func (r *Roles) Start(ctx context.Context) error {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Cap: time.Minute, Steps: 30}
	var last error
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		if last = r.remove(ctx); last != nil {
			ctrl.LoggerFrom(ctx).Error(last, "Failed to remove upstream's roles")
		}
		return last == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		return errors.Join(err, last)
	}
	return nil
}

func (r *Roles) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	var removed []string
	var errs []error
	for _, object := range r.only() {
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && r.isUpstreams(object) {
			err = r.Client.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())})
			if err == nil {
				removed = append(removed, fmt.Sprintf("%s %s", strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1."), object.GetName()))
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove %s of upstream: %w", object.GetName(), err))
		}
	}
	if len(removed) > 0 {
		r.Announcer.TakenOver(ctx, "Deleted objects that only upstream's installation uses: "+strings.Join(removed, ", "))
	}
	return errors.Join(errs...)
}

// isUpstreams reports whether an object with such a name contains only what upstream's contains.
func (r *Roles) isUpstreams(o client.Object) bool {
	if o.GetLabels()[PartOfLabel] == partOf {
		return false
	}
	switch o := o.(type) {
	case *rbacv1.ClusterRole:
		return theirRules(o.Rules)
	case *rbacv1.Role:
		return theirRules(o.Rules)
	case *rbacv1.ClusterRoleBinding:
		return r.theirSubjects(o.Subjects)
	case *rbacv1.RoleBinding:
		return r.theirSubjects(o.Subjects)
	}
	return false
}

func theirRules(rules []rbacv1.PolicyRule) bool {
	groups := []string{v1alpha1.GroupVersion.Group, "authentication.k8s.io", "authorization.k8s.io"}
	return !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return len(rule.NonResourceURLs) > 0 || slices.ContainsFunc(rule.APIGroups, func(g string) bool { return !slices.Contains(groups, g) })
	})
}

func (r *Roles) theirSubjects(subjects []rbacv1.Subject) bool {
	return !slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind != rbacv1.ServiceAccountKind || s.Namespace != r.Namespace || !slices.Contains([]string{"bpfman-operator", "bpfman-daemon"}, s.Name)
	})
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
