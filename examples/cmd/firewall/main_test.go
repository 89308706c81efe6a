// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun_Refuses(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "blocked")
	for arguments, want := range map[string]string{
		"":                   "is no command",
		"list all":           "is no command",
		"block":              "is no command",
		"block here":         `unable to parse IP`,
		"block 2001:db8::1":  "isn't an IPv4 address",
		"block 10.0.0.1":     "open map " + absent,
		"allow 10.0.0.1":     "open map " + absent,
		"list":               "open map " + absent,
		"unblock 10.0.0.1":   "is no command",
		"block 10.0.0.1 now": "is no command",
	} {
		var out bytes.Buffer
		err := run(t.Context(), &out, absent, strings.Fields(arguments))
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%q: error %v, not %q; printed %q", arguments, err, want, &out)
		}
	}
}

func TestRun_Waits(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx, &bytes.Buffer{}, "", []string{"wait"}); err != nil {
		t.Error(err)
	}
}
