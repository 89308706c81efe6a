// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package figures stores the results of benchmarks in files, such as bin/bench.json.
package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// variable is the environment variable with the name of the file.
const variable = "BPFMAN_BENCH_JSON"

// Keep adds figures to the file, if the environment names one.
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
	text, err := os.ReadFile(path) //nolint:gosec // whoever runs the benchmark names it
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read figures: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("read figures of %s: %w", path, err)
		}
	}
	maps.Copy(all, figures)
	return Write(path, all)
}

// Write writes figures to a file.
func Write(path string, figures map[string]any) error {
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return fmt.Errorf("encode figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil { //nolint:gosec // the caller specifies it
		return fmt.Errorf("make directory of figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil { //nolint:gosec // everyone can read it, and the caller specifies it
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// Median returns the median of a function's results for all elements, or 0 if there are
// none.
func Median[T any, V float64 | time.Duration](all []T, of func(T) V) V {
	if len(all) == 0 {
		return 0
	}
	values := make([]V, 0, len(all))
	for _, t := range all {
		values = append(values, of(t))
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}

// Round rounds to three decimals.
func Round(f float64) float64 { return math.Round(f*1000) / 1000 }
