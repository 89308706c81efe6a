// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/figures"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// envBinary names the environment variable with the plugin's binary. Without it, the
	// benchmark measures this binary, which also contains the tests.
	envBinary = "BPFMAN_CSI"
)

const (
	liveVolumes = 200
	// loadedPrograms is the number of programs in the daemon's list.
	loadedPrograms = 20
	perWorker      = 40
)

var concurrencies = []int{1, 10, 50}

// BenchmarkVolumes measures the plugin through the kubelet's API, with the real daemon
// and many live volumes. It measures concurrent publications and unpublications, and the
// daemon's List, which they include. One run is one measurement (-benchtime 1x).
func BenchmarkVolumes(b *testing.B) {
	b.Setenv("GO_LOG", "warn") // a log line for each volume would affect the figures
	bpfman := sandbox.StartDaemon(b)
	daemon := bpfman.Client
	for i := range loadedPrograms {
		loadNamed(b, daemon, fmt.Sprint("other-", i), "TracepointProgram", "")
	}
	load(b, daemon, "TracepointProgram", "")
	p := startProcess(b, bpfman.Socket, sandbox.DaemonMaps)
	for i := range liveVolumes {
		p.publish(b, p.request(b, fmt.Sprint("live-", i)))
	}
	lists := durations{}
	for range perWorker {
		lists.time(b, func() error { return listAll(b, daemon) })
	}
	worst, measured := time.Duration(0), map[string]any{}
	for b.Loop() {
		for _, workers := range concurrencies {
			publications, unpublications := measure(b, p, workers)
			worst = max(worst, publications.at(99)-lists.at(50))
			for what, took := range map[string]*durations{"publish": publications, "unpublish": unpublications} {
				for _, percentile := range []int{50, 99} {
					figure := milliseconds(took.at(percentile))
					b.ReportMetric(figure, fmt.Sprintf("%s-by-%d-p%d-ms", what, workers, percentile))
					measured[fmt.Sprintf("csi_%s_%d_p%d_ms", what, workers, percentile)] = figures.Round(figure)
				}
			}
		}
	}
	b.ReportMetric(milliseconds(lists.at(50)), "list-p50-ms")
	b.ReportMetric(milliseconds(lists.at(99)), "list-p99-ms")
	resident := float64(residentKB(b, p.command.Process.Pid)) / 1024
	b.ReportMetric(resident, "rss-mb")
	b.ReportMetric(milliseconds(worst), "publish-p99-over-list-ms")
	measured["csi_publish_p99_ms"], measured["csi_rss_mb"] = figures.Round(milliseconds(worst)), figures.Round(resident)
	measured["csi_list_p50_ms"], measured["csi_list_p99_ms"] = figures.Round(milliseconds(lists.at(50))), figures.Round(milliseconds(lists.at(99)))
	figures.Keep(b, measured)
}

// measure publishes and unpublishes volumes with the given number of workers.
func measure(b *testing.B, p *process, workers int) (publications, unpublications *durations) {
	b.Helper()
	publications, unpublications = &durations{}, &durations{}
	var group sync.WaitGroup
	for worker := range workers {
		request := p.request(b, fmt.Sprint("pod-", worker))
		group.Go(func() {
			for range perWorker {
				publications.time(b, func() error {
					_, err := p.node.NodePublishVolume(b.Context(), request)
					return err
				})
				unpublications.time(b, func() error {
					_, err := p.node.NodeUnpublishVolume(b.Context(), unpublishOf(request))
					return err
				})
			}
		})
	}
	group.Wait()
	return publications, unpublications
}

func listAll(b *testing.B, daemon gobpfman.BpfmanClient) error {
	b.Helper()
	onlyBpfman := true
	_, err := daemon.List(b.Context(), &gobpfman.ListRequest{BpfmanProgramsOnly: &onlyBpfman})
	return err
}

// durations are the durations of several calls.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) time(b *testing.B, do func() error) {
	b.Helper()
	start := time.Now()
	err := do()
	took := time.Since(start)
	if err != nil {
		b.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, took)
}

func (d *durations) at(percentile int) time.Duration {
	slices.Sort(d.all)
	return d.all[(len(d.all)-1)*percentile/100]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
