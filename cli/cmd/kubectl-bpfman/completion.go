// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/objectmaps"
)

// completionTimeout is how long a shell waits for completions. maxCompletions is the maximum
// number of completions.
const (
	completionTimeout = 3 * time.Second
	maxCompletions    = 500
)

var errEnough = errors.New("there are too many names to list")

// completeUserObject completes KIND/NAME.
func completeUserObject(connect cluster.Connect) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		typed, _, named := strings.Cut(toComplete, "/")
		if !named {
			var names []cobra.Completion
			for _, k := range v1alpha1.UserKinds {
				names = append(names, strings.ToLower(k.Name)+"/")
			}
			return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		to, err := connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		kind, err := to.KindOf(typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, ok := kind.NewList().(client.ObjectList)
		if !ok {
			return nil, cobra.ShellCompDirectiveError
		}
		return complete(c, connect, list, typed+"/", kind.Namespaced)
	}
}

// completeMap completes KIND/NAME MAP.
func completeMap(connect cluster.Connect) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return completeUserObject(connect)(c, args, toComplete)
		}
		to, err := connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		reports, err := reportsOf(ctx, to, args, nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, m := range objectmaps.List(reports, nil) {
			if !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespace completes the name of a namespace.
func completeNamespace(connect cluster.Connect) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(c, connect, &corev1.NamespaceList{}, "", false)
	}
}

// completePod completes the name of a pod.
func completePod(connect cluster.Connect) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(c, connect, &corev1.PodList{}, "", true)
	}
}

// completeNode completes the name of a node.
func completeNode(connect cluster.Connect) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(c, connect, &corev1.NodeList{}, "", false)
	}
}

func complete(c *cobra.Command, connect cluster.Connect, list client.ObjectList, prefix string, namespaced bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	to, err := connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
	defer cancel()
	var options []client.ListOption
	if namespaced {
		options = append(options, client.InNamespace(to.Namespace))
	}
	var names []cobra.Completion
	err = cluster.Each(ctx, to, list, func(o client.Object) error {
		if names = append(names, prefix+o.GetName()); len(names) == maxCompletions {
			return errEnough
		}
		return nil
	}, options...)
	if err != nil && len(names) == 0 {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
