// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command kubeadm is Kubernetes' own, which the node image of hack/kind takes. It is apart from hack/kubernetes, as nothing
// else takes it.
package main

import (
	"os"

	"k8s.io/kubernetes/cmd/kubeadm/app"
)

func main() {
	if err := app.Run(); err != nil {
		os.Exit(1) // it has printed why
	}
}
