// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/namespaced"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/nearest"
)

// KindOf finds a kind that users write by any name that kubectl accepts, such as tcxprogram, tcxprograms, or tcxprog. The
// name is case-insensitive, and can include the group. BpfApplication is that of v0.5.
func KindOf(name string) (v1alpha1.Kind[v1alpha1.UserObject], error) {
	return (&Cluster{}).KindOf(name)
}

// UserKinds returns the kinds that users write, with BpfApplication as the cluster has it.
func (c *Cluster) UserKinds() []v1alpha1.Kind[v1alpha1.UserObject] {
	if c.Scheme == nil {
		return v1alpha1.UserKinds
	}
	return v1alpha1.UserKindsOf(c.Scheme)
}

// KindOf is KindOf among the kinds of the cluster.
func (c *Cluster) KindOf(name string) (v1alpha1.Kind[v1alpha1.UserObject], error) {
	all := c.UserKinds()
	lower := strings.ToLower(name)
	resource, group, qualified := strings.Cut(lower, ".")
	if !qualified || group == v1alpha1.SchemeGroupVersion.Group || group == v1alpha1.SchemeGroupVersion.Version+"."+v1alpha1.SchemeGroupVersion.Group {
		i := slices.IndexFunc(all, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool {
			return slices.Contains([]string{strings.ToLower(k.Name), k.Resource(), shortName(k.Name)}, resource)
		})
		if i >= 0 {
			return all[i], nil
		}
	}
	names := make([]string, 0, len(all))
	for _, k := range all {
		names = append(names, strings.ToLower(k.Name))
	}
	return v1alpha1.Kind[v1alpha1.UserObject]{}, fmt.Errorf("%q is not one of the kinds %s%s", name, strings.Join(names, ", "), nearest.Question(resource, slices.Values(names)))
}

// shortName returns the short name of a kind, such as tcxprog.
func shortName(kind string) string {
	return strings.NewReplacer("program", "prog", "application", "app").Replace(strings.ToLower(kind))
}

// Get reads an object that users write.
func Get(ctx context.Context, from client.Reader, owner v1alpha1.BpfNodeOwner) (v1alpha1.UserObject, error) {
	kind, err := KindOf(owner.Kind)
	if err != nil {
		return nil, err
	}
	object := namespaced.New(kind.Name, owner.Namespace)
	if err := from.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Name}, object); err != nil {
		return nil, fmt.Errorf("get %s: %w", owner, err)
	}
	return object, nil
}

// Find returns the object that the arguments name: KIND/NAME, KIND and NAME, or a NAME that one object has, in the
// cluster or in the namespace of the flags.
func (c *Cluster) Find(ctx context.Context, args []string) (v1alpha1.BpfNodeOwner, error) {
	if len(args) != 1 || strings.Contains(args[0], "/") {
		return c.parseOwner(args)
	}
	var (
		found  []v1alpha1.BpfNodeOwner
		unread error
	)
	for _, k := range c.UserKinds() {
		owner := ownerOf(k, c.Namespace, args[0])
		_, err := Get(ctx, c, owner)
		switch {
		case err == nil:
			found = append(found, owner)
		case !apierrors.IsNotFound(err) && unread == nil:
			unread = err
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		names := make([]string, len(found))
		for i, owner := range found {
			names[i] = strings.ToLower(owner.Kind) + "/" + owner.Name
		}
		return v1alpha1.BpfNodeOwner{}, fmt.Errorf("several objects are named %s: specify one of %s", args[0], strings.Join(names, ", "))
	case unread != nil:
		return v1alpha1.BpfNodeOwner{}, unread
	default:
		return v1alpha1.BpfNodeOwner{}, fmt.Errorf("no object of bpfman is named %s, neither in the cluster nor in namespace %s: to list all objects, run kubectl get bpfman -A", args[0], c.Namespace)
	}
}

// parseOwner parses KIND/NAME, or KIND and NAME in two arguments. The object of a namespaced kind is in the namespace.
func (c *Cluster) parseOwner(args []string) (v1alpha1.BpfNodeOwner, error) {
	kind, name, ok := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && !ok:
		name = args[1]
	case len(args) != 1 || !ok || name == "":
		return v1alpha1.BpfNodeOwner{}, fmt.Errorf("%q is not an object: specify one as KIND/NAME, such as tcxprogram/counter", strings.Join(args, " "))
	}
	k, err := c.KindOf(kind)
	if err != nil {
		return v1alpha1.BpfNodeOwner{}, err
	}
	return ownerOf(k, c.Namespace, name), nil
}

func ownerOf(kind v1alpha1.Kind[v1alpha1.UserObject], namespace, name string) v1alpha1.BpfNodeOwner {
	owner := v1alpha1.BpfNodeOwner{Kind: kind.Name, Name: name}
	if kind.Namespaced {
		owner.Namespace = namespace
	}
	return owner
}
