// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// TestStorageSuite runs the tests with which Kubernetes judges the ephemeral inline volumes of any CSI driver.
func TestStorageSuite(t *testing.T) {
	requireType(t, "Tracepoint")
	suite := os.Getenv("KUBERNETES_STORAGE")
	if suite == "" {
		prerequisite.Missing(t, "KUBERNETES_STORAGE doesn't say where Kubernetes' tests of storage drivers are: run `make test-storage`", prerequisite.StorageSuite)
	}
	program := tracepoint("e2e-storage")
	feature(t,
		step{"the program is attached", func(ctx context.Context, s *testing.T) {
			create(ctx, t, program)
			awaitSuccess(ctx, s, program)
		}},
		step{"the suite passes", func(ctx context.Context, s *testing.T) {
			passed := judge(ctx, s, suite, map[string]any{
				"DriverInfo": map[string]any{"Name": v1alpha1.CSIDriverName},
				"InlineVolumes": []any{map[string]any{
					"Attributes": map[string]string{v1alpha1.VolumeAttributeProgram: program.Name, v1alpha1.VolumeAttributeMaps: "tracepoint_stats_map"},
					"Shared":     true, // both pods have the same map
				}},
			})
			for _, name := range []string{
				"should create read-only inline ephemeral volume", "should create read/write inline ephemeral volume",
				"should support two pods which have the same volume definition", "should support multiple inline ephemeral volumes",
			} {
				if !passed[name] {
					s.Errorf("%q didn't run", name)
				}
			}
		}},
	)
}

// judge runs Kubernetes' tests of ephemeral inline volumes for a driver, and returns the names of those that passed.
func judge(ctx context.Context, t *testing.T, suite string, driver map[string]any) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	description, report := filepath.Join(dir, "driver.json"), filepath.Join(dir, "report.json")
	text, err := json.Marshal(driver)
	if err == nil {
		err = os.WriteFile(description, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(ctx, suite, "--kubeconfig="+settings.kubeconfig, "--storage.testdriver="+description,
		"--ginkgo.focus=CSI Ephemeral-volume", "--ginkgo.json-report="+report, "--ginkgo.no-color")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(suite), err, out)
	}
	var suites []struct {
		SpecReports []struct{ LeafNodeText, State string }
	}
	if text, err = os.ReadFile(report); err == nil {
		err = json.Unmarshal(text, &suites)
	}
	if err != nil {
		t.Fatalf("read the report: %v\n%s", err, out)
	}
	passed := map[string]bool{}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.State == "passed" {
				name, _, _ := strings.Cut(spec.LeafNodeText, " [")
				passed[name] = true
			}
		}
	}
	return passed
}
