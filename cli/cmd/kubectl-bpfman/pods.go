// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/output"
)

const podsLong = `List the pods that eBPF programs are attached to, no matter what loaded them, and the pods that mount maps of bpfman's objects. The programs are in the pod's network, at functions of its processes, or at its control groups.

With a pod, show each program that sees its packets and calls: first those of the pod, in the order in which they run, and then those of its node, such as programs at the node's interfaces and tracepoints. NS/RUN is the average time of a run, for programs of bpfman. The maps in the pod's volumes follow.

The command requires permission to list pods, or to get the named one, and to get bpfnodes; for pods of several nodes, to list bpfnodes.`

const podsExample = `  # List the pods of all namespaces that programs are attached to
  kubectl bpfman pods -A

  # Show what sees the packets and calls of a pod
  kubectl bpfman pods web-0 -n shop`

type podsOptions struct {
	all    bool
	format *output.Flags
}

func podsCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := podsOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "pods [POD]",
		Aliases:           []string{"pod", "po"},
		Short:             "Show which programs see the packets and calls of pods",
		Long:              podsLong,
		Example:           podsExample,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completePod(connect),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), connect, streams, args) },
	}
	command.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "List the pods of all namespaces.")
	o.format.AddTo(command, podsTable.Keys()...)
	return command
}

var podsTable = output.Table[inventory.Pod]{
	Kind: "PodPrograms",
	Columns: []output.Column[inventory.Pod]{
		{Name: "NAMESPACE", Cell: func(p inventory.Pod) any { return p.Namespace }},
		{Name: "NAME", Cell: func(p inventory.Pod) any { return p.Name }},
		{Name: "NODE", Cell: func(p inventory.Pod) any { return p.Node }},
		{Name: "PROGRAMS", Cell: func(p inventory.Pod) any { return int64(len(p.Programs)) }},
		{Name: "HOOKS", Cell: func(p inventory.Pod) any { return listed(p.Hooks()) }},
		{Name: "MAPS OF", Cell: func(p inventory.Pod) any { return listed(p.Volumes) }},
	},
}

// seen is a program that sees packets or calls of a pod.
type seen struct {
	inventory.Link

	by string
}

var seenTable = output.Table[seen]{
	Columns: []output.Column[seen]{
		{Name: "SEEN BY", Heading: true, Cell: func(s seen) any { return s.by }},
		{Name: "HOOK", Cell: func(s seen) any { return strings.Replace(s.Hook, s.Namespace+"/"+s.Pod+":", "", 1) }},
		{Name: "ORDER", Cell: func(s seen) any { return position(s.Link) }},
		{Name: "ID", Cell: func(s seen) any { return int64(s.ID) }},
		{Name: "NAME", Cell: func(s seen) any { return s.Name }},
		{Name: "OWNER", Cell: func(s seen) any { return s.Whose }},
		{Name: "CONTINUES ON", Cell: func(s seen) any { return continuesOn(s.Link) }},
		{Name: "NS/RUN", Cell: func(s seen) any {
			if s.AverageNanoseconds == 0 {
				return nil
			}
			return s.AverageNanoseconds
		}},
	},
}

func (o podsOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams, args []string) error {
	if o.all && len(args) > 0 {
		return errors.New("specify either a pod or --all-namespaces")
	}
	c, err := connect()
	if err != nil {
		return err
	}
	if len(args) > 0 {
		return o.one(ctx, c, streams, args[0])
	}
	var options []client.ListOption
	if !o.all {
		options = append(options, client.InNamespace(c.Namespace))
	}
	pods, err := cluster.All[corev1.Pod](ctx, c, &corev1.PodList{}, options...)
	if err != nil {
		return err
	}
	found, unknown, err := o.find(ctx, c, pods)
	if err != nil {
		return err
	}
	others := len(found)
	found = slices.DeleteFunc(found, func(p inventory.Pod) bool { return len(p.Programs) == 0 && len(p.Volumes) == 0 })
	others -= len(found)
	table := podsTable
	if !o.all {
		table = table.Without("NAMESPACE")
	}
	if err := table.Print(streams.Out, o.format, found); err != nil || !o.format.Human() {
		return err
	}
	remarks := remarksOnPods(others, unknown)
	if len(found)+len(remarks) == 0 {
		remarks = []string{"No pods are running."}
		if !o.all {
			remarks = []string{fmt.Sprintf("No pods are running in namespace %s. To list those of all namespaces, use -A.", c.Namespace)}
		}
	}
	return remark(streams.ErrOut, remarks)
}

