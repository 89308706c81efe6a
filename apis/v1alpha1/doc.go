// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package v1alpha1 contains the API bpfman.io/v1alpha1: the kinds with which users
// request eBPF programs (XdpProgram … BpfApplication) and those that report what is
// loaded on a node (BpfProgram, BpfNsProgram).
//
// The schema is compatible with upstream's bpfman-operator v0.5.5, so its manifests and
// Go clients keep working. Stricter validation only rejects objects that could never
// have worked. Old clients can ignore new fields.
//
// JSON names are in lower case, as in upstream's API, except for names that Kubernetes
// spells otherwise (matchLabels, observedGeneration).
//
// +kubebuilder:object:generate=true
// +k8s:register-gen=package
// +groupName=bpfman.io
package v1alpha1
