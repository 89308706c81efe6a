// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package cluster provides access to the API server for the agent of one node: a cache of
// the objects that the agent watches, a client for the objects that it reads and writes,
// and a recorder of Events.
//
// It only uses client-go's informers and REST client, with the few kinds that the agent
// needs. controller-runtime's client and cache, and client-go's discovery and recorder,
// import client-go's scheme, which keeps the types of all API groups in memory. That would
// be a third of the agent's memory: see docs/benchmarks.md.
package cluster

import (
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/breaker"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/restclient"
)

// Cluster provides an agent's access to the API server.
type Cluster struct {
	// Kinds reports which kinds can be read.
	Kinds *kinds.Kinds
	// Events emits Events about the objects that the agent watches.
	Events *Events

	node         string
	core, bpfman rest.Interface
	informers    map[schema.GroupVersionKind]toolscache.SharedIndexInformer
}

// New returns a Cluster for the agent of a node. Namespace is the agent's namespace, in
// which only the ConfigMap with the operator's hints is watched, or "". Component is the
// reporting controller of Events.
func New(config *rest.Config, component, node, namespace string, log logr.Logger) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // API priority and fairness limits requests better
	silence := &breaker.Breaker{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &impatient{next, silence} })
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	core, err := newCoreClient(config, scheme)
	if err != nil {
		return nil, err
	}
	bpfman, err := kinds.NewClient(config, scheme)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Kinds:  &kinds.Kinds{Log: log, API: bpfman},
		Events: newEvents(bpfman, scheme, component, log),
		node:   node,
		core:   core, bpfman: bpfman,
		informers: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{},
	}
	return c, c.follow(namespace)
}

// newScheme returns a scheme with the kinds of the API, and Kubernetes' kinds that the
// agent reads.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return scheme, v1alpha1.Install(scheme)
}

func newCoreClient(config *rest.Config, scheme *runtime.Scheme) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	return restclient.ForScheme(config, corev1.SchemeGroupVersion, scheme)
}
