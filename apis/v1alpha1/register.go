// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds here.
const GroupName = "bpfman.io"

var (
	// GroupVersion is the group and version of all kinds here.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeGroupVersion is GroupVersion by the name that generated clients use.
	SchemeGroupVersion = GroupVersion

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// Install adds the kinds to a scheme.
	Install = schemeBuilder.AddToScheme

	// AddToScheme is Install by the name that most Kubernetes clients use.
	AddToScheme = Install
)

// Resource qualifies a resource's name with the group.
func Resource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: GroupName, Resource: resource}
}

func addKnownTypes(scheme *runtime.Scheme) error {
	for _, kind := range UserKinds {
		scheme.AddKnownTypes(GroupVersion, kind.New(), kind.NewList())
	}
	for _, kind := range ProgramKinds {
		scheme.AddKnownTypes(GroupVersion, kind.New(), kind.NewList())
	}
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
