// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package v1alpha1 holds the bpfman.io/v1alpha1 API: the kinds by which users
// ask for eBPF programs (XdpProgram … BpfApplication) and those that report
// what is loaded on a node (BpfProgram, BpfNsProgram).
//
// The schema is that of upstream's bpfman-operator v0.5.5, whose manifests and
// Go clients keep working. What is stricter refuses only what could never have
// worked; what is new can be ignored by an old client.
//
// JSON names are all lower case, as upstream chose, except where a standard of
// Kubernetes wants another spelling (matchLabels, observedGeneration).
//
// +kubebuilder:object:generate=true
// +k8s:register-gen=package
// +groupName=bpfman.io
package v1alpha1
