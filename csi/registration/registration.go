// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package registration makes the plugin known to the kubelet, by the kubelet's plugin
// registration v1: instead of node-driver-registrar, or in its place when it is lost.
package registration

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"

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
	// Directory is the kubelet's, in which it looks for plugins' sockets.
	Directory string
	Log       *slog.Logger

	// asked is set when a kubelet has found the plugin's own socket, registered while
	// the plugin is known to be registered.
	asked, registered atomic.Bool
}

// SocketPath is where the kubelet looks for the plugin.
func (p *Plugin) SocketPath() string {
	return filepath.Join(p.Directory, p.Name+"-reg.sock")
}

// Registered reports whether a registration socket was served when it was last looked
// at, and the kubelet has found it if it is the plugin's own.
func (p *Plugin) Registered() bool { return p.registered.Load() }

// register adds the registration service to server.
func (p *Plugin) register(server *grpc.Server) {
	registerapi.RegisterRegistrationServer(server, p)
}

// GetInfo tells the kubelet about the plugin.
func (p *Plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	p.asked.Store(true)
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: p.Name, Endpoint: p.Endpoint, SupportedVersions: []string{csiVersion},
	}, nil
}

// NotifyRegistrationStatus takes the kubelet's verdict. The kubelet itself tries
// again after a failure.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		p.Log.Info("Registered with the kubelet", "endpoint", p.Endpoint)
	} else {
		p.Log.Error("The kubelet rejected the plugin's registration", "endpoint", p.Endpoint, "error", status.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
