// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policies

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/internal/policy"
)

// materialFrom reads the Secrets and ConfigMaps that the authorities of
// BytecodePolicies refer to, from the namespace that bpfman runs in. Live isn't
// cached: a cache would take the right to list all Secrets of the namespace.
func materialFrom(ctx context.Context, live client.Reader, namespace string) policy.Reader {
	return policy.Reader{
		Secret: func(name string) (map[string][]byte, error) {
			var secret corev1.Secret
			err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &secret)
			return secret.Data, err //nolint:wrapcheck // the caller says what was read
		},
		ConfigMap: func(name string) (map[string]string, error) {
			var config corev1.ConfigMap
			err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &config)
			return config.Data, err //nolint:wrapcheck // as above
		},
	}
}
