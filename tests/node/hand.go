// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/bpfman/bpfman-operator/examples/counters"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// ByHand is a network program that a client other than the agent loads and attaches
// through the daemon's API.
type ByHand struct {
	// Type is XDP, TC, or TCX.
	Type      string            `json:"type"`
	Image     string            `json:"image"`
	Function  string            `json:"function"`
	Globals   map[string][]byte `json:"globals,omitempty"`
	Interface string            `json:"interface"`
	Direction string            `json:"direction,omitempty"`
	Priority  int32             `json:"priority"`
	ProceedOn []int32           `json:"proceedOn,omitempty"`
}

// Attach loads and attaches the program.
func (b ByHand) Attach(ctx context.Context, client gobpfman.BpfmanClient) (Program, error) {
	load := &gobpfman.LoadInfo{Name: b.Function}
	attach := &gobpfman.AttachInfo{}
	switch b.Type {
	case "XDP":
		load.ProgramType = gobpfman.BpfmanProgramType_XDP
		attach.Info = &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{
			Priority: b.Priority, Iface: b.Interface, ProceedOn: b.ProceedOn,
		}}
	case "TC":
		load.ProgramType = gobpfman.BpfmanProgramType_TC
		attach.Info = &gobpfman.AttachInfo_TcAttachInfo{TcAttachInfo: &gobpfman.TCAttachInfo{
			Priority: b.Priority, Iface: b.Interface, Direction: b.Direction, ProceedOn: b.ProceedOn,
		}}
	case "TCX":
		load.ProgramType = gobpfman.BpfmanProgramType_TCX
		attach.Info = &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{
			Priority: b.Priority, Iface: b.Interface, Direction: b.Direction,
		}}
	default:
		return Program{}, fmt.Errorf("programs of type %q aren't attached to interfaces", b.Type)
	}
	location, err := Stage(ctx, b.Image)
	if err != nil {
		return Program{}, err
	}
	loaded, err := client.Load(ctx, &gobpfman.LoadRequest{
		Bytecode:   location,
		GlobalData: b.Globals,
		Info:       []*gobpfman.LoadInfo{load},
	})
	if err != nil {
		return Program{}, fmt.Errorf("load %s of %s: %w", b.Function, b.Image, err)
	}
	info := loaded.GetPrograms()[0]
	program := Program{ID: info.GetKernelInfo().GetId(), Function: b.Function, MapIDs: info.GetKernelInfo().GetMapIds()}
	attached, err := client.Attach(ctx, &gobpfman.AttachRequest{Id: program.ID, Attach: attach})
	if err != nil {
		return program, fmt.Errorf("attach program %d to %s: %w", program.ID, b.Interface, err)
	}
	program.Links = []uint32{attached.GetLinkId()}
	return program, nil
}

// Count returns what a program has counted in a map that the daemon has pinned.
func Count(program, mapName string) (counters.Count, error) {
	daemons, err := Processes(Daemon)
	if err != nil {
		return counters.Count{}, err
	}
	err = fmt.Errorf("no process runs %s", Daemon)
	for _, pid := range daemons {
		pin := counters.Pin{Path: filepath.Join("/proc", strconv.Itoa(pid), "root", daemonPins, "maps", program, mapName)}
		var count counters.Count
		count, err = counters.Read(&pin)
		if err = errors.Join(err, pin.Close()); err == nil {
			return count, nil
		}
	}
	return counters.Count{}, fmt.Errorf("count of program %s: %w", program, err)
}
