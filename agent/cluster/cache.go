// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"fmt"
	"maps"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/hints"
)

// Kubernetes' kinds that an agent watches.
var (
	NodeKind      = corev1.SchemeGroupVersion.WithKind("Node")
	PodKind       = corev1.SchemeGroupVersion.WithKind("Pod")
	ConfigMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
)

// follow creates the informers. Their selectors limit them to the objects that concern this
// node, so that the cache doesn't grow with the cluster. Nothing is read before [Cluster.Watch].
func (c *Cluster) follow(namespace string) error {
	for _, s := range c.sources(namespace) {
		from := c.Kinds.Watch(s.gvk, toolscache.NewListWatchFromClient(s.api, s.resource, s.namespace, s.selected))
		informer := toolscache.NewSharedIndexInformer(from, s.object, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
		if err := informer.SetTransform(s.trim); err != nil {
			return fmt.Errorf("cache %s: %w", s.resource, err)
		}
		c.informers[s.gvk] = informer
		c.Kinds.SetListed(s.gvk, informer.HasSynced)
	}
	return nil
}

// source is what an informer reads.
type source struct {
	gvk       schema.GroupVersionKind
	api       rest.Interface
	resource  string
	namespace string
	selected  fields.Selector
	// object has the type of the objects. It is nil if that isn't known before [Cluster.Serve].
	object runtime.Object
	// trim must be idempotent: client-go applies it twice to the first objects of a watch.
	trim toolscache.TransformFunc
}

func (c *Cluster) sources(namespace string) []source {
	byName := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	sources := []source{
		{NodeKind, c.core, "nodes", "", byName(c.node), &corev1.Node{}, trimNode},
		{PodKind, c.core, "pods", "", fields.OneTermEqualSelector("spec.nodeName", c.node), &corev1.Pod{}, trimPod},
		{v1alpha1.PolicyKind.GroupVersionKind(), c.bpfman, v1alpha1.PolicyKind.Resource(), "", fields.Everything(), v1alpha1.PolicyKind.New(), trim},
		{v1alpha1.RolloutPolicyKind.GroupVersionKind(), c.bpfman, v1alpha1.RolloutPolicyKind.Resource(), "", fields.Everything(), v1alpha1.RolloutPolicyKind.New(), trim},
	}
	if namespace != "" {
		sources = append(sources, source{ConfigMapKind, c.core, "configmaps", namespace, byName(hints.ConfigMapName), &corev1.ConfigMap{}, trim})
	}
	for _, kind := range v1alpha1.UserKinds {
		sources = append(sources, source{kind.GroupVersionKind(), c.bpfman, kind.Resource(), "", fields.Everything(), nil, trim})
	}
	return sources
}

// Watch watches a kind until ctx ends, and passes its objects to handler. It calls listed, if
// not nil, after handler has received all existing objects. Call it once for each kind.
func (c *Cluster) Watch(ctx context.Context, gvk schema.GroupVersionKind, handler toolscache.ResourceEventHandler, listed func()) {
	informer, log := c.informers[gvk], logr.FromContextOrDiscard(ctx)
	log.Info("Watching a kind", "kind", gvk.Kind)
	handled, err := informer.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{Logger: &log})
	if err != nil { // if the informer has stopped
		log.Error(err, "Failed to watch a kind", "kind", gvk.Kind)
		return
	}
	go informer.RunWithContext(ctx)
	go func() {
		select {
		case <-handled.HasSyncedChecker().Done():
			if listed != nil {
				listed()
			}
		case <-ctx.Done():
		}
	}()
}

// The functions that read the cache don't wait: for a kind that hasn't been listed, they return
// a [kinds.UnreadError]. Callers must not change the objects in returned lists, which belong to
// the cache.

// OwnNode returns the agent's node.
func (c *Cluster) OwnNode() (*corev1.Node, error) {
	node, err := get[*corev1.Node](c, NodeKind, "", c.node)
	if err != nil {
		return nil, fmt.Errorf("get own node %s: %w", c.node, err)
	}
	return node, nil
}

