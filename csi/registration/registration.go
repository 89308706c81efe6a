// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package registration restores a lost registration of the plugin with the kubelet, with
// the kubelet's plugin registration API v1. node-driver-registrar normally registers the
// plugin.
package registration

import (
	"context"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// csiVersion is the CSI version in the registration. It is the same as the sidecar's.
const csiVersion = "1.0.0"

// Plugin is the plugin as the kubelet knows it.
type Plugin struct {
	registerapi.UnimplementedRegistrationServer
	// Name is the name of the CSI driver.
	Name string
	// Endpoint is the path of the CSI socket in the kubelet's file system.
	Endpoint string
	// Directory is the directory where the kubelet looks for the sockets of plugins.
	Directory string
	Log       *slog.Logger
}

// SocketPath returns the path where the kubelet looks for the plugin.
func (p *Plugin) SocketPath() string {
	return filepath.Join(p.Directory, p.Name+"-reg.sock")
}

// server returns a server of the registration API.
func (p *Plugin) server() *grpc.Server {
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, p)
	return server
}

// GetInfo returns the plugin's registration to the kubelet.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: p.Name, Endpoint: p.Endpoint, SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus logs the kubelet's verdict. After a failure, the kubelet
// retries.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		p.Log.Info("Registered with the kubelet", "endpoint", p.Endpoint)
	} else {
		p.Log.Error("The kubelet rejected the plugin's registration", "endpoint", p.Endpoint, "error", status.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
