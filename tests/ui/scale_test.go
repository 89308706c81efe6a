// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/bpfman/bpfman-operator/hack/docs/chromium"
	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// many is the number of nodes of a large cluster. Each has programs.
const many = 5000

// TestScale measures the page with a large cluster.
func TestScale(t *testing.T) {
	if testing.Short() || os.Getenv("BPFMAN_BENCH_JSON") == "" {
		t.Skip("BPFMAN_BENCH_JSON isn't set: run `make bench-ui`")
	}
	cluster := simulate(t, envtest.Config(t), many, programs)
	whole := fmt.Sprintf(`document.querySelectorAll(".map a").length === %d && document.querySelectorAll("table tbody tr").length > 10 && document.querySelectorAll(".map a.failed").length === 52`, many)

	began := time.Now()
	s := start(t, envtest.Kubeconfig(t))
	ctx, _ := s.open(t)
	chromium.Show(t, ctx, desktop, "light")
	await(t, ctx, whole)
	cold := time.Since(began)
	picture(t, ctx, "ui-5000-nodes")

	fmt.Fprintln(s.input)
	s.next(t)
	second := chromium.Browser(t)
	began = time.Now()
	chromium.Do(t, second, chromedp.Navigate(s.address()))
	await(t, second, whole)
	warm := time.Since(began)

	updated := cluster.conflict(t, 30)
	await(t, second, `document.querySelector(".map a[href$='worker-0030']").classList.contains("conflict")`)
	seen := time.Since(updated)

	began = time.Now()
	visit(t, second, "#/node?name=worker-0007", `document.querySelectorAll(".box").length > 40`)
	toNode := time.Since(began)
	began = time.Now()
	visit(t, second, "#/object?kind=TcxProgram&name="+failing, shows("set bpffunctionname to count_packet"))
	toObject := time.Since(began)
	memory, err := node.MemoryOf(s.command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	peak := float64(memory.Peak) / (1 << 20)
	t.Logf("%d nodes with %d programs each: picture after %v from the command's start, %v once it has read the cluster; a change after %v; a node after %v, an object after %v; at most %.0f MiB",
		many, programs, cold, warm, seen, toNode, toObject, peak)
	figures.Keep(t, map[string]any{
		"ui_cold_s": figures.Round(cold.Seconds()), "ui_picture_s": figures.Round(warm.Seconds()), "ui_update_s": figures.Round(seen.Seconds()),
		"ui_node_s": figures.Round(toNode.Seconds()), "ui_object_s": figures.Round(toObject.Seconds()), "ui_rss_mb": figures.Round(peak),
	})
}
