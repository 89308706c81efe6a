// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package logs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/bpfman/bpfman-operator/internal/logs"
)

// Agent and operator log over logr, the inspector and the CSI plugin over slog. Their lines have one form.
func TestLines(t *testing.T) {
	for level, want := range map[string][]string{
		"":        {"INFO", "ERROR"},
		"info":    {"INFO", "ERROR"},
		"debug":   {"DEBUG", "INFO", "ERROR"},
		"trace":   {"DEBUG-4", "DEBUG", "INFO", "ERROR"},
		"error":   {"ERROR"},
		"verbose": {"WARN", "INFO", "ERROR"},
	} {
		t.Run(level, func(t *testing.T) {
			var out bytes.Buffer
			log := logr.FromSlogHandler(logs.Setup(&out, level).Handler())
			log.V(8).Info("a call")
			log.V(4).Info("a detail")
			log.Info("a change", "object", "xdpprogram/counter")
			klog.ErrorS(errors.New("refused"), "a problem of client-go")
			lines := json.NewDecoder(&out)
			for _, level := range want {
				var line struct {
					Time               time.Time
					Level, Msg, Object string
				}
				if err := lines.Decode(&line); err != nil || line.Level != level || line.Time.IsZero() || line.Msg == "" {
					t.Errorf("got %+v, %v; want level %s, a time, and a message", line, err, level)
				}
			}
			if lines.More() {
				t.Error("there are more lines than expected")
			}
		})
	}
}
