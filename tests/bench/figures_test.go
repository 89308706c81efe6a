// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const auditLine = `{"stage":%q,"verb":%q,"user":{"username":"system:serviceaccount:bpfman:bpfman-%s"},"userAgent":"bpfman-%s/v1","objectRef":{"resource":%q,"name":%q},"requestReceivedTimestamp":"2026-01-01T00:00:%02dZ"}`

func TestRequestsOfAnAuditLog(t *testing.T) {
	lines := []string{
		fmt.Sprintf(auditLine, "ResponseComplete", "create", "daemon", "agent", "bpfprograms", "bench-00-0a", 1),
		fmt.Sprintf(auditLine, "ResponseStarted", "create", "daemon", "agent", "bpfprograms", "bench-01-0a", 1),        // counted when it ends
		fmt.Sprintf(auditLine, "ResponseComplete", "create", "daemon", "agent", "bpfprograms", "another", 1),           // not from the benchmark
		fmt.Sprintf(auditLine, "ResponseComplete", "delete", "daemon", "agent", "bpfprograms", "bench-00-0a", 9),       // later
		fmt.Sprintf(auditLine, "ResponseComplete", "get", "operator", "operator", "tracepointprograms", "bench-00", 2), // not a write
		`{"stage":"Respo`, // being written
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	must.Succeed(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newResults()
	f.add(1, timesOfRound{ours: declaredTimes{From: start, To: start.Add(5 * time.Second), Gone: start.Add(time.Minute)}})
	must.Succeed(t, f.readRequests(path))
	if got := f.writesPerProgram(); got != 1 {
		t.Errorf("%v writes per program, want 1: %v", got, f.attaching)
	}
	if got := f.removing[request{Component: node.Agent, Verb: "delete", Resource: "bpfprograms"}]; got != 1 {
		t.Errorf("%d deletions, want 1: %v", got, f.removing)
	}
}

// The cost of a policy is the additional time of a load, compared with the load without
// a policy in the same round.
func TestWhatPoliciesCost(t *testing.T) {
	f := newResults()
	if _, there := f.policiesJSON()["policy_first_ms"]; there {
		t.Error("it is told though it wasn't measured")
	}
	const ms = time.Millisecond
	f.policies = []policyTimes{{100 * ms, 150 * ms, 101 * ms}, {200 * ms, 900 * ms, 204 * ms}, {100 * ms, 160 * ms, 90 * ms}}
	if got := f.policiesJSON(); got["policy_first_ms"] != 60.0 || got["policy_known_ms"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

// A single slow round must not affect the result.
func TestRatioIsOfRounds(t *testing.T) {
	f := newResults()
	for _, round := range []struct{ own, ours time.Duration }{{time.Second, 2 * time.Second}, {10 * time.Second, 12 * time.Second}, {time.Second, time.Second}} {
		f.add(20, timesOfRound{own: node.Times{Load: round.own}, ours: declaredTimes{Attached: round.ours}})
	}
	if got := f.ratio(20, attached); got != 1.2 {
		t.Errorf("got %v, want 1.2", got)
	}
}

// The comparison with upstream's daemon doesn't include kubectl's start.
func TestRatioToShipped(t *testing.T) {
	f := newResults()
	for _, n := range sizes {
		f.add(n, timesOfRound{
			shipped: node.Times{Load: 3 * time.Second, Attach: time.Second},
			own:     node.Times{Load: time.Second},
			ours:    declaredTimes{Seen: time.Second, Attached: 2 * time.Second},
		})
	}
	out := f.timesJSON()
	for key, want := range map[string]float64{
		"attach_vs_shipped_60": 0.25, "attach_ratio_60": 2, "attach_ratio_from_first_object_60": 1,
		"shipped_s_60": 4, "shipped_load_s_60": 3, "shipped_attach_s_60": 1, "daemon_s_60": 1,
	} {
		if out[key] != want {
			t.Errorf("%s is %v, want %v", key, out[key], want)
		}
	}
	if got, want := f.loads(), 2*(1+20+60); got != want {
		t.Errorf("%d loads, want %d", got, want)
	}
}

// The node's memory is the sum in one round, not of the maxima of different rounds.
func TestMemoryOfTheNode(t *testing.T) {
	f := newResults()
	f.addMemory(map[string]int{node.Agent: 10 << 20, node.Daemon: 20 << 20, node.Operator: 50 << 20})
	f.addMemory(map[string]int{node.Agent: 15 << 20, node.Daemon: 10 << 20, node.Operator: 50 << 20})
	f.reboot, f.afterLoads = 1500*time.Millisecond, 30<<20
	for _, n := range sizes {
		f.add(n, timesOfRound{own: node.Times{Load: 1}, shipped: node.Times{Load: 1}})
	}
	out := f.json()
	for key, want := range map[string]float64{
		"node_rss_mb": 30, "agent_rss_mb": 15, "daemon_rss_mb": 20, "daemon_rss_600_loads_mb": 30, "reboot_60_s": 1.5,
	} {
		if out[key] != want {
			t.Errorf("%s is %v, want %v", key, out[key], want)
		}
	}
}

func TestStoredFile(t *testing.T) {
	const of = storeDir + "/quay.io/bpfman-bytecode/"
	files := []string{
		of + "counter@sha256:11.o", of + "counter@sha256:22.o", of + "counter@sha256:22.json", of + "counters@sha256:33.o",
		storeDir + "/localhost:5000/counter@sha256:44.o",
	}
	for image, want := range map[string]string{
		"quay.io/bpfman-bytecode/counter:latest":          of + "counter@sha256:22.o",
		"quay.io/bpfman-bytecode/counter:v1@sha256:abcde": of + "counter@sha256:22.o",
		"localhost:5000/counter":                          storeDir + "/localhost:5000/counter@sha256:44.o",
		"quay.io/bpfman-bytecode/other:latest":            "",
	} {
		if got := storedFile(files, image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
	if got := besideOf("localhost:5000/a/counter:latest", "copy:1"); got != "localhost:5000/a/copy:1" {
		t.Errorf("got %s", got)
	}
}
