// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package driver implements CSI's identity and node services. It converts requests to
// volumes of maps.
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

// Programs provides the programs that the daemon has loaded on this node.
type Programs interface {
	// Find returns the programs that match the query, newest first. The list is at least
	// as recent as since.
	Find(ctx context.Context, query program.Query, since time.Time) ([]program.Program, error)
	// Maps returns the wanted maps, or all maps if wanted is empty.
	Maps(programs []program.Program, wanted []string) ([]maps.Map, error)
	// Loaded returns the ids of the maps of all loaded programs, as they were at the given time or later. The driver doesn't
	// change the result.
	Loaded(since time.Time) (map[ebpf.MapID]bool, error)
}

// Volumes are the volumes mounted on this node.
type Volumes interface {
	Ready() error
	List() ([]maps.Volume, error)
	Read(target string) (maps.State, error)
	Publish(volume maps.Volume, maps []maps.Map, access maps.Access) error
	// Protect makes the volume on target read-only.
	Protect(target string) error
	Unpublish(target string) error
}

// Options are the options of a driver. All are required.
type Options struct {
	// NodeName is the name of the Node object.
	NodeName string
	// Version is the version of the plugin, for GetPluginInfo.
	Version  string
	Programs Programs
	Volumes  Volumes
	Policy   access.Policy
	// Denied is called for each publication that the policy denies.
	Denied func()
	Log    *slog.Logger
}

// Driver implements the CSI services.
type Driver struct {
	identity *identity
	node     *node
}

// New returns a driver.
func New(options Options) *Driver {
	return &Driver{identity: &identity{Options: options}, node: newNode(options)}
}

// Register adds the driver's services to server.
func (d *Driver) Register(server grpc.ServiceRegistrar) {
	csi.RegisterIdentityServer(server, d.identity)
	csi.RegisterNodeServer(server, d.node)
}

// RegisterIdentity adds only the identity service to server, for clients that need to know no
// more than what the plugin is.
func (d *Driver) RegisterIdentity(server *grpc.Server) {
	csi.RegisterIdentityServer(server, d.identity)
}

// statusCodes maps errors to gRPC codes. The kubelet retries after all of them. The
// first error that is in the chain decides.
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

// statusOf converts err to a gRPC status, unless it is one.
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
