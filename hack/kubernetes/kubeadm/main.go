// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command kubeadm is Kubernetes' own kubeadm, for the node image of hack/kind. It is separate from
// the other components, because only this image needs it.
package main

import (
	"os"

	"k8s.io/kubernetes/cmd/kubeadm/app"
)

func main() {
	if err := app.Run(); err != nil {
		os.Exit(1) // it has printed the error
	}
}
