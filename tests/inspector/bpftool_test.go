// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/inspector/kernel"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// The compared parts of bpftool's output.
type (
	toolProgram struct {
		ID   uint32   `json:"id"`
		Type string   `json:"type"`
		Name string   `json:"name"`
		Tag  string   `json:"tag"`
		Maps []uint32 `json:"map_ids"`
	}
	toolMap struct {
		ID         uint32 `json:"id"`
		Type       string `json:"type"`
		Name       string `json:"name"`
		KeySize    uint32 `json:"bytes_key"`
		ValueSize  uint32 `json:"bytes_value"`
		MaxEntries uint32 `json:"max_entries"`
	}
	toolLink struct {
		ID         uint32 `json:"id"`
		Type       any    `json:"type"`
		Program    uint32 `json:"prog_id"`
		Tracepoint string `json:"tp_name"`
		Cgroup     uint64 `json:"cgroup_id"`
		NetNS      uint64 `json:"netns_ino"`
		Target     uint32 `json:"target_obj_id"`
		// AttachType is a name, or a number if this bpftool has no name for it.
		AttachType any `json:"attach_type"`
	}
	toolNetwork struct {
		XDP []struct {
			Interface string `json:"devname"`
			Mode      string `json:"mode"`
			ID        uint32 `json:"id"`
			Multi     []struct {
				Mode string `json:"mode"`
				ID   uint32 `json:"id"`
			} `json:"multi_attachments"`
		} `json:"xdp"`
		TC []struct {
			Interface string `json:"devname"`
			Kind      string `json:"kind"`
			ID        uint32 `json:"id"`
		} `json:"tc"`
	}
	toolCgroup struct {
		Path     string `json:"cgroup"`
		Programs []struct {
			ID         uint32 `json:"id"`
			AttachType string `json:"attach_type"`
		} `json:"programs"`
	}
)

