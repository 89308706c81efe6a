// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package logs is the form in which bpfman's own components log: one line of JSON for each record, with time, level, and msg.
// A problem has the level WARN or ERROR. The daemon's own lines have another form.
package logs

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// Variable is the environment variable with the level, as for upstream's components.
const Variable = "GO_LOG"

// LevelTrace is the level of each call.
const LevelTrace = slog.LevelDebug - 4

var levels = map[string]slog.Level{
	"": slog.LevelInfo, "trace": LevelTrace, "debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError,
}

// Setup returns a logger that writes records of this level and above, and has client-go use it. With an unknown level, it logs
// that, and uses level info.
func Setup(out io.Writer, level string) *slog.Logger {
	minimum, known := levels[level]
	log := slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: minimum}))
	if !known {
		log.Warn("Unknown log level in GO_LOG; use trace, debug, info, warn, or error", "value", level)
	}
	klog.SetSlogLogger(log)
	return log
}
