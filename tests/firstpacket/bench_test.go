// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package firstpacket

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// BenchmarkPodAttach measures how long the starts of pods wait until a program is attached.
func BenchmarkPodAttach(b *testing.B) {
	n := startNode(b)
	n.create(counter(b, "attached", selector("web", "")))
	n.startAgent()
	n.loaded("attached")
	pods := 0
	for ; b.Loop(); pods++ {
		name := fmt.Sprint("web-", pods)
		must.Succeed(b, n.newPod("default", name, "uid-"+name, map[string]string{"app": "web"}).run(b.Context()))
	}
	waited := n.waits()
	if len(waited) != pods {
		b.Fatalf("%d of %d starts waited", len(waited), pods)
	}
	slices.Sort(waited)
	ms, longest := waited[pods/2], waited[pods-1]
	b.ReportMetric(ms, "attach-ms")
	b.ReportMetric(longest, "longest-ms")
	figures.Keep(b, map[string]any{"pod_attach_ms": figures.Round(ms), "pod_attach_longest_ms": figures.Round(longest)})
}

// waits returns how long each start has waited for the agent, in milliseconds, from its log.
func (n *node) waits() []float64 {
	n.t.Helper()
	var waits []float64
	for line := range bytes.Lines(n.agentLog()) {
		var entry struct {
			Message      string  `json:"msg"`
			Milliseconds float64 `json:"milliseconds"`
		}
		if json.Unmarshal(line, &entry) == nil && entry.Message == "A start waited for programs" {
			waits = append(waits, entry.Milliseconds)
		}
	}
	return waits
}
