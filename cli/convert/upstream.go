// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package convert

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The kinds of upstream's API at v0.6.0 (group bpfman.io, version v1alpha1) that this
// project doesn't serve.
const (
	kindApplication = "BpfApplication"
	kindConfig      = "Config"
)

// upstreamApplication is a BpfApplication of upstream's v0.6, which is namespaced. It has the
// fields of a ClusterBpfApplication, with two exceptions: its selectors have no namespace, and
// it has no programs for kernel functions and tracepoints.
type upstreamApplication struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta                  `json:"metadata"`
	Spec            v1alpha1.ClusterBpfApplicationSpec `json:"spec"`
	Status          json.RawMessage                    `json:"status"`
}
