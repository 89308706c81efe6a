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
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/breaker"
	"github.com/bpfman/bpfman-operator/apis/definitions"
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
	scheme       *runtime.Scheme
	serves       bool
	informers    map[schema.GroupVersionKind]toolscache.SharedIndexInformer
}

// New returns a Cluster for the agent of a node, which decodes nothing before Serve. Namespace is the agent's namespace, in
// which only the ConfigMap with the operator's hints is watched, or "". Component is the
// reporting controller of Events.
func New(config *rest.Config, component, node, namespace string, log logr.Logger) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // API priority and fairness limits requests better
	silence := &breaker.Breaker{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &impatient{next, silence} })
	scheme := newScheme()
	core, err := newCoreClient(config, scheme)
	if err != nil {
		return nil, err
	}
	bpfman, err := kinds.NewClient(config, scheme)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Kinds:  &kinds.Kinds{Log: log, API: bpfman, Rescoped: make(chan error, 1)},
		Events: newEvents(bpfman, scheme, component, log),
		node:   node,
		core:   core, bpfman: bpfman,
		scheme:    scheme,
		informers: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{},
	}
	return c, c.follow(namespace)
}

// Serve registers the types of the kinds that the cluster has. If the cluster has got a BpfApplication of another scope
// since the first call, it returns definitions.ErrOtherScope.
func (c *Cluster) Serve(served []metav1.APIResource) error {
	if c.serves {
		return definitions.Same(c.scheme, served)
	}
	c.serves = true
	return definitions.Install(c.scheme, served)
}

// newScheme returns a scheme with Kubernetes' kinds that the agent reads.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return scheme
}

func newCoreClient(config *rest.Config, scheme *runtime.Scheme) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	return restclient.ForScheme(config, corev1.SchemeGroupVersion, scheme)
}
