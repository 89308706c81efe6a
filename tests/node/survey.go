// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Survey is everything that bpfman has on a node at one time, according to the daemon,
// the kernel, and the node's tables.
type Survey struct {
	Programs    []Program   `json:"programs"`
	Attachments Attachments `json:"attachments"`
	Pins        []string    `json:"pins"`
	Mounts      []string    `json:"mounts"`
	Processes   []Usage     `json:"processes"`
}

// Look surveys the node.
func Look(ctx context.Context, client gobpfman.BpfmanClient) (s Survey, err error) {
	if s.Programs, err = Programs(ctx, client); err != nil {
		return s, err
	}
	ids := make([]uint32, 0, len(s.Programs))
	for _, p := range s.Programs {
		ids = append(ids, p.ID)
	}
	if s.Attachments, err = AttachmentsOf(ids); err != nil {
		return s, err
	}
	if s.Pins, err = Pins(); err != nil {
		return s, err
	}
	if s.Mounts, err = Mounts(); err != nil {
		return s, err
	}
	s.Processes, err = Usages()
	return s, err
}
