// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package namespaced

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Install adds the kinds of this API to a scheme, as v1alpha1.Install does, but with the kinds of
// this package instead of the BpfApplication that is cluster-scoped.
func Install(scheme *runtime.Scheme) error {
	others := runtime.NewScheme()
	if err := v1alpha1.Install(others); err != nil {
		return fmt.Errorf("register the kinds of the API: %w", err)
	}
	own := []runtime.Object{&BpfApplication{}, &BpfApplicationList{}, &BpfApplicationState{}, &BpfApplicationStateList{}}
	scheme.AddKnownTypes(v1alpha1.SchemeGroupVersion, own...)
	for name, of := range others.KnownTypes(v1alpha1.SchemeGroupVersion) {
		gvk := v1alpha1.SchemeGroupVersion.WithKind(name)
		if object, is := reflect.TypeAssert[runtime.Object](reflect.New(of)); is && !scheme.Recognizes(gvk) {
			scheme.AddKnownTypeWithName(gvk, object)
		}
	}
	metav1.AddToGroupVersion(scheme, v1alpha1.SchemeGroupVersion)
	return nil
}

// New returns a new empty object of a kind that users write, or nil. The object is to be in a namespace, or in none if that
// is "".
func New(kind, namespace string) v1alpha1.UserObject {
	if kind == "BpfApplication" && namespace != "" {
		return &BpfApplication{}
	}
	for _, k := range v1alpha1.UserKinds {
		if k.Name == kind {
			return k.New()
		}
	}
	return nil
}
