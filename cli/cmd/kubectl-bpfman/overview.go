// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/why"
)

// overview prints the state of all objects. It fails if it can't read any of them.
func (o whyOptions) overview(ctx context.Context, c *cluster.Cluster, streams genericiooptions.IOStreams) error {
	page := why.Overview{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Overview"}, Objects: []why.Brief{}}
	see := func(what string, err error) {
		if err != nil {
			page.Unseen = append(page.Unseen, fmt.Sprintf("%s: %v", what, err))
		}
	}
	conflicts := map[v1alpha1.BpfNodeOwner][]why.Conflict{}
	see("conflicts and volumes", c.BpfNodes(ctx, nil, func(n *v1alpha1.BpfNode) error {
		for owner, found := range why.Conflicts(n) {
			conflicts[owner] = append(conflicts[owner], found...)
		}
		page.Daemons.Add(n)
		page.Volumes = append(page.Volumes, why.StaleMaps(n)...)
		return nil
	}))
	read := 0
	for _, kind := range c.UserKinds() {
		visit := func(object v1alpha1.UserObject) error {
			owner := v1alpha1.BpfNodeOwner{Kind: kind.Name, Namespace: object.GetNamespace(), Name: object.GetName()}
			page.Objects = append(page.Objects, why.BriefOf(kind.Name, object, conflicts[owner]))
			return nil
		}
		err := objectsOf(ctx, c, kind, visit)
		what := kind.Resource()
		if apierrors.IsForbidden(err) && kind.Namespaced && objectsOf(ctx, c, kind, visit, client.InNamespace(c.Namespace)) == nil {
			what += " in other namespaces than " + c.Namespace
			read++
		}
		see(what, err)
		if err == nil {
			read++
		}
	}
	if read == 0 {
		return fmt.Errorf("none of bpfman's kinds can be listed: %s", page.Unseen[len(page.Unseen)-1])
	}
	see("bytecodepolicies", cluster.Each(ctx, c, &v1alpha1.BytecodePolicyList{}, func(p *v1alpha1.BytecodePolicy) error {
		page.Objects = append(page.Objects, why.BriefOfPolicy("BytecodePolicy", p.Name, p.Status.Conditions, p.Status.Problem))
		return nil
	}))
	see("rolloutpolicies", cluster.Each(ctx, c, &v1alpha1.RolloutPolicyList{}, func(p *v1alpha1.RolloutPolicy) error {
		page.Objects = append(page.Objects, why.BriefOfPolicy("RolloutPolicy", p.Name, p.Status.Conditions, p.Status.Problem))
		return nil
	}))
	components, err := c.Components(ctx, o.components)
	page.Components = why.Problems(components)
	see("problems of the components", err)
	page.Sort()
	if o.format.Human() {
		return page.Print(streams.Out, o.format.Wide())
	}
	return o.format.Print(streams.Out, &page)
}

// objectsOf calls visit with the objects of a kind.
func objectsOf(ctx context.Context, c *cluster.Cluster, kind v1alpha1.Kind[v1alpha1.UserObject], visit func(v1alpha1.UserObject) error, options ...client.ListOption) error {
	list, ok := kind.NewList().(client.ObjectList)
	if !ok {
		return fmt.Errorf("%T isn't a list", kind.NewList())
	}
	return cluster.Each(ctx, c, list, visit, options...)
}
