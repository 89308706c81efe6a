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

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// kind has the properties of a kind of the API that don't depend on the type of its objects.
type kind struct {
	name       string
	namespaced bool
}

// kinds returns the kinds of the API.
func kinds() []kind {
	var all []kind
	for _, k := range v1alpha1.UserKinds {
		all = append(all, kind{k.Name, k.Namespaced})
	}
	for _, k := range v1alpha1.ProgramKinds {
		all = append(all, kind{k.Name, k.Namespaced})
	}
	return append(all,
		kind{v1alpha1.NodeKind.Name, v1alpha1.NodeKind.Namespaced}, kind{v1alpha1.PolicyKind.Name, v1alpha1.PolicyKind.Namespaced},
		kind{v1alpha1.RolloutPolicyKind.Name, v1alpha1.RolloutPolicyKind.Namespaced})
}

// KindOf finds a kind by any name that kubectl accepts, such as tcxprogram, tcxprograms, or tcxprog. The name is
// case-insensitive, and can include the group.
func KindOf[O any](among []v1alpha1.Kind[O], name string) (v1alpha1.Kind[O], error) {
	lower := strings.ToLower(name)
	resource, group, qualified := strings.Cut(lower, ".")
	if !qualified || group == v1alpha1.SchemeGroupVersion.Group || group == v1alpha1.SchemeGroupVersion.Version+"."+v1alpha1.SchemeGroupVersion.Group {
		i := slices.IndexFunc(among, func(k v1alpha1.Kind[O]) bool {
			return slices.Contains([]string{strings.ToLower(k.Name), k.Resource(), ShortName(k.Name)}, resource)
		})
		if i >= 0 {
			return among[i], nil
		}
	}
	names := make([]string, 0, len(among))
	for _, k := range among {
		names = append(names, strings.ToLower(k.Name))
	}
	return v1alpha1.Kind[O]{}, fmt.Errorf("%q is not one of the kinds %s", name, strings.Join(names, ", "))
}

// ShortName returns the short name of a kind, such as tcxprog.
func ShortName(kind string) string {
	return strings.NewReplacer("program", "prog", "application", "app").Replace(strings.ToLower(kind))
}

// Named identifies an object by its kind and name.
type Named[O any] struct {
	Kind v1alpha1.Kind[O]
	Name string
}

// Find returns the object that the arguments name: KIND/NAME, KIND and NAME, or a NAME that one object has, in the
// cluster or in a namespace.
func Find(ctx context.Context, from client.Reader, namespace string, args []string) (Named[v1alpha1.UserObject], error) {
	if len(args) != 1 || strings.Contains(args[0], "/") {
		return ParseNamed(v1alpha1.UserKinds, args)
	}
	var (
		found  []Named[v1alpha1.UserObject]
		unread error
	)
	for _, k := range v1alpha1.UserKinds {
		key := client.ObjectKey{Name: args[0]}
		if k.Namespaced {
			key.Namespace = namespace
		}
		err := from.Get(ctx, key, k.New())
		switch {
		case err == nil:
			found = append(found, Named[v1alpha1.UserObject]{k, args[0]})
		case !apierrors.IsNotFound(err) && unread == nil:
			unread = fmt.Errorf("get %s %s: %w", k.Name, args[0], err)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		names := make([]string, len(found))
		for i, n := range found {
			names[i] = strings.ToLower(n.Kind.Name) + "/" + n.Name
		}
		return Named[v1alpha1.UserObject]{}, fmt.Errorf("several objects are named %s: specify one of %s", args[0], strings.Join(names, ", "))
	case unread != nil:
		return Named[v1alpha1.UserObject]{}, unread
	default:
		return Named[v1alpha1.UserObject]{}, fmt.Errorf("no object of bpfman is named %s, neither in the cluster nor in namespace %s: to list all objects, run kubectl get bpfman -A", args[0], namespace)
	}
}

// ParseNamed parses KIND/NAME, or KIND and NAME in two arguments.
func ParseNamed[O any](among []v1alpha1.Kind[O], args []string) (Named[O], error) {
	kind, name, ok := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && !ok:
		name = args[1]
	case len(args) != 1 || !ok || name == "":
		return Named[O]{}, fmt.Errorf("%q is not an object: specify one as KIND/NAME, such as tcxprogram/counter", strings.Join(args, " "))
	}
	k, err := KindOf(among, kind)
	return Named[O]{k, name}, err
}
