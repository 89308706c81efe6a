// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// Nodes of the simulated cluster whose inspector runs, and the maps that it has.
const (
	current = "worker-0001"
	old     = "worker-0002" // its inspector doesn't know some questions

	counters  = 600 // per CPU, with a struct
	durations = 601 // an array of counts
	latencies = 602 // counts by a key with a slot
	opaque    = 603 // per CPU, without BTF
	cookies   = 604 // numbers that need 64 bits, and an entry that appears and disappears
)

// inspectors adds the pods of inspectors, and a kubelet that answers for them.
func (s *simulated) inspectors(t *testing.T) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(serveExec))
	t.Cleanup(server.Close)
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bpfman"}}))
	must.Succeed(t, s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: "bpfman-config"}}))
	for i := range s.nodes {
		name := nodeName(i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "bpfman", Name: name, Labels: map[string]string{"name": "bpfman-daemon"}},
			Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "bpfman-inspector", Image: "x"}}},
		}
		must.Succeed(t, s.Create(t.Context(), pod))
		if name != current && name != old {
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "bpfman-inspector", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		must.Succeed(t, s.Status().Update(t.Context(), pod))
		var node corev1.Node
		must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Name: name}, &node))
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
		must.Succeed(t, s.Status().Update(t.Context(), &node))
	}
}

// serveExec handles exec as a kubelet does. The path is /exec/NAMESPACE/POD/CONTAINER.
func serveExec(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(r.URL.Path, "/")
	options, err := remotecommand.NewOptions(r)
	if err != nil || len(path) < 5 {
		http.Error(w, "not an exec", http.StatusBadRequest)
		return
	}
	const idle, creation = time.Hour, time.Minute
	remotecommand.ServeExec(w, r, inspector{}, path[3], "", path[4], r.URL.Query()["command"], options, idle, creation, remotecommand.SupportedStreamingProtocols)
}

// inspector answers as the inspectors of all nodes do.
type inspector struct{}

// ExecInContainer implements [remotecommand.Executor].
func (inspector) ExecInContainer(ctx context.Context, pod, _, _ string, command []string, in io.Reader, out, said io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if pod == old {
		fmt.Fprintf(said, "flag provided but not defined: -every\nUsage of bpfman-inspector %s:\n", command[1])
		return exec.CodeExitError{Err: errors.New("exit status 1"), Code: 1}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	answers := json.NewEncoder(out)
	for n := uint64(0); ; n++ {
		var err error
		if command[1] == live.CommandTop {
			err = answers.Encode(usage(n))
		} else {
			err = dump(answers, command[slices.Index(command, "--map")+1], n)
		}
		if err != nil {
			return nil // the client has left
		}
		const interval = 500 * time.Millisecond // to save the test's time
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func usage(n uint64) live.Usage {
	if n == 0 {
		return live.Usage{CPUs: 4}
	}
	all := live.Usage{Elapsed: 2 * time.Second, CPUs: 4}
	for k := range programs {
		runs := uint64(100*(k+1)) + n%7*uint64(k)
		all.Programs = append(all.Programs, live.ProgramUsage{Program: live.Program{ID: uint32(100 + k)}, Runs: runs, RunTime: time.Duration(runs) * 350})
	}
	return all
}

// dump writes a map's content after n intervals.
func dump(answers *json.Encoder, id string, n uint64) error {
	entry := func(key, value string, cpus ...string) live.DumpLine {
		e := &live.Entry{Key: json.RawMessage(key), Value: json.RawMessage(value)}
		for _, cpu := range cpus {
			e.PerCPU = append(e.PerCPU, json.RawMessage(cpu))
		}
		return live.DumpLine{Entry: e}
	}
	var lines []live.DumpLine
	var m live.Map
	switch id {
	case strconv.Itoa(counters):
		m = live.Map{ID: counters, Name: "packet_counts", Type: "percpu_hash", KeySize: 8, ValueSize: 16, MaxEntries: 1024, PerCPU: true, HasBTF: true}
		for k := range uint64(12) {
			count := func(cpu uint64) string {
				return fmt.Sprintf(`{"packets": %d, "bytes": %d}`, (cpu+1)*(k+1)*(100+n*n%90), (cpu+1)*(k+1)*(64_000+n*5000))
			}
			sum := fmt.Sprintf(`{"packets": %d, "bytes": %d}`, 10*(k+1)*(100+n*n%90), 10*(k+1)*(64_000+n*5000))
			lines = append(lines, entry(fmt.Sprintf(`{"ifindex": 2, "port": %d}`, 8000+k), sum, count(0), count(1), count(2), count(3)))
		}
	case strconv.Itoa(durations):
		m = live.Map{ID: durations, Name: "durations_hist", Type: "percpu_array", KeySize: 4, ValueSize: 8, MaxEntries: 24, PerCPU: true, HasBTF: true}
		for k := range uint64(24) {
			count := max(0, 900-int64(k-11)*int64(k-11)*9) + int64(n)
			lines = append(lines, entry(strconv.FormatUint(k, 10), strconv.FormatInt(count, 10), strconv.FormatInt(count/2, 10), strconv.FormatInt(count-count/2, 10)))
		}
	case strconv.Itoa(latencies):
		m = live.Map{ID: latencies, Name: "bio_latency", Type: "hash", KeySize: 8, ValueSize: 8, MaxEntries: 1024, HasBTF: true}
		for k := range uint64(20) {
			lines = append(lines, entry(fmt.Sprintf(`{"disk": "sda", "slot": %d}`, k), strconv.FormatUint(k*(20-k)*7+n, 10)))
		}
	case strconv.Itoa(cookies):
		// Two keys and values that differ only in their lowest bit, and an entry that every second dump lacks.
		m = live.Map{ID: cookies, Name: "cookies", Type: "hash", KeySize: 8, ValueSize: 8, MaxEntries: 1024, HasBTF: true}
		lines = []live.DumpLine{entry("18446744073709551615", "9223372036854775809"), entry("18446744073709551614", "9223372036854775808")}
		if n%2 == 0 {
			lines = append(lines, entry("7", "5000000"))
		}
	default:
		m = live.Map{ID: opaque, Name: "opaque", Type: "percpu_array", KeySize: 4, ValueSize: 4, MaxEntries: 1, PerCPU: true}
		lines = []live.DumpLine{entry(`"0x00000000"`, "", `"0x01000000"`, `"0x02000000"`)}
		lines[0].Entry.Value = nil
	}
	lines = append(append([]live.DumpLine{{Map: &m}}, lines...), live.DumpLine{End: &live.End{Entries: len(lines)}})
	for _, line := range lines {
		if err := answers.Encode(line); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
	return nil
}
