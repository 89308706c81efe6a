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
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newResults()
	f.add(1, node.Times{}, declaredTimes{From: start, To: start.Add(5 * time.Second), Gone: start.Add(time.Minute)})
	if err := f.readRequests(path); err != nil {
		t.Fatal(err)
	}
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
		f.add(20, node.Times{Load: round.own}, declaredTimes{Attached: round.ours})
	}
	if got := f.ratio(20, attached); got != 1.2 {
		t.Errorf("got %v, want 1.2", got)
	}
}
