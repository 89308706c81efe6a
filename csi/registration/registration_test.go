// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package registration

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/bpfman/bpfman-operator/csi/internal/socket"
)

// TestRegistration simulates a kubelet that finds the socket in its directory.
func TestRegistration(t *testing.T) {
	var log strings.Builder
	plugin := &Plugin{Name: "csi.bpfman.io", Endpoint: "/kubelet/csi.sock", Directory: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))}
	path := plugin.SocketPath()
	if filepath.Base(path) != "csi.bpfman.io-reg.sock" {
		t.Errorf("socket %s", path)
	}
	listener, err := socket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- socket.Serve(ctx, listener, plugin.server()) }()

	connection, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	kubelet := registerapi.NewRegistrationClient(connection)
	info, err := kubelet.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetType() != registerapi.CSIPlugin || info.GetName() != "csi.bpfman.io" || info.GetEndpoint() != "/kubelet/csi.sock" ||
		len(info.GetSupportedVersions()) != 1 || info.GetSupportedVersions()[0] != "1.0.0" {
		t.Errorf("info %v", info)
	}
	for _, verdict := range []*registerapi.RegistrationStatus{{Error: "no such driver"}, {PluginRegistered: true}} {
		if _, err := kubelet.NotifyRegistrationStatus(t.Context(), verdict); err != nil {
			t.Fatal(err)
		}
	}
	connection.Close()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, line := range []string{"no such driver", "Registered with the kubelet"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("log %q lacks %q", log.String(), line)
		}
	}
}
