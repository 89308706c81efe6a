// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package figures keeps what benchmarks measure in one file, bin/bench.json.
package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
)

// variable names the file.
const variable = "BPFMAN_BENCH_JSON"

// Keep adds figures to those that the file has, if the environment names one.
func Keep(tb testing.TB, figures map[string]any) {
	tb.Helper()
	path := os.Getenv(variable)
	if path == "" {
		return
	}
	if err := keep(path, figures); err != nil {
		tb.Fatal(err)
	}
}

func keep(path string, figures map[string]any) error {
	all := map[string]any{}
	text, err := os.ReadFile(path) //nolint:gosec // who runs the benchmark names it
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read figures: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("read figures of %s: %w", path, err)
		}
	}
	maps.Copy(all, figures)
	if text, err = json.MarshalIndent(all, "", "  "); err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everyone
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
