// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/why"
)

const whyLong = `Explain the state of one of bpfman's objects. For each node, the command shows what is loaded and attached, the whole error, the conflicts with programs of others, and what to do about it. It also shows which nodes aren't selected, and why. You can leave out the kind if no other object has the name.

Without an object, the command shows what is wrong in the whole cluster, the most severe first, and what to do about it.

The command requires permission to get the object, and to list its reports (bpfprograms or bpfnsprograms). It explains more with permission to list nodes, to get bpfnodes, to list the pods of the node components, the pods that the object selects, and those that can mount its maps, and to get the ConfigMap bpfman-config. At the end, it names what it couldn't read. Without an object, it lists all objects, policies, and bpfnodes.`

const whyExample = `  # Show what is wrong in the cluster
  kubectl bpfman why

  # Explain why a program isn't attached everywhere
  kubectl bpfman why tcxprogram/counter

  # Show the whole log of the kernel's verifier
  kubectl bpfman why tcxprogram/counter --log

  # Explain a namespaced program, with the name of each node
  kubectl bpfman why -n team tcxnsprogram/counter -o wide`

type whyOptions struct {
	// components is the namespace of the operator and the node components.
	components string
	// wholeLogs asks the nodes for messages that were shortened.
	wholeLogs bool
	format    *output.Flags
}

func whyCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := whyOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "why [KIND/NAME]",
		Short:             "Explain what is wrong in the cluster, or the state of an object, node by node",
		Long:              whyLong,
		Example:           whyExample,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeUserObject(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	addNamespace(command, &o.components)
	command.Flags().BoolVar(&o.wholeLogs, "log", false, "Show the whole log of the kernel's verifier, if the status has only its beginning and end. This requires permission to create pods/exec in the namespace in which bpfman is installed.")
	o.format.AddFormatTo(command)
	return command
}

func (o whyOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	c, err := connect()
	if err != nil {
		return err
	}
	if len(args) == 0 && o.wholeLogs {
		return errors.New("--log needs an object")
	}
	if len(args) == 0 {
		return o.overview(ctx, c, streams)
	}
	owner, err := c.Find(ctx, args)
	if err != nil {
		return err
	}
	facts, err := o.gather(ctx, c, owner, fromInspectors)
	if err != nil {
		return err
	}
	if o.wholeLogs {
		if err := completeLogs(ctx, c, o.components, owner, facts.Reports); err != nil {
			facts.Unseen = append(facts.Unseen, fmt.Sprintf("whole logs: %v", err))
		}
	}
	page, err := why.Explain(facts)
	if err != nil {
		return fmt.Errorf("explain %s %s: %w", owner.Kind, owner.Name, err)
	}
	if o.format.Human() {
		return page.Print(streams.Out, o.format.Wide())
	}
	page.TypeMeta = metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Explanation"}
	return o.format.Print(streams.Out, &page)
}

// inspection adds what the inspectors of the nodes with reports know about an object.
type inspection func(ctx context.Context, c *cluster.Cluster, facts *why.Facts) error

// gather reads the facts. It fails if it can't read the object or its reports. Everything else is optional.
func (o whyOptions) gather(ctx context.Context, c *cluster.Cluster, owner v1alpha1.BpfNodeOwner, inspect inspection) (why.Facts, error) {
	facts := why.Facts{Kind: owner.Kind}
	var err error
	if facts.Object, err = cluster.Get(ctx, c, owner); err != nil {
		return facts, err
	}
	if facts.Reports, err = cluster.Reports(ctx, c, owner); err != nil {
		return facts, err
	}
	see := func(what string, err error) {
		if err != nil {
			facts.Unseen = append(facts.Unseen, fmt.Sprintf("%s: %v", what, err))
		}
	}
	facts.Nodes, err = cluster.All[corev1.Node](ctx, c, &corev1.NodeList{})
	see("nodes", err)
	components, err := c.Components(ctx, o.components)
	facts.Problems = why.Problems(components)
	elsewhere := err != nil // without the ConfigMap, it isn't known whether bpfman is installed there
	see("problems of the components", err)
	facts.Agents, err = cluster.All[corev1.Pod](ctx, c, &corev1.PodList{}, client.InNamespace(o.components), cluster.NodePods)
	if err == nil && len(facts.Agents) == 0 && elsewhere {
		facts.Agents = nil
		err = fmt.Errorf("there is no agent in namespace %s: if bpfman is installed in another namespace, specify it with --bpfman-namespace", o.components)
	}
	see("agents", err)
	facts.Pods, err = selectedPods(ctx, c, why.Selectors(facts.Object))
	see("selected pods", err)
	see("conflicts and volumes", inspect(ctx, c, &facts))
	return facts, nil
}

