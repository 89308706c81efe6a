// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/kubelet"
	"github.com/bpfman/bpfman-operator/internal/printable"
)

// Status returns everything that was found, without conflicts and conditions.
func Status(facts *Facts) *v1alpha1.BpfNodeStatus {
	attached := attachPoints(facts)
	held := holders(facts)
	bpfman := loadedByBpfman(facts)
	status := &v1alpha1.BpfNodeStatus{
		KernelVersion: facts.KernelVersion, BootID: facts.BootID, Daemon: facts.Daemon,
		ProgramCount: count(facts.Programs), MapCount: count(facts.Maps), LinkCount: count(facts.Links),
	}
	for _, program := range facts.Programs {
		entry := v1alpha1.BpfNodeProgram{
			ID: program.ID, Name: printable.Text(program.Name), Type: program.Type, Tag: program.Tag, LoadedByUID: program.UID,
			LoadedAt: loadedAt(facts.Boot, program.Loaded), Bpfman: bpfman[program.ID], Owner: facts.Owners[program.ID],
			AttachPoints: attached[program.ID], Holders: held[program.ID], MapIDs: program.Maps,
		}
		if entry.Bpfman {
			status.BpfmanCount++
		} else {
			status.OtherCount++
		}
		status.Programs = append(status.Programs, entry)
	}
	used := map[uint32]bool{}
	for _, program := range facts.Programs {
		for _, id := range program.Maps {
			used[id] = true
		}
	}
	pins, mounted := map[uint32][]string{}, map[uint32]bool{}
	for _, pin := range facts.Pins {
		if id := pin.Behind.Map; id != 0 {
			pins[id] = append(pins[id], printable.Text(pin.Path))
			mounted[id] = mounted[id] || kubelet.PodOf(pin.Path) != ""
		}
	}
	for _, m := range facts.Maps {
		slices.Sort(pins[m.ID])
		if mounted[m.ID] && !used[m.ID] {
			status.StaleMapCount++
		}
		status.Maps = append(status.Maps, v1alpha1.BpfNodeMap{
			ID: m.ID, Name: printable.Text(m.Name), Type: m.Type, KeySize: m.KeySize, ValueSize: m.ValueSize, MaxEntries: m.MaxEntries,
			MemoryBytes: int64(m.Memory), Pins: pins[m.ID], //nolint:gosec // the kernel's memory fits
		})
	}
	return status
}

func count[E any](of []E) int32 { return int32(len(of)) } //nolint:gosec // the kernel has fewer ids

// loadedAt is rounded to seconds, like all times in the API.
func loadedAt(boot time.Time, loaded time.Duration) *metav1.Time {
	if boot.IsZero() || loaded == 0 {
		return nil
	}
	at := metav1.NewTime(boot.Add(loaded).Truncate(time.Second).UTC())
	return &at
}

// bpfmanPins is the directory where the bpfman daemon pins objects.
const bpfmanPins = "/run/bpfman/fs/"

// loadedByBpfman returns the programs that bpfman loaded. These are the programs that
// the daemon lists, and its dispatchers, which it doesn't list. Dispatchers are pinned,
// directly or through their links, or one of the daemon's programs replaces a function
// of them.
func loadedByBpfman(facts *Facts) map[uint32]bool {
	bpfman := map[uint32]bool{}
	for id := range facts.Owners {
		bpfman[id] = true
	}
	dispatchers := map[uint32]bool{}
	for _, program := range facts.Programs {
		dispatchers[program.ID] = v1alpha1.IsDispatcher(program.Name)
	}
	for _, l := range facts.Links {
		if l.Type == kernel.Freplace && dispatchers[l.TargetProgram] && bpfman[l.Program] {
			bpfman[l.TargetProgram] = true
		}
	}
	ofLink := programsOfLinks(facts)
	for _, pin := range facts.Pins {
		if pin.Place.Container != "" || !strings.HasPrefix(pin.Path, bpfmanPins) {
			continue
		}
		if program := cmp.Or(ofLink[pin.Behind.Link], pin.Behind.Program); dispatchers[program] {
			bpfman[program] = true
		}
	}
	return bpfman
}

func programsOfLinks(facts *Facts) map[uint32]uint32 {
	programs := make(map[uint32]uint32, len(facts.Links))
	for _, l := range facts.Links {
		programs[l.ID] = l.Program
	}
	return programs
}

// Processes returns the processes that hold a program, or held it last, by program. They
// become the Last field of the next facts.
func Processes(status *v1alpha1.BpfNodeStatus) map[uint32][]v1alpha1.BpfNodeHolder {
	last := map[uint32][]v1alpha1.BpfNodeHolder{}
	for _, program := range status.Programs {
		for _, holder := range program.Holders {
			if holder.PID != 0 {
				last[program.ID] = append(last[program.ID], holder)
			}
		}
	}
	return last
}

// sorted sorts by a key that is different for each element.
func sorted[E any](list []E, key func(E) []string) []E {
	slices.SortFunc(list, func(a, b E) int { return slices.Compare(key(a), key(b)) })
	return list
}
