// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/why"
)

const whyLong = `Explain the state of one of bpfman's objects. For each node, the command shows what is loaded and attached, the whole error, and what to do about it. It also shows which nodes aren't selected, and why.

The command requires permission to get the object, and to list its reports (bpfprograms or bpfnsprograms). It explains more with permission to list nodes, to list the pods of the node components and the pods that the object selects, and to get the ConfigMap bpfman-config. At the end, it names what it couldn't read.`

const whyExample = `  # Explain why a program isn't attached everywhere
  kubectl bpfman why tcxprogram/counter

  # Explain a namespaced program, with the name of each node
  kubectl bpfman why -n team tcxnsprogram/counter -o wide`

type whyOptions struct {
	// components is the namespace of the operator and the node components.
	components string
	format     *output.Flags
}

func whyCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := whyOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "why KIND/NAME",
		Short:             "Explain the state of an object, node by node",
		Long:              whyLong,
		Example:           whyExample,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeUserObject(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	addNamespace(command, &o.components)
	o.format.AddFormatTo(command)
	return command
}

func (o whyOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	named, err := cluster.ParseNamed(v1alpha1.UserKinds, args)
	if err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	facts, err := o.gather(ctx, c, named)
	if err != nil {
		return err
	}
	page, err := why.Explain(facts)
	if err != nil {
		return fmt.Errorf("explain %s %s: %w", named.Kind.Name, named.Name, err)
	}
	if o.format.Human() {
		return page.Print(streams.Out, o.format.Wide())
	}
	page.TypeMeta = metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Explanation"}
	return o.format.Print(streams.Out, &page)
}

// gather reads the facts. It fails if it can't read the object or its reports. Everything else is optional.
func (o whyOptions) gather(ctx context.Context, c *cluster.Cluster, named cluster.Named[v1alpha1.UserObject]) (why.Facts, error) {
	facts := why.Facts{Kind: named.Kind.Name, Object: named.Kind.New()}
	key := client.ObjectKey{Name: named.Name}
	if named.Kind.Namespaced {
		key.Namespace = c.Namespace
	}
	if err := c.Get(ctx, key, facts.Object); err != nil {
		return facts, fmt.Errorf("get %s %s: %w", named.Kind.Name, strings.TrimPrefix(key.String(), "/"), err)
	}
	var err error
	if facts.Reports, err = cluster.Reports(ctx, c, named, key.Namespace); err != nil {
		return facts, err
	}
	see := func(what string, err error) {
		if err != nil {
			facts.Unseen = append(facts.Unseen, fmt.Sprintf("%s: %v", what, err))
		}
	}
	facts.Nodes, err = all(ctx, c, &corev1.NodeList{}, func(n *corev1.Node) corev1.Node { return *n })
	see("nodes", err)
	facts.Agents, err = all(ctx, c, &corev1.PodList{}, podOf, client.InNamespace(o.components), cluster.NodePods)
	if err == nil && len(facts.Agents) == 0 {
		facts.Agents = nil
		err = fmt.Errorf("there is no agent in namespace %s: if bpfman is installed in another namespace, specify it with --bpfman-namespace", o.components)
	}
	see("agents", err)
	facts.Pods, err = selectedPods(ctx, c, why.Selectors(facts.Object))
	see("selected pods", err)
	var config corev1.ConfigMap
	see("problems of the node components", c.Get(ctx, client.ObjectKey{Namespace: o.components, Name: "bpfman-config"}, &config))
	facts.Problems = config.Annotations["bpfman.io/problems"]
	return facts, nil
}

// selectedPods returns the pods that selectors of containers can match, without duplicates.
func selectedPods(ctx context.Context, from client.Reader, selectors []why.Selector) ([]corev1.Pod, error) {
	pods, seen := []corev1.Pod{}, map[client.ObjectKey]bool{}
	for _, s := range selectors {
		found, err := all(ctx, from, &corev1.PodList{}, podOf, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: s.Pods})
		if err != nil {
			return nil, err
		}
		for i := range found {
			if key := client.ObjectKeyFromObject(&found[i]); !seen[key] {
				seen[key] = true
				pods = append(pods, found[i])
			}
		}
	}
	return pods, nil
}

func podOf(p *corev1.Pod) corev1.Pod { return *p }

// all lists all objects. It returns an empty slice instead of nil if there are none.
func all[O client.Object, T any](ctx context.Context, from client.Reader, list client.ObjectList, convert func(O) T, options ...client.ListOption) ([]T, error) {
	objects := []T{}
	err := cluster.Each(ctx, from, list, func(o O) error {
		objects = append(objects, convert(o))
		return nil
	}, options...)
	if err != nil {
		return nil, err
	}
	return objects, nil
}
