// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package e2e tests bpfman on the cluster in KUBECONFIG, where it must be deployed. The
// tests find out what the kernels support by trying it directly with the daemon. What
// isn't supported is skipped, or fails if TEST_REQUIRES names it. At the end, tables show
// what was really attached, and what was skipped.
package e2e

import (
	"cmp"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// settings come from the environment: see `make test-e2e`.
var settings = struct {
	kubeconfig string
	// bytecode is the registry and prefix from which the daemon pulls the sample images.
	bytecode string
	// push is where this process pushes images so that the daemon finds them there. If it
	// is empty, tests that need it are skipped. pushCA is the certificate authority of
	// that registry.
	push, pushCA string
	// The images of the probe, of the reading applications, and of the target of uprobes.
	// sampleApp replaces the samples' nginx, unless it is empty.
	probe, counters, exporter, uprobed, sampleApp string
	// uninstall is whether tests can install and uninstall bpfman.
	uninstall bool
	// otherDaemon is the image of another daemon. If it is empty, the cluster has none.
	otherDaemon string
	// nodes is the number of nodes for tests that need several. machines is the command
	// that controls the machines, hack/cluster with its flags.
	nodes, machines string
}{
	kubeconfig:  os.Getenv("KUBECONFIG"),
	bytecode:    variable("BYTECODE_REGISTRY", "quay.io") + "/" + bytecodePrefix,
	push:        os.Getenv("BYTECODE_PUSH"),
	pushCA:      os.Getenv("BYTECODE_PUSH_CA"),
	probe:       variable("BPFMAN_NODE_PROBE_IMG", "quay.io/bpfman/bpfman-node-probe:latest"),
	counters:    variable("BPFMAN_COUNTERS_IMG", "quay.io/bpfman/bpfman-counters:latest"),
	exporter:    variable("BPFMAN_MAP_EXPORTER_IMG", "quay.io/bpfman/bpfman-map-exporter:latest"),
	uprobed:     variable("BPFMAN_GO_TARGET_IMG", "quay.io/bpfman/bpfman-go-target:latest"),
	sampleApp:   os.Getenv("SAMPLE_APP_IMG"),
	uninstall:   os.Getenv("E2E_UNINSTALL") == "yes",
	otherDaemon: os.Getenv("BPFMAN_OTHER_IMG"),
	nodes:       os.Getenv("E2E_NODES"),
	machines:    os.Getenv("E2E_MACHINES"),
}

var bytecodePrefix = variable("BYTECODE_PREFIX", "bpfman-bytecode")

// nextImages are images of the same components for upgrades. They are empty if the
// cluster has none.
var nextImages = variables(map[string]string{
	"operator": "BPFMAN_OPERATOR_NEXT_IMG", "agent": "BPFMAN_AGENT_NEXT_IMG", "csi": "BPFMAN_CSI_NEXT_IMG", "inspector": "BPFMAN_INSPECTOR_NEXT_IMG", "daemon": "BPFMAN_NEXT_IMG",
})

func variables(names map[string]string) map[string]string {
	values := map[string]string{}
	for key, name := range names {
		if value := os.Getenv(name); value != "" {
			values[key] = value
		}
	}
	return values
}

func variable(name, otherwise string) string { return cmp.Or(os.Getenv(name), otherwise) }

func duration(name string, otherwise time.Duration) time.Duration {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return value
}

var (
	testenv env.Environment
	under   *cluster
)

func TestMain(m *testing.M) {
	if settings.kubeconfig == "" {
		const reason = "KUBECONFIG names no cluster where bpfman is deployed; see `make test-e2e`"
		if err := prerequisite.Require(prerequisite.Cluster, reason); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("skipped:", reason)
		return
	}
	testenv = env.NewWithConfig(envconf.NewWithKubeConfig(settings.kubeconfig))
	testenv.Setup(connect, sweep, removeExamples, allowUprobes, startProbes, tryKernel)
	testenv.Finish(stopProbes, restoreUprobes, printResults)
	os.Exit(testenv.Run(m))
}
