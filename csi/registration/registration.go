// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package registration makes the plugin known to the kubelet without
// node-driver-registrar: it serves the kubelet's plugin registration v1.
package registration

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// csiVersion is the CSI version that the kubelet is told, as sidecars tell it.
const csiVersion = "1.0.0"

// Plugin is the plugin as the kubelet sees it.
type Plugin struct {
	registerapi.UnimplementedRegistrationServer
	// Name of the CSI driver.
	Name string
	// Endpoint is the path of the CSI socket in the kubelet's file system.
	Endpoint string
	Log      *slog.Logger
}

// SocketPath is where the kubelet looks for the plugin in its directory.
func (p *Plugin) SocketPath(directory string) string {
	return filepath.Join(directory, p.Name+"-reg.sock")
}

// Register adds the registration service to server.
func (p *Plugin) Register(server *grpc.Server) {
	registerapi.RegisterRegistrationServer(server, p)
}

// GetInfo tells the kubelet about the plugin.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: p.Name, Endpoint: p.Endpoint, SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus takes the kubelet's verdict. The kubelet itself tries
// again after a failure.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		p.Log.Info("registered with the kubelet", "endpoint", p.Endpoint)
	} else {
		p.Log.Error("the kubelet refused the plugin", "endpoint", p.Endpoint, "error", status.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
