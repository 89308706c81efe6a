// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command kube-apiserver is the API server of the oldest version of Kubernetes that bpfman
// supports. `make test-oldest-kubernetes` runs the tests of `make test-envtest` on it.
package main

import (
	"os"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) }
