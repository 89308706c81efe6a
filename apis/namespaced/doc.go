// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package namespaced has the kind BpfApplication of upstream's v0.6, which is namespaced. In
// package v1alpha1, a kind with the same name is cluster-scoped, as in upstream's v0.5. A
// cluster has one of the two, because a definition has one scope, and so does a scheme.
//
// +kubebuilder:object:generate=true
// +groupName=bpfman.io
// +versionName=v1alpha1
package namespaced
