// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
)

// deleter is the storage that deletes objects of a kind.
func (b *builtin) deleter() rest.GracefulDeleter {
	if _, ok := b.object.(*corev1.Namespace); ok {
		return namespaceREST{b.main}
	}
	return b.main
}

// namespaceREST deletes namespaces: one is deleted for good when its content is, which [Server.RunControllers] does.
type namespaceREST struct{ *registry.Store }

// Delete implements [rest.GracefulDeleter].
func (r namespaceREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key, err := r.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	out := r.New()
	err = r.Storage.GuaranteedUpdate(ctx, key, out, false, nil, storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		if err := validate(ctx, o); err != nil {
			return nil, err
		}
		namespace, ok := o.(*corev1.Namespace)
		if p := options.Preconditions; ok && p != nil && p.UID != nil && *p.UID != namespace.UID {
			return nil, apierrors.NewConflict(r.DefaultQualifiedResource, name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, namespace.UID)) //nolint:staticcheck // as kube-apiserver writes it
		}
		if ok && namespace.DeletionTimestamp == nil {
			namespace.DeletionTimestamp = new(metav1.Now())
			namespace.Status.Phase = corev1.NamespaceTerminating
		}
		return o, nil
	}), len(options.DryRun) > 0, nil)
	if err != nil {
		return nil, false, storeerr.InterpretDeleteError(storeerr.InterpretGetError(err, r.DefaultQualifiedResource, name), r.DefaultQualifiedResource, name)
	}
	return out, false, nil
}

func namespaceObject(name string) runtime.Object {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}
