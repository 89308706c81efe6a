// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package driver serves CSI's identity and node services: it turns requests
// into volumes of maps.
package driver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
)

// Programs are the programs loaded on this node, in the daemon.
type Programs interface {
	// Find returns the programs that the query means, newest first, as they are
	// now or were at the time since or later.
	Find(ctx context.Context, query program.Query, since time.Time) ([]program.Program, error)
	// Maps picks the wanted maps, or all where none are named.
	Maps(programs []program.Program, wanted []string) ([]maps.Map, error)
	// Loaded returns the ids of the maps of all programs.
	Loaded() (map[ebpf.MapID]bool, error)
}

// Volumes are the volumes mounted on this node.
type Volumes interface {
	Ready() error
	List() ([]maps.Volume, error)
	Complete(target string, names []string, access maps.Access) (bool, error)
	Shows(target string, maps []maps.Map, access maps.Access) (bool, error)
	Pins(target string) ([]maps.Pin, error)
	Publish(volume maps.Volume, maps []maps.Map, access maps.Access) error
	Unpublish(target string) error
}

// Options of a driver. All are needed.
type Options struct {
	// NodeName is the Kubernetes name of this node.
	NodeName string
	// Version of the plugin, as GetPluginInfo tells.
	Version  string
	Programs Programs
	Volumes  Volumes
	Policy   access.Policy
	// Denied is told of each publication that the policy refused.
	Denied func()
	Log    *slog.Logger
}

// Driver serves CSI.
type Driver struct {
	identity *identity
	node     *node
}

// New returns a driver.
func New(options Options) *Driver {
	return &Driver{identity: &identity{Options: options}, node: newNode(options)}
}

// Register adds the driver's services to server.
func (d *Driver) Register(server *grpc.Server) {
	csi.RegisterIdentityServer(server, d.identity)
	csi.RegisterNodeServer(server, d.node)
}

// statusCodes is what errors of the parts mean to the kubelet, which retries
// them all. The first that is in the chain counts.
var statusCodes = []struct {
	err  error
	code codes.Code
}{
	{program.ErrNotFound, codes.NotFound},
	{program.ErrAmbiguous, codes.FailedPrecondition},
	{program.ErrDaemon, codes.Unavailable},
	{maps.ErrPath, codes.InvalidArgument},
	{access.ErrDenied, codes.PermissionDenied},
}

// statusOf gives err its code, if it has none.
func statusOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, known := range statusCodes {
		if errors.Is(err, known.err) {
			return status.Error(known.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}
