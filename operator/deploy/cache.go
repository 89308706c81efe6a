// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheByObject limits the manager's cache, and the rights that it needs, to the objects that are deployed.
func CacheByObject(namespace string) map[client.Object]cache.ByObject {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	own := map[string]cache.Config{namespace: {}}
	return map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}:    {Namespaces: own, Field: named(ConfigMapName)},
		&appsv1.DaemonSet{}:    {Namespaces: own, Field: named(DaemonSetName)},
		&storagev1.CSIDriver{}: {Field: named(CSIDriverName)},
	}
}
