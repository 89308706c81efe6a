// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"fmt"
	"path"
	"slices"

	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Program is a program in the daemon's list.
type Program struct {
	ID       uint32            `json:"id"`
	Function string            `json:"function"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Links    []uint32          `json:"links,omitempty"`
	MapIDs   []uint32          `json:"mapIDs,omitempty"`
	// MapsOf is the ID in the path of the pinned maps. With the daemon in Go, the first function of a load has the maps.
	MapsOf string `json:"mapsOf,omitempty"`
}

// Programs lists the programs that the daemon loaded. It asks for links that aren't in the list: the daemon in Go lists none.
func Programs(ctx context.Context, client gobpfman.BpfmanClient) ([]Program, error) {
	only := true
	list, err := client.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &only})
	if err != nil {
		return nil, fmt.Errorf("list the daemon's programs: %w", err)
	}
	programs := make([]Program, 0, len(list.GetResults()))
	for _, r := range list.GetResults() {
		p := Program{
			ID: r.GetKernelInfo().GetId(), Function: r.GetInfo().GetName(), Metadata: r.GetInfo().GetMetadata(),
			Links: r.GetInfo().GetLinks(), MapIDs: r.GetKernelInfo().GetMapIds(),
			MapsOf: path.Base(r.GetInfo().GetMapPinPath()),
		}
		if len(p.Links) == 0 {
			found, err := client.Get(ctx, &gobpfman.GetRequest{Id: p.ID})
			if err != nil {
				if now, listErr := client.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: &only}); listErr == nil && !lists(now, p.ID) {
					continue // it was unloaded in the meantime
				}
				return nil, fmt.Errorf("get program %d of the daemon: %w", p.ID, err)
			}
			p.Links = found.GetInfo().GetLinks()
		}
		programs = append(programs, p)
	}
	return programs, nil
}

func lists(list *gobpfman.ListResponse, id uint32) bool {
	return slices.ContainsFunc(list.GetResults(), func(r *gobpfman.ListResponse_ListResult) bool { return r.GetKernelInfo().GetId() == id })
}

// Trial is the result of trying a type of program directly with the daemon.
type Trial struct {
	// Type is the type, with the name of an application member's type, such as TCX.
	Type     string `json:"type"`
	Loaded   bool   `json:"loaded"`
	Attached bool   `json:"attached"`
	// Error is the daemon's error if the program isn't attached.
	Error string `json:"error,omitempty"`
	// Taken describes which programs are attached to a full tracepoint, as seen on the node. BootID identifies
	// the kernel.
	Taken  string `json:"taken,omitempty"`
	BootID string `json:"bootID,omitempty"`
}

// trial is a program to try.
type trial struct {
	name, image string
	load        *gobpfman.LoadInfo
	attach      *gobpfman.AttachInfo
}

const (
	trialInterface = "bpfmantrial"
	trialFunction  = "do_unlinkat"
	trialWakeUp    = "try_to_wake_up"
	trialHook      = "inode_mkdir"
	trialPriority  = 500
)

// TrialTracepoint is the tracepoint for the trial of a tracepoint program.
const TrialTracepoint = "syscalls/sys_enter_kill"

// trials returns a program of each type, from the sample images.
func trials() []trial {
	fn := func(name string) *gobpfman.ProgSpecificInfo {
		return &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FentryLoadInfo{FentryLoadInfo: &gobpfman.FentryLoadInfo{FnName: name}}}
	}
	fexit := &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FexitLoadInfo{FexitLoadInfo: &gobpfman.FexitLoadInfo{FnName: trialFunction}}}
	hook := &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_LsmLoadInfo{LsmLoadInfo: &gobpfman.LsmLoadInfo{HookName: trialHook}}}
	malloc := "malloc"
	return []trial{
		{
			"XDP", "xdp_pass", &gobpfman.LoadInfo{Name: "pass", ProgramType: gobpfman.BpfmanProgramType_XDP},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{XdpAttachInfo: &gobpfman.XDPAttachInfo{Priority: trialPriority, Iface: trialInterface}}},
		},
		{
			"TC", "tc_pass", &gobpfman.LoadInfo{Name: "pass", ProgramType: gobpfman.BpfmanProgramType_TC},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcAttachInfo{TcAttachInfo: &gobpfman.TCAttachInfo{Priority: trialPriority, Iface: trialInterface, Direction: "ingress"}}},
		},
		{
			"TCX", "tcx_test", &gobpfman.LoadInfo{Name: "tcx_pass", ProgramType: gobpfman.BpfmanProgramType_TCX},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{TcxAttachInfo: &gobpfman.TCXAttachInfo{Priority: trialPriority, Iface: trialInterface, Direction: "ingress"}}},
		},
		{
			"Fentry", "fentry", &gobpfman.LoadInfo{Name: "test_fentry", ProgramType: gobpfman.BpfmanProgramType_FENTRY, Info: fn(trialFunction)},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FentryAttachInfo{FentryAttachInfo: &gobpfman.FentryAttachInfo{}}},
		},
		{
			"Fexit", "fexit", &gobpfman.LoadInfo{Name: "test_fexit", ProgramType: gobpfman.BpfmanProgramType_FEXIT, Info: fexit},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FexitAttachInfo{FexitAttachInfo: &gobpfman.FexitAttachInfo{}}},
		},
		{
			"LSM", "lsm", &gobpfman.LoadInfo{Name: "deny_mkdir", ProgramType: gobpfman.BpfmanProgramType_LSM, Info: hook},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_LsmAttachInfo{LsmAttachInfo: &gobpfman.LsmAttachInfo{}}},
		},
		{
			"Kprobe", "kprobe", &gobpfman.LoadInfo{Name: "my_kprobe", ProgramType: gobpfman.BpfmanProgramType_KPROBE},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_KprobeAttachInfo{KprobeAttachInfo: &gobpfman.KprobeAttachInfo{FnName: trialWakeUp}}},
		},
		{
			"Tracepoint", "tracepoint", &gobpfman.LoadInfo{Name: "enter_openat", ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: TrialTracepoint}}},
		},
		{
			"Uprobe", "uprobe", &gobpfman.LoadInfo{Name: "my_uprobe", ProgramType: gobpfman.BpfmanProgramType_UPROBE},
			&gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{UprobeAttachInfo: &gobpfman.UprobeAttachInfo{FnName: &malloc, Target: "libc"}}},
		},
	}
}

// ContainerUprobe is the name of the trial of a uprobe in a container. NamespacedUprobe is that of one of a namespaced object,
// which the agent doesn't ask the daemon in Go for.
const (
	ContainerUprobe  = "Uprobe in a container"
	NamespacedUprobe = "Namespaced uprobe"
)

// Try loads and attaches a program of each type with the daemon, without the agent, and removes it. The images
// are prefix/name:latest.
func Try(ctx context.Context, client gobpfman.BpfmanClient, prefix string) ([]Trial, error) {
	if err := RemoveInterface(trialInterface); err != nil {
		return nil, err
	}
	if err := AddInterface(trialInterface); err != nil {
		return nil, err
	}
	defer func() { _ = RemoveInterface(trialInterface) }() // the next trial also removes it
	tried := trials()
	// A process of the container identifies it. The daemon's container has a libc, and the agent's has none.
	if pids, err := Processes(Daemon); err == nil && len(pids) > 0 {
		inContainer := tried[len(tried)-1]
		inContainer.name = ContainerUprobe
		malloc, pid := "malloc", int32(pids[0]) //nolint:gosec // process ids are smaller than 2^22
		inContainer.attach = &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{
			UprobeAttachInfo: &gobpfman.UprobeAttachInfo{FnName: &malloc, Target: "libc", ContainerPid: &pid},
		}}
		tried = append(tried, inContainer)
	}
	daemon, err := bpfman.Recognize(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("recognize the daemon: %w", err)
	}
	results := make([]Trial, 0, len(tried))
	for _, t := range tried {
		if t.load.GetProgramType() == gobpfman.BpfmanProgramType_LSM && daemon == bpfman.Rust {
			// It takes the type for another one, so the agent doesn't ask it.
			results = append(results, Trial{Type: t.name, Error: "it needs the daemon in Go"})
			continue
		}
		result := t.run(ctx, client, prefix)
		results = append(results, result)
		if t.name == ContainerUprobe {
			if result.Type = NamespacedUprobe; daemon == bpfman.Go {
				result.Attached, result.Error = false, "it needs the daemon in Rust"
			}
			results = append(results, result)
		}
	}
	return results, nil
}

func (t trial) run(ctx context.Context, client gobpfman.BpfmanClient, prefix string) Trial {
	result := Trial{Type: t.name}
	location, err := Stage(ctx, prefix+"/"+t.image+":latest")
	if err != nil {
		result.Error = err.Error()
		return result
	}
	loaded, err := client.Load(ctx, &gobpfman.LoadRequest{
		Bytecode: location,
		Metadata: map[string]string{"bpfman.io/ProgramName": "trial"},
		Info:     []*gobpfman.LoadInfo{t.load},
	})
	if err != nil {
		result.Error = status.Convert(err).Message()
		return result
	}
	result.Loaded = true
	id := loaded.GetPrograms()[0].GetKernelInfo().GetId()
	if _, err := client.Attach(ctx, &gobpfman.AttachRequest{Id: id, Attach: t.attach}); err != nil {
		result.Error = status.Convert(err).Message()
		t.explain(&result)
	} else {
		result.Attached = true
	}
	if _, err := client.Unload(ctx, &gobpfman.UnloadRequest{Id: id}); err != nil {
		result.Error += "; unload: " + err.Error()
	}
	return result
}

// explain adds the programs that fill a tracepoint to a failed trial, if they are known.
func (t trial) explain(result *Trial) {
	at := t.attach.GetTracepointAttachInfo().GetTracepoint()
	if at == "" {
		return
	}
	places, err := PlacesAt(at)
	if err != nil {
		result.Error += "; who is at " + at + " isn't known: " + err.Error()
	} else if places.Full() {
		result.Taken = "at tracepoint " + at + " " + places.String()
		// An unknown kernel matches no other.
		result.BootID, _ = BootID()
	}
}
