// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package nodes

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The plugin's first log lines.
const began = `{"time":"2026-01-01T00:00:00Z","level":"WARN","msg":"Unknown log level in GO_LOG"}
{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"Serving CSI","driver":"csi.bpfman.io","version":"v0","node":"a"}
{"time":"2026-01-01T00:00:01Z","level":"INFO","msg":"else","driver":"csi.bpfman.io","version":"v9"}
`

func TestVersionOfALog(t *testing.T) {
	for log, want := range map[string]string{
		began: "v0",
		"":    "",
		"no JSON\n{\"version\":\"v2\"}\n[1]\n{\"driver\":\"another\",\"version\":\"v2\"}\n": "",
		strings.Repeat("x", 2*maxLog) + "\n" + began:                                        "",
	} {
		got, err := versionOf(t.Context(), func(context.Context, string, string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(log)), nil
		}, "pod")
		if err != nil || got != want {
			t.Errorf("%.60q: version %q, %v, not %q", log, got, err, want)
		}
	}
}

// One log is read for each image, from a plugin that is ready. If it can't be read, it is read
// again.
func TestOneLogForEachImage(t *testing.T) {
	named := func(name, node string, containers ...corev1.ContainerStatus) corev1.Pod {
		p := pod(node, mounted("bpfman-agent v1"), containers...)
		p.Name = name
		return p
	}
	begins := serves("sha256:9")
	begins.Ready = false
	pods := []corev1.Pod{named("one", "a", serves("sha256:1")), named("two", "b", serves("sha256:1")), named("three", "c", begins)}

	reads, away := 0, true
	logs := func(_ context.Context, _, container string) (io.ReadCloser, error) {
		reads++
		if container != "bpfman-csi" {
			t.Errorf("reads the log of %s", container)
		}
		if away {
			return nil, errors.New("the node doesn't answer")
		}
		return io.NopCloser(strings.NewReader(began)), nil
	}
	v := Versions{"sha256:gone": "v0"}
	for n, want := range []struct {
		away, learned, fails bool
		reads                int
		known                Versions
	}{
		{away: true, fails: true, reads: 1, known: Versions{}},
		{learned: true, reads: 2, known: Versions{"sha256:1": "v0"}},
		{reads: 2, known: Versions{"sha256:1": "v0"}},
	} {
		away = want.away
		learned, err := v.learn(t.Context(), pods, logs)
		if learned != want.learned || (err != nil) != want.fails || reads != want.reads || !maps.Equal(v, want.known) {
			t.Errorf("%d: learned %v, %v, after %d logs: %v", n, learned, err, reads, v)
		}
	}
}
