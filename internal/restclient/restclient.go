// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package restclient creates clients of one API group each. A clientset, or client-go's scheme, has the types of all
// groups, which would need memory on each node. All clients with the same configuration share connections, because
// client-go keeps its transports.
package restclient

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// InCluster returns the configuration of a pod's client, with a user agent that audit logs show. Outside of a cluster, the
// error is [rest.ErrNotInCluster].
func InCluster(userAgent string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("load the API client's configuration: %w", err)
	}
	config.UserAgent = userAgent
	return config, nil
}

// New returns a client for a group, whose types add adds.
func New(config *rest.Config, group schema.GroupVersion, add func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, fmt.Errorf("register the types of %s: %w", group, err)
	}
	return ForScheme(config, group, scheme)
}

// ForScheme returns a client for a group of a scheme.
func ForScheme(config *rest.Config, group schema.GroupVersion, scheme *runtime.Scheme) (rest.Interface, error) {
	return WithSerializer(config, group, serializer.NewCodecFactory(scheme).WithoutConversion())
}

// WithSerializer returns a client for a group that encodes and decodes objects with a serializer.
func WithSerializer(config *rest.Config, group schema.GroupVersion, objects runtime.NegotiatedSerializer) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &group, "/apis", objects
	if group.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create client of %s: %w", group, err)
	}
	return client, nil
}
