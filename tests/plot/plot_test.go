// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestSVG draws two panels. The result is valid XML, names each line, and has a color
// for dark pages.
func TestSVG(t *testing.T) {
	svg := string(SVG([]Panel{
		{"Memory <MB>", []Line{{"agent", []Point{{0, 10}, {60, 20}, {120, 15}}}, {"csi", []Point{{0, 5}}}}},
		{"Files", []Line{{"agent", nil}}},
	}))
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{"Memory &lt;MB&gt;", ">agent<", ">csi<", "prefers-color-scheme: dark", ">20<", ">2 min<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
	// The largest value is at the top, and the last point is on the right.
	if !strings.Contains(svg, "L385.0 34.0") {
		t.Errorf("the greatest value is elsewhere:\n%s", svg)
	}
}

func TestRoundStep(t *testing.T) {
	for value, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 3: 5, 7: 10, 120: 200} {
		if got := roundStep(value); got != want {
			t.Errorf("roundStep(%v) = %v, want %v", value, got, want)
		}
	}
}
