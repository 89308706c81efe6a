// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

type identity struct {
	csi.UnimplementedIdentityServer
	Options
}

var _ csi.IdentityServer = (*identity)(nil)

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: v1alpha1.CSIDriverName, VendorVersion: i.Version}, nil
}

// GetPluginCapabilities returns no capabilities, because there is no controller service.
func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe reports whether volumes can be mounted. It ignores the daemon's state:
// restarting the plugin wouldn't repair the daemon, and volumes must be removable
// without it.
func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	err := i.Volumes.Ready()
	if err != nil {
		i.Log.Error("Not ready", "error", err)
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(err == nil)}, nil
}
