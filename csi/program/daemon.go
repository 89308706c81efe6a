// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/globals"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// ErrDaemon is in the error chain if the daemon doesn't respond, or its response can't
// be used.
var ErrDaemon = errors.New("bpfman daemon failed")

const (
	// listTimeout bounds the wait for the daemon, which serves one call at a time. After
	// a node starts, it loads programs for many seconds. If a call fails then, the
	// kubelet retries with increasing delays. The kubelet itself waits for 2 minutes.
	listTimeout = 20 * time.Second
)

// Pins are the maps of the node's programs, as the kernel shows them.
type Pins interface {
	// Pinned returns the maps that the daemon has pinned in a directory.
	Pinned(directory string) ([]maps.Map, error)
	// Globals returns the maps with the global variables of a program.
	Globals(program uint32) ([]maps.Map, error)
	// Loaded returns the ids of the maps of all loaded programs.
	Loaded() (map[ebpf.MapID]bool, error)
}

// kernel are the pins below a directory.
type kernel struct{ root string }

func (k kernel) Pinned(directory string) ([]maps.Map, error) { return maps.Pinned(k.root, directory) }
func (kernel) Globals(program uint32) ([]maps.Map, error)    { return maps.Globals(program) }
func (k kernel) Loaded() (map[ebpf.MapID]bool, error)        { return maps.Loaded(k.root) }

// Daemon is the bpfman daemon of this node.
type Daemon struct {
	connection *grpc.ClientConn
	client     gobpfman.BpfmanClient
	pins       Pins
	listing    listing
	loaded     loadedMaps
}

// NewDaemon returns the daemon that serves socket and pins maps below mapsRoot. It
// connects on the first call.
func NewDaemon(socket, mapsRoot string) (*Daemon, error) {
	connection, err := bpfman.Dial(socket)
	if err != nil {
		return nil, err
	}
	daemon := New(gobpfman.NewBpfmanClient(connection), kernel{mapsRoot})
	daemon.connection = connection
	return daemon, nil
}

// New returns the daemon that a client calls, and whose maps are these pins.
func New(client gobpfman.BpfmanClient, pins Pins) *Daemon {
	daemon := &Daemon{client: client, pins: pins}
	daemon.listing.ask = daemon.list
	return daemon
}

// Close ends the connection of NewDaemon.
func (d *Daemon) Close() error { return d.connection.Close() }

// Find returns the programs that match the query, newest first. It uses a list from the
// daemon that is at least as recent as since and the last change.
func (d *Daemon) Find(ctx context.Context, query Query, since time.Time) ([]Program, error) {
	programs, err := d.listing.since(ctx, query.Name, since)
	if err != nil {
		return nil, fmt.Errorf("%w to list its programs: %s", ErrDaemon, status.Convert(err).Message())
	}
	return Select(programs, query)
}

// Changed says that programs can have been loaded or unloaded.
func (d *Daemon) Changed() { d.listing.outdate() }

// list returns the daemon's programs of user objects with a name. The daemon selects them,
// because its list of all programs can be large.
func (d *Daemon) list(ctx context.Context, name string) ([]Program, error) {
	response, err := d.client.List(ctx, &gobpfman.ListRequest{
		BpfmanProgramsOnly: new(true), MatchMetadata: map[string]string{v1alpha1.MetadataProgramName: name},
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // Find adds context
	}
	programs := make([]Program, 0, len(response.GetResults()))
	for _, result := range response.GetResults() {
		metadata := result.GetInfo().GetMetadata()
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

// Loaded returns the ids of the maps of all loaded programs, as they were at the given time or later. It works without the
// daemon. Callers must not change the result.
func (d *Daemon) Loaded(since time.Time) (map[ebpf.MapID]bool, error) {
	return d.loaded.since(since, d.pins.Loaded)
}

// Maps returns the wanted maps of the programs of one user object. If wanted is empty, it
// returns all maps except those of global variables. The programs are sorted, newest first.
func (d *Daemon) Maps(programs []Program, wanted []string) ([]maps.Map, error) {
	pinned := make([]Pinned, 0, len(programs))
	for _, program := range programs {
		var found []maps.Map
		if program.Pins != "" {
			var err error
			found, err = d.pins.Pinned(program.Pins)
			if err != nil && !errors.Is(err, os.ErrNotExist) { // unloaded in the meantime
				return nil, fmt.Errorf("%w to show the maps of program %q, kernel id %d: %w", ErrDaemon, program.Name, program.ID, err)
			}
		}
		if slices.ContainsFunc(wanted, globals.IsSection) {
			variables, err := d.pins.Globals(program.ID)
			if err != nil {
				return nil, fmt.Errorf("find the global variables of program %q, kernel id %d: %w", program.Name, program.ID, err)
			}
			found = append(found, variables...)
		}
		pinned = append(pinned, Pinned{Program: program, Maps: found})
	}
	return Choose(pinned, wanted)
}
