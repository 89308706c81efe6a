// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package objects reads the reports about users' objects on this node, and emits Events
// about conflicts on these objects.
package objects

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/restclient"
)

// controller is the reporting controller of Events.
const controller = "bpfman-inspector"

// Cluster is the API server, as the inspector of one node uses it.
type Cluster struct {
	api  rest.Interface
	node string
}

// New returns the Cluster for the inspector of a node.
func New(config *rest.Config, node string) (*Cluster, error) {
	client, err := restclient.New(config, v1alpha1.SchemeGroupVersion, v1alpha1.Install)
	if err != nil {
		return nil, err
	}
	return &Cluster{client, node}, nil
}

// Reports returns the BpfPrograms and BpfNsPrograms of the node, from the API server's
// cache.
func (c *Cluster) Reports(ctx context.Context) ([]conflict.Report, error) {
	var reports []conflict.Report
	for _, kind := range v1alpha1.ProgramKinds {
		list := &v1alpha1.BpfProgramList{} // BpfNsProgramList has the same fields
		body, err := c.api.Get().Resource(kind.Resource()).
			Param("labelSelector", v1alpha1.LabelHostname+"="+v1alpha1.LabelValue(c.node)).Param("resourceVersion", "0").
			DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(body, list)
		}
		if err != nil {
			return nil, fmt.Errorf("list the %ss of node %s: %w", kind.Name, c.node, err)
		}
		for i := range list.Items {
			reports = append(reports, reportsOf(&list.Items[i])...)
		}
	}
	return reports, nil
}

// reportsOf returns one report, or none if the program has no owner.
func reportsOf(program *v1alpha1.BpfProgram) []conflict.Report {
	owner := metav1.GetControllerOf(program)
	if owner == nil {
		return nil
	}
	return []conflict.Report{{
		Owner: v1alpha1.BpfNodeOwner{Kind: owner.Kind, Namespace: program.Namespace, Name: owner.Name},
		UID:   owner.UID, Type: program.Spec.Type, Links: program.Status.Links,
	}}
}

// Announced returns the conflicts in the node's BpfNode.
func (c *Cluster) Announced(ctx context.Context) ([]v1alpha1.BpfNodeConflict, error) {
	node := &v1alpha1.BpfNode{}
	err := c.api.Get().Resource(v1alpha1.NodeKind.Resource()).Name(c.node).Do(ctx).Into(node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read BpfNode %s: %w", c.node, err)
	}
	return node.Status.Conflicts, nil
}

// Warn emits an Event.
func (c *Cluster) Warn(ctx context.Context, owner v1alpha1.BpfNodeOwner, uid types.UID, found v1alpha1.BpfNodeConflict) error {
	about := corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name, UID: uid,
	}
	note := "On node " + c.node + ": " + found.Message
	if err := event.Write(ctx, c.api, event.New(controller, c.node, about, corev1.EventTypeWarning, found.Type, "Inspect", note)); err != nil {
		return fmt.Errorf("write an Event on %s: %w", owner, err)
	}
	return nil
}