// find returns what the programs of their nodes have to do with pods, and the number of running pods whose nodes have no
// BpfNode. The programs of nodes, the maps of pods, and the settings of objects are left out.
func (o podsOptions) find(ctx context.Context, c *cluster.Cluster, pods []corev1.Pod) (found []inventory.Pod, unknown int, err error) {
	byNode := map[string][]corev1.Pod{}
	for _, p := range pods {
		if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
			unknown++
		}
	}
	err = c.BpfNodes(ctx, nil, func(node *v1alpha1.BpfNode) error {
		there := inventory.Pods(node, byNode[node.Name], func(v1alpha1.BpfNodeOwner, string) inventory.Settings { return inventory.Settings{} })
		unknown -= len(there)
		for i := range there {
			there[i].NodePrograms = nil // the same for each
		}
		found = append(found, there...)
		return nil
	})
	slices.SortFunc(found, func(a, b inventory.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return found, unknown, err
}

// remarksOnPods say what the table doesn't show.
func remarksOnPods(others, unknown int) []string {
	var remarks []string
	if others > 0 {
		remarks = append(remarks, fmt.Sprintf("Pods without programs of their own: %d. Programs of their nodes see them too: run kubectl bpfman pods POD.", others))
	}
	if unknown > 0 {
		remarks = append(remarks, fmt.Sprintf("Pods on nodes without a BpfNode: %d. The inspector is turned off there, or hasn't reported yet.", unknown))
	}
	return remarks
}

// one shows what sees the packets and calls of a pod.
func (o podsOptions) one(ctx context.Context, c *cluster.Cluster, streams genericiooptions.IOStreams, name string) error {
	var pod corev1.Pod
	if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &pod); err != nil {
		return fmt.Errorf("get pod %s/%s: %w", c.Namespace, name, err)
	}
	if pod.Spec.NodeName == "" {
		return fmt.Errorf("pod %s/%s isn't on a node yet: kubectl -n %s describe pod %s says why", pod.Namespace, name, pod.Namespace, name)
	}
	var found []inventory.Pod
	err := c.BpfNodes(ctx, []string{pod.Spec.NodeName}, func(node *v1alpha1.BpfNode) error {
		found = inventory.Pods(node, []corev1.Pod{pod}, inventory.AskedBy(ctx, c))
		return nil
	})
	if err != nil {
		return err
	}
	if !o.format.Human() {
		return podsTable.Print(streams.Out, o.format, found)
	}
	return o.print(streams, found[0], pod.Spec.HostNetwork)
}

// print prints the programs of a pod, and the maps in its volumes, as tables.
func (o podsOptions) print(streams genericiooptions.IOStreams, pod inventory.Pod, hostNetwork bool) error {
	rows := make([]seen, 0, len(pod.Programs)+len(pod.NodePrograms))
	for _, l := range pod.Programs {
		rows = append(rows, seen{l, "in pod " + pod.Namespace + "/" + pod.Name})
	}
	node := "on node " + pod.Node
	for _, l := range pod.NodePrograms {
		rows = append(rows, seen{l, node})
	}
	if err := seenTable.Print(streams.Out, o.format, rows); err != nil {
		return err
	}
	if len(pod.Maps) > 0 {
		if _, err := fmt.Fprintln(streams.Out); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		if err := nodeMapsTable.Without("NODE").Without("PODS").Print(streams.Out, o.format, pod.Maps); err != nil {
			return err
		}
	}
	var remarks []string
	switch {
	case len(rows) == 0:
		remarks = append(remarks, "No program sees the packets or calls of the pod.")
	case hostNetwork:
		remarks = append(remarks, "The pod has the network of its node: the programs at the node's interfaces are those of its packets.")
	case len(pod.Programs) == 0:
		remarks = append(remarks, "No program is attached in the pod.")
	}
	if len(pod.Maps) == 0 && len(pod.Volumes) > 0 {
		remarks = append(remarks, "The pod has a volume with maps of "+listed(pod.Volumes)+", which isn't mounted, or not reported yet.")
	}
	return remark(streams.ErrOut, remarks)
}
