// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/conflict"
	"github.com/bpfman/bpfman-operator/inspector/inventory"
	"github.com/bpfman/bpfman-operator/inspector/report"
)

// TracepointPlaces is the number of programs that the kernel runs at one tracepoint: BPF_TRACE_MAX_PROGS.
const TracepointPlaces = 64

// Places describes which programs are attached to a tracepoint.
type Places struct {
	// Taken is the number of attached programs.
	Taken int
	// Holders are the programs' names and holders, the most frequent first.
	Holders []string
}

// Full reports whether the kernel accepts no more programs.
func (p Places) Full() bool { return p.Taken >= TracepointPlaces }

func (p Places) String() string {
	return fmt.Sprintf("%d of %d places are taken, by %s", p.Taken, TracepointPlaces, strings.Join(p.Holders, ", by "))
}

// holderOf returns the holder of a program, with the id of a running process.
func holderOf(program *v1alpha1.BpfNodeProgram) string {
	who := cmp.Or(conflict.Holder(program), "a process that isn't seen from here")
	for _, h := range program.Holders {
		if h.PID != 0 && !h.Gone {
			return fmt.Sprintf("%s (%d)", who, h.PID)
		}
	}
	return who
}

// PlacesAt returns the programs at a tracepoint, such as syscalls/sys_enter_kill. It includes the programs of the
// whole machine, but only the processes that are visible to this one, without this one.
func PlacesAt(tracepoint string) (Places, error) {
	found, err := inventory.New("/proc")
	if err != nil {
		return Places{}, fmt.Errorf("look for programs: %w", err)
	}
	if _, err := found.Update(inventory.Scope{All: true}, time.Now()); err != nil {
		return Places{}, fmt.Errorf("look for programs: %w", err)
	}
	_, event, _ := strings.Cut(tracepoint, "/")
	places, held := Places{}, map[string]int{}
	for _, program := range report.Status(found.Facts()).Programs {
		for _, point := range program.AttachPoints {
			// The group is only known if tracefs is mounted.
			if point.Type != "tracepoint" || point.Target != tracepoint && point.Target != event {
				continue
			}
			places.Taken++
			held[program.Name+" held by "+holderOf(&program)]++
		}
	}
	most := func(a, b string) int { return cmp.Or(cmp.Compare(held[b], held[a]), strings.Compare(a, b)) }
	for _, who := range slices.SortedFunc(maps.Keys(held), most) {
		places.Holders = append(places.Holders, fmt.Sprintf("%d %s", held[who], who))
	}
	return places, nil
}

// BootID identifies the boot of the kernel that this process runs on.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the id of the boot: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
