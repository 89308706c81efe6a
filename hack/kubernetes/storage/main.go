// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command storage contains the tests with which Kubernetes judges storage drivers (External Storage). The flag
// -storage.testdriver names a file that describes the driver.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

// suite is what the tests report to. Their reporter prints the failures.
type suite struct{}

func (suite) Fail() {}

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	if !ginkgo.RunSpecs(suite{}, "Storage", ginkgo.Label("storage")) {
		os.Exit(1)
	}
}
