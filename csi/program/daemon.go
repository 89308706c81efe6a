// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/maps"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// ErrDaemon is in the chain when the daemon doesn't answer, or not with what
// can be used.
var ErrDaemon = errors.New("bpfman daemon failed")

const (
	// listTimeout bounds the wait for a daemon that serves one call at a time. After a
	// node's start it loads programs for many seconds, and a call that fails then has the
	// kubelet retry ever more rarely. The kubelet itself waits 2 minutes.
	listTimeout = 20 * time.Second
	// connectTimeout is that of one attempt to connect.
	connectTimeout = 5 * time.Second
	// maxReconnectDelay is how late a daemon that returns may be noticed.
	maxReconnectDelay = time.Second
	maxResponseBytes  = 16 << 20
)

// Daemon is the bpfman daemon of this node.
type Daemon struct {
	connection *grpc.ClientConn
	client     gobpfman.BpfmanClient
	mapsRoot   string
	listing    listing
}

// NewDaemon returns the daemon that serves socket and pins maps below mapsRoot.
// It connects when first asked.
func NewDaemon(socket, mapsRoot string) (*Daemon, error) {
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = maxReconnectDelay/10, maxReconnectDelay
	connection, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)))
	if err != nil {
		return nil, fmt.Errorf("bpfman daemon at %s: %w", socket, err)
	}
	daemon := &Daemon{connection: connection, client: gobpfman.NewBpfmanClient(connection), mapsRoot: mapsRoot}
	daemon.listing.ask = daemon.list
	return daemon, nil
}

// Close ends the connection.
func (d *Daemon) Close() error { return d.connection.Close() }

// Find returns the programs that the query means, newest first, as the daemon
// lists them now or did at the time since or later, if nothing changed since.
func (d *Daemon) Find(ctx context.Context, query Query, since time.Time) ([]Program, error) {
	programs, err := d.listing.since(ctx, since)
	if err != nil {
		return nil, fmt.Errorf("%w to list its programs: %s", ErrDaemon, status.Convert(err).Message())
	}
	return Select(programs, query)
}

// Changed tells that programs may have come or gone.
func (d *Daemon) Changed() { d.listing.outdate() }

// list asks the daemon for the programs that have names.
func (d *Daemon) list(ctx context.Context) ([]Program, error) {
	onlyBpfman := true
	response, err := d.client.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &onlyBpfman})
	if err != nil {
		return nil, err
	}
	programs := make([]Program, 0, len(response.GetResults()))
	for _, result := range response.GetResults() {
		metadata := result.GetInfo().GetMetadata()
		if metadata[v1alpha1.MetadataProgramName] == "" {
			continue
		}
		programs = append(programs, Program{
			ID:        result.GetKernelInfo().GetId(),
			Name:      metadata[v1alpha1.MetadataProgramName],
			Namespace: metadata[v1alpha1.MetadataNamespace],
			Kind:      metadata[v1alpha1.MetadataKind],
			Pins:      result.GetInfo().GetMapPinPath(),
		})
	}
	return programs, nil
}

// Loaded returns the ids of the maps of all programs that are loaded. It doesn't
// need the daemon.
func (d *Daemon) Loaded() (map[ebpf.MapID]bool, error) { return maps.Loaded(d.mapsRoot) }

// Maps picks the wanted maps, or all where none are named, of the programs of
// one user object, newest first.
func (d *Daemon) Maps(programs []Program, wanted []string) ([]maps.Map, error) {
	pinned := make([]Pinned, 0, len(programs))
	for _, program := range programs {
		var names []string
		if program.Pins != "" {
			var err error
			names, err = maps.Names(d.mapsRoot, program.Pins)
			if err != nil && !errors.Is(err, os.ErrNotExist) { // unloaded meanwhile
				return nil, fmt.Errorf("%w to show the maps of program %q, kernel id %d: %w", ErrDaemon, program.Name, program.ID, err)
			}
		}
		pinned = append(pinned, Pinned{Program: program, Maps: names})
	}
	return Choose(pinned, wanted)
}
