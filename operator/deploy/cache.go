// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheByObject limits the manager's cache to the objects that the operator deploys, and thus also the permissions
// that it needs.
func CacheByObject(namespace string, openShift bool) map[client.Object]cache.ByObject {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	own := map[string]cache.Config{namespace: {}}
	byObject := map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}:    {Namespaces: own, Field: named(ConfigMapName)},
		&appsv1.DaemonSet{}:    {Namespaces: own, Field: named(DaemonSetName)},
		&storagev1.CSIDriver{}: {Field: named(CSIDriverName)},
		// Why the DaemonSet lacks pods: see package nodes.
		&corev1.Event{}: {Namespaces: own, Field: fields.AndSelectors(
			fields.OneTermEqualSelector("involvedObject.kind", "DaemonSet"), fields.OneTermEqualSelector("involvedObject.name", DaemonSetName),
		)},
	}
	if openShift {
		byObject[constraintsMetadata()] = cache.ByObject{Field: named(ConstraintsName)}
	}
	return byObject
}

// constraintsMetadata returns an empty object to watch OpenShift's constraints with. The operator doesn't have
// their Go type, and doesn't need it, because their generation shows changes.
func constraintsMetadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(ConstraintsKind)
	return o
}
