// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package metrics

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/csi/driver"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	response := httptest.NewRecorder()
	m.Handler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return response.Body.String()
}

func TestMetrics(t *testing.T) {
	m := New()
	var log bytes.Buffer
	counts, failure := driver.Counts{Live: 3, Stale: 1}, error(nil)
	m.Volumes(func() (driver.Counts, error) { return counts, failure }, slog.New(slog.NewTextHandler(&log, nil)))
	m.Denied()
	registered := true
	m.Registered(func() bool { return registered })
	call := &grpc.UnaryServerInfo{FullMethod: csi.Node_NodePublishVolume_FullMethodName}
	_, err := m.Calls(t.Context(), nil, call, func(context.Context, any) (any, error) {
		return nil, status.Error(codes.PermissionDenied, "no")
	})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("Calls: %v", err)
	}
	text := scrape(t, m)
	for _, want := range []string{
		"csi_plugin_volumes 3\n", "csi_plugin_stale_volumes 1\n", "csi_plugin_denials_total 1\n", "csi_plugin_registered 1\n",
		"process_start_time_seconds ", "process_resident_memory_bytes ",
		`csi_plugin_operations_seconds_count{driver_name="csi.bpfman.io",grpc_status_code="PermissionDenied",method_name="/csi.v1.Node/NodePublishVolume"} 1`,
		`csi_plugin_operations_seconds_bucket{driver_name="csi.bpfman.io",grpc_status_code="PermissionDenied",method_name="/csi.v1.Node/NodePublishVolume",le="0.00025"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	registered = false
	if text := scrape(t, m); !strings.Contains(text, "csi_plugin_registered 0\n") {
		t.Errorf("after the registration is lost: %s", text)
	}
	failure = errors.New("no mount table")
	if text := scrape(t, m); strings.Contains(text, "csi_plugin_volumes") || !strings.Contains(log.String(), "no mount table") {
		t.Errorf("after a failure: %s\nlog %s", text, &log)
	}
}
