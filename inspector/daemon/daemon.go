// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package daemon asks the node's bpfman daemon which programs it loaded, and for which
// objects.
package daemon

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Daemon is the daemon on this node.
type Daemon struct {
	conn   *grpc.ClientConn
	client gobpfman.BpfmanClient
	// name is which daemon answered, or "".
	name string
}

// New returns the daemon that serves socket. It connects on the first call.
func New(socket string) (*Daemon, error) {
	conn, err := bpfman.Dial(socket)
	if err != nil {
		return nil, err
	}
	return &Daemon{conn: conn, client: gobpfman.NewBpfmanClient(conn)}, nil
}

// Close ends the connection.
func (d *Daemon) Close() error { return d.conn.Close() }

// Answer is what the daemon says about itself and its programs.
type Answer struct {
	// Name is which daemon it is.
	Name string
	// Owners are the programs that the daemon loaded, with the objects that they were
	// loaded for, or nil if there is no object.
	Owners map[uint32]*v1alpha1.BpfNodeOwner
}

// Ask asks the daemon, which serves one call at a time, and loading can take minutes. It asks for the name once, because the
// daemon logs the question as an error, and again after a failure. A daemon that isn't recognized has owners, and no name.
// There is one call of Ask at a time.
func (d *Daemon) Ask(ctx context.Context) (Answer, error) {
	owners, err := d.owners(ctx)
	if err != nil {
		d.name = ""
		return Answer{}, err
	}
	if d.name == "" {
		name, _ := bpfman.Recognize(ctx, d.client)
		d.name = string(name)
	}
	return Answer{d.name, owners}, nil
}

func (d *Daemon) owners(ctx context.Context) (map[uint32]*v1alpha1.BpfNodeOwner, error) {
	onlyBpfman := true
	response, err := d.client.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &onlyBpfman})
	if err != nil {
		return nil, fmt.Errorf("list the programs of the bpfman daemon: %s: %w", status.Convert(err).Message(), err)
	}
	owners := make(map[uint32]*v1alpha1.BpfNodeOwner, len(response.GetResults()))
	for _, result := range response.GetResults() {
		owners[result.GetKernelInfo().GetId()] = owner(result.GetInfo().GetMetadata())
	}
	return owners, nil
}

func owner(metadata map[string]string) *v1alpha1.BpfNodeOwner {
	kind, name := metadata[v1alpha1.MetadataKind], metadata[v1alpha1.MetadataProgramName]
	if kind == "" || name == "" {
		return nil
	}
	return &v1alpha1.BpfNodeOwner{Kind: kind, Namespace: metadata[v1alpha1.MetadataNamespace], Name: name}
}