// ask runs bpftool, and decodes its output.
func ask[E any](t *testing.T, place *daemontest.Place, args ...string) E {
	t.Helper()
	out, err := run(t, place, "bpftool", append([]string{"-j"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var answer E
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("bpftool %s: %v in %s", strings.Join(args, " "), err, out)
	}
	return answer
}

// TestBpftool compares the inspector's results with bpftool's: all programs, links, and maps of this kernel,
// and what is attached in a network namespace and to cgroups. Other processes load and attach programs in the
// meantime, so it only compares what existed both before and after.
func TestBpftool(t *testing.T) {
	if _, err := exec.LookPath("bpftool"); err != nil {
		prerequisite.Missing(t, "run `make deps` first", prerequisite.Bpftool)
	}
	makeCgroup(t)
	at := place(t)
	for _, what := range slices.Sorted(maps.Keys(holds)) {
		if what == "many" || what == "xdp link" {
			continue
		}
		if _, refusal := try(t, at, what); refusal != "" {
			t.Logf("without %s: %s", what, refusal)
		}
	}
	for _, command := range slices.Concat(legacy["pin for xdp"].attach, legacy["pin for tc"].attach) {
		if _, err := run(t, at, command[0], command[1:]...); err != nil {
			t.Logf("without %v", err)
		}
	}

	n := inspect(t)
	before := n.look(true)
	programs, maps, links := ask[[]toolProgram](t, at, "prog"), ask[[]toolMap](t, at, "map"), ask[[]toolLink](t, at, "link")
	network, groups := ask[[]toolNetwork](t, at, "net"), ask[[]toolCgroup](t, at, "cgroup", "tree")
	after := n.look(true)
	comparePrograms(t, before, after, programs)
	compareMaps(t, before, after, maps)
	compareLinks(t, after, n.inventory.Facts().Links, links)
	compareNetwork(t, before, after, namespaceOf(t, at), network)
	compareCgroups(t, after, groups)
	t.Logf("%d programs, %d maps, %d links, %d at interfaces, %d cgroups with programs", len(programs), len(maps), len(links), len(network[0].XDP)+len(network[0].TC), len(groups))
}

// both reports what only one of the two has. It ignores what appeared or disappeared in the meantime.
func both[E any](t *testing.T, of string, before, after, tool map[uint32]E) {
	t.Helper()
	for id, is := range after {
		was, stayed := before[id]
		if !stayed {
			continue
		}
		if seen, ok := tool[id]; !ok || fmt.Sprint(seen) != fmt.Sprint(is) {
			t.Errorf("%s %d is %v, before %v; bpftool says %v (%v)", of, id, is, was, seen, ok)
		}
	}
	for id, seen := range tool {
		_, first := before[id]
		_, last := after[id]
		if !first && !last {
			t.Errorf("%s %d, which bpftool says is %v, isn't found", of, id, seen)
		}
	}
}

func comparePrograms(t *testing.T, before, after *v1alpha1.BpfNodeStatus, tool []toolProgram) {
	t.Helper()
	ours := func(status *v1alpha1.BpfNodeStatus) map[uint32]toolProgram {
		found := map[uint32]toolProgram{}
		for _, p := range status.Programs {
			found[p.ID] = toolProgram{p.ID, p.Type, p.Name, p.Tag, p.MapIDs}
		}
		return found
	}
	theirs := map[uint32]toolProgram{}
	for _, p := range tool {
		slices.Sort(p.Maps)
		p.Maps = slices.Compact(p.Maps)
		theirs[p.ID] = p
	}
	both(t, "program", ours(before), ours(after), theirs)
}

func compareMaps(t *testing.T, before, after *v1alpha1.BpfNodeStatus, tool []toolMap) {
	t.Helper()
	ours := func(status *v1alpha1.BpfNodeStatus) map[uint32]toolMap {
		found := map[uint32]toolMap{}
		for _, m := range status.Maps {
			found[m.ID] = toolMap{m.ID, m.Type, m.Name, m.KeySize, m.ValueSize, m.MaxEntries}
		}
		return found
	}
	theirs := map[uint32]toolMap{}
	for _, m := range tool {
		theirs[m.ID] = m
	}
	both(t, "map", ours(before), ours(after), theirs)
}

// compareLinks compares what this bpftool reports for each type of link.
func compareLinks(t *testing.T, status *v1alpha1.BpfNodeStatus, links []kernel.Link, tool []toolLink) {
	t.Helper()
	byID := map[uint32]kernel.Link{}
	for _, l := range links {
		byID[l.ID] = l
	}
	points := map[uint32]bool{}
	for _, p := range status.Programs {
		for _, point := range p.AttachPoints {
			points[point.LinkID] = true
		}
	}
	seen := map[uint32]bool{}
	for _, theirs := range tool {
		seen[theirs.ID] = true
		ours, ok := byID[theirs.ID]
		if !ok {
			continue // it can have disappeared; one of the programs is compared instead
		}
		if ours.Program != theirs.Program {
			t.Errorf("link %d is of program %d; bpftool says %d", ours.ID, ours.Program, theirs.Program)
		}
		if theirs.Tracepoint != "" && ours.Target != theirs.Tracepoint || theirs.Cgroup != ours.Cgroup || theirs.NetNS != ours.NetNS {
			t.Errorf("link %d is %+v; bpftool says %+v", ours.ID, ours, theirs)
		}
		if word, ok := theirs.AttachType.(string); ok && attachWord(word) != ours.Type && ours.Type != kernel.Freplace {
			t.Errorf("link %d is attached as %s; bpftool says %s", ours.ID, ours.Type, word)
		}
		if ours.Type == kernel.Freplace && ours.TargetProgram != theirs.Target {
			t.Errorf("link %d replaces a function of %d; bpftool says %d", ours.ID, ours.TargetProgram, theirs.Target)
		}
		// The interface of another test can have been deleted. The link then only exists for its holders.
		detached := ours.Interface == 0 && (ours.Type == "xdp" || strings.HasPrefix(ours.Type, "tcx/"))
		if !points[ours.ID] && !detached {
			t.Errorf("link %d, %+v, is no attach point", ours.ID, ours)
		}
	}
	for _, l := range links {
		if l.Program == 0 {
			continue
		}
		if !seen[l.ID] && find(status, l.Program) != nil && len(tool) > 0 && l.ID < tool[len(tool)-1].ID {
			t.Errorf("link %d, %+v, isn't known to bpftool", l.ID, l)
		}
	}
}

// attachWord returns the API's name for one of bpftool's.
func attachWord(word string) string {
	words := map[string]string{"trace_fentry": "fentry", "trace_fexit": "fexit", "modify_return": "fmod_ret", "lsm_mac": "lsm", "trace_iter": "iter"}
	if ours, ok := words[word]; ok {
		return ours
	}
	return word
}

// compareNetwork compares XDP and TC in one network namespace that only this test uses.
func compareNetwork(t *testing.T, before, after *v1alpha1.BpfNodeStatus, netns string, tool []toolNetwork) {
	t.Helper()
	ours := func(status *v1alpha1.BpfNodeStatus) []string {
		var found []string
		for _, p := range status.Programs {
			for _, point := range p.AttachPoints {
				if point.NetNs == netns && (point.Type == "xdp" || strings.HasPrefix(point.Type, "tc/")) {
					found = append(found, fmt.Sprint(p.ID, point.Interface, strings.TrimPrefix(point.Type, "tc/"), point.Mode))
				}
			}
		}
		slices.Sort(found)
		return found
	}
	var theirs []string
	modes := map[string]string{"driver": "native", "generic": "generic", "offload": "offloaded"}
	for _, at := range tool {
		for _, xdp := range at.XDP {
			if xdp.ID != 0 {
				theirs = append(theirs, fmt.Sprint(xdp.ID, xdp.Interface, "xdp", modes[xdp.Mode]))
			}
			for _, one := range xdp.Multi {
				theirs = append(theirs, fmt.Sprint(one.ID, xdp.Interface, "xdp", modes[one.Mode]))
			}
		}
		for _, tc := range at.TC {
			theirs = append(theirs, fmt.Sprint(tc.ID, tc.Interface, strings.TrimPrefix(tc.Kind, "clsact/"), ""))
		}
	}
	slices.Sort(theirs)
	if !slices.Equal(ours(before), theirs) || !slices.Equal(ours(after), theirs) {
		t.Errorf("at interfaces are %q, before %q; bpftool says %q", ours(after), ours(before), theirs)
	}
}

func compareCgroups(t *testing.T, status *v1alpha1.BpfNodeStatus, tool []toolCgroup) {
	t.Helper()
	for _, group := range tool {
		for _, program := range group.Programs {
			p := find(status, program.ID)
			if p == nil {
				continue // removed in the meantime
			}
			if !slices.ContainsFunc(p.AttachPoints, func(point v1alpha1.BpfNodeAttachPoint) bool {
				return point.Type == program.AttachType && strings.HasSuffix(group.Path, point.Target)
			}) {
				t.Errorf("program %d is at %+v; bpftool says %s of %s", program.ID, p.AttachPoints, program.AttachType, group.Path)
			}
		}
	}
}

// namespaceOf returns the inode number of the place's network namespace.
func namespaceOf(t *testing.T, at *daemontest.Place) string {
	t.Helper()
	out, err := run(t, at, "stat", "-Lc", "%i", "/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