// maxNodes is how many BpfNodes are read one by one. More are read in one list, which is faster, but which contains
// the BpfNodes of all nodes.
const maxNodes = 50

// fromInspectors adds the conflicts of an object, and the maps in its volumes that no program uses anymore. It returns an
// error if it can't read a BpfNode.
func fromInspectors(ctx context.Context, c *cluster.Cluster, facts *why.Facts) error {
	names := map[string]bool{}
	for _, r := range facts.Reports {
		names[r.GetStatus().Node] = true
	}
	owner := v1alpha1.BpfNodeOwner{Kind: facts.Kind, Namespace: facts.Object.GetNamespace(), Name: facts.Object.GetName()}
	if len(names) > maxNodes { // BpfNodes of a list have no maps
		return c.BpfNodes(ctx, nil, func(n *v1alpha1.BpfNode) error {
			if names[n.Name] {
				facts.Daemons.Add(n)
			}
			facts.Conflicts = append(facts.Conflicts, why.Conflicts(n)[owner]...)
			return nil
		})
	}
	pods, unread := mounting(ctx, c, owner)
	missing := 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		err := c.BpfNodes(ctx, []string{name}, func(n *v1alpha1.BpfNode) error {
			facts.Daemons.Add(n)
			facts.Conflicts = append(facts.Conflicts, why.Conflicts(n)[owner]...)
			facts.Stale = append(facts.Stale, stale(n, pods)...)
			return nil
		})
		if apierrors.IsNotFound(err) {
			missing++
		} else if err != nil {
			return err
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d nodes have no BpfNode: the inspector is turned off, or hasn't reported yet", missing, len(names))
	}
	return unread
}

// mounting returns the pods with a volume of an object.
func mounting(ctx context.Context, c *cluster.Cluster, owner v1alpha1.BpfNodeOwner) ([]corev1.Pod, error) {
	pods, err := cluster.All[corev1.Pod](ctx, c, &corev1.PodList{}, client.InNamespace(owner.Namespace))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			if v.CSI == nil || v.CSI.Driver != v1alpha1.CSIDriverName {
				return false
			}
			attributes := v.CSI.VolumeAttributes
			name := cmp.Or(attributes[v1alpha1.VolumeAttributeProgram], attributes[v1alpha1.VolumeAttributeApplication])
			return name == owner.Name && cmp.Or(attributes[v1alpha1.VolumeAttributeKind], owner.Kind) == owner.Kind
		})
	}), nil
}

// stale returns the maps that only volumes of pods hold.
func stale(node *v1alpha1.BpfNode, pods []corev1.Pod) []inventory.Map {
	of := map[string]bool{}
	for i := range pods {
		of[pods[i].Namespace+"/"+pods[i].Name] = true
	}
	return slices.DeleteFunc(inventory.Maps(node, pods), func(m inventory.Map) bool {
		return !m.Stale() || !slices.ContainsFunc(m.Pods, func(pod string) bool { return of[pod] })
	})
}

// selectedPods returns the pods that selectors of containers can match, without duplicates.
func selectedPods(ctx context.Context, from client.Reader, selectors []why.Selector) ([]corev1.Pod, error) {
	pods, seen := []corev1.Pod{}, map[client.ObjectKey]bool{}
	for _, s := range selectors {
		found, err := cluster.All[corev1.Pod](ctx, from, &corev1.PodList{}, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: s.Pods})
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