// Pods lists this node's pods in a namespace, or in all namespaces if it is "".
func (c *Cluster) Pods(namespace string) ([]corev1.Pod, error) {
	cached, err := list[*corev1.Pod](c, PodKind, namespace)
	pods := make([]corev1.Pod, 0, len(cached))
	for _, pod := range cached {
		pods = append(pods, *pod)
	}
	return pods, err
}

// Policies lists all BytecodePolicies.
func (c *Cluster) Policies() ([]*v1alpha1.BytecodePolicy, error) {
	return list[*v1alpha1.BytecodePolicy](c, v1alpha1.PolicyKind.GroupVersionKind(), "")
}

// RolloutPolicies lists all RolloutPolicies.
func (c *Cluster) RolloutPolicies() ([]*v1alpha1.RolloutPolicy, error) {
	return list[*v1alpha1.RolloutPolicy](c, v1alpha1.RolloutPolicyKind.GroupVersionKind(), "")
}

// UserObject returns a user object of any kind.
func (c *Cluster) UserObject(kind, namespace, name string) (v1alpha1.UserObject, error) {
	return get[v1alpha1.UserObject](c, v1alpha1.SchemeGroupVersion.WithKind(kind), namespace, name)
}

// UserObjects lists all user objects of a kind.
func (c *Cluster) UserObjects(kind string) ([]v1alpha1.UserObject, error) {
	return list[v1alpha1.UserObject](c, v1alpha1.SchemeGroupVersion.WithKind(kind), "")
}

// get returns a copy of an object. O must be the type of the objects in the informer for gvk.
func get[O runtime.Object](c *Cluster, gvk schema.GroupVersionKind, namespace, name string) (O, error) {
	var none O
	if err := c.Kinds.CheckReadable(gvk); err != nil {
		return none, err
	}
	informer, known := c.informers[gvk]
	if !known {
		return none, notFound(gvk, name)
	}
	found, exists, err := informer.GetIndexer().GetByKey(toolscache.NewObjectName(namespace, name).String())
	if err != nil {
		return none, fmt.Errorf("look up %s %s: %w", gvk.Kind, name, err)
	}
	if !exists {
		return none, notFound(gvk, name)
	}
	return found.(O).DeepCopyObject().(O), nil //nolint:errcheck // see above
}

func notFound(gvk schema.GroupVersionKind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
}

func list[O runtime.Object](c *Cluster, gvk schema.GroupVersionKind, namespace string) ([]O, error) {
	if err := c.Kinds.CheckReadable(gvk); err != nil {
		return nil, err
	}
	var all []O
	err := toolscache.ListAllByNamespace(c.informers[gvk].GetIndexer(), namespace, labels.Everything(), func(o any) {
		all = append(all, o.(O)) //nolint:errcheck // see get
	})
	if err != nil {
		return nil, fmt.Errorf("list %ss of the cache: %w", gvk.Kind, err)
	}
	return all, nil
}

// trim removes the managed fields, to save memory.
func trim(o any) (any, error) {
	if object, ok := o.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return o, nil
}

// trimNode only keeps the fields of a node that the agent reads.
func trimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.Annotations, n.Spec = nil, nil, corev1.NodeSpec{}
		n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses}
	}
	return o, nil
}

// trimPod only keeps the fields of a pod that the agent reads.
func trimPod(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		p.ManagedFields, p.OwnerReferences = nil, nil
		maps.DeleteFunc(p.Annotations, func(key, _ string) bool { return key != corev1.MirrorPodAnnotationKey })
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
		p.Status = corev1.PodStatus{
			Phase:                      p.Status.Phase,
			Conditions:                 readyToStart(p.Status.Conditions),
			InitContainerStatuses:      p.Status.InitContainerStatuses,
			ContainerStatuses:          p.Status.ContainerStatuses,
			EphemeralContainerStatuses: p.Status.EphemeralContainerStatuses,
		}
	}
	return o, nil
}

// readyToStart returns the condition that says whether a pod's sandbox and its network are ready, if it is there.
func readyToStart(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}
