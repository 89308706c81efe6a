// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/csi/maps"
)

// The program that a volume of a pod refers to. Upstream's fault 6: it takes the first one
// with the name, from any namespace.
func TestUpstreamFault06Select(t *testing.T) {
	const team, other = "team", "other"
	loaded := func(id uint32, namespace, kind string) Program {
		return Program{ID: id, Name: "counter", Namespace: namespace, Kind: kind}
	}
	tests := map[string]struct {
		programs []Program
		kind     string
		want     []uint32
		err      error
		says     []string
	}{
		"none":                       {err: ErrNotFound, says: []string{`"counter"`, `"team"`}},
		"own namespace":              {programs: []Program{loaded(1, team, "TcxNsProgram")}, want: []uint32{1}},
		"cluster-scoped":             {programs: []Program{loaded(1, "", "TcxProgram")}, want: []uint32{1}},
		"loaded by hand":             {programs: []Program{loaded(1, "", "")}, want: []uint32{1}},
		"own before cluster-scoped":  {programs: []Program{loaded(9, "", "TcxProgram"), loaded(1, team, "TcxNsProgram")}, want: []uint32{1}},
		"another's never":            {programs: []Program{loaded(1, other, "TcxNsProgram")}, err: ErrNotFound},
		"another's beside own":       {programs: []Program{loaded(9, other, "TcxNsProgram"), loaded(1, team, "TcxNsProgram")}, want: []uint32{1}},
		"newest first":               {programs: []Program{loaded(1, team, "BpfNsApplication"), loaded(3, team, "BpfNsApplication"), loaded(2, team, "BpfNsApplication")}, want: []uint32{3, 2, 1}},
		"another name":               {programs: []Program{{ID: 1, Name: "other", Kind: "TcxProgram"}}, err: ErrNotFound},
		"two kinds":                  {programs: []Program{loaded(1, "", "XdpProgram"), loaded(2, "", "TcxProgram")}, err: ErrAmbiguous, says: []string{"TcxProgram, XdpProgram", "csi.bpfman.io/kind"}},
		"two kinds in own namespace": {programs: []Program{loaded(1, team, "XdpNsProgram"), loaded(2, team, "TcxNsProgram"), loaded(3, "", "KprobeProgram")}, err: ErrAmbiguous, says: []string{"TcxNsProgram, XdpNsProgram"}},
		"two kinds of another's":     {programs: []Program{loaded(1, other, "XdpNsProgram"), loaded(2, other, "TcxNsProgram"), loaded(3, "", "KprobeProgram")}, want: []uint32{3}},
		"kind named":                 {programs: []Program{loaded(1, "", "XdpProgram"), loaded(2, "", "TcxProgram")}, kind: "XdpProgram", want: []uint32{1}},
		"kind beats namespace":       {programs: []Program{loaded(1, "", "TcxProgram"), loaded(2, team, "TcxNsProgram")}, kind: "TcxProgram", want: []uint32{1}},
		"kind unknown":               {programs: []Program{loaded(1, "", "TcxProgram")}, kind: "XdpProgram", err: ErrNotFound, says: []string{"XdpProgram"}},
		"kind of another's":          {programs: []Program{loaded(1, other, "TcxNsProgram")}, kind: "TcxNsProgram", err: ErrNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := Select(test.programs, Query{Name: "counter", Namespace: team, Kind: test.kind})
			checkError(t, err, test.err, test.says)
			var ids []uint32
			for _, program := range found {
				ids = append(ids, program.ID)
			}
			if !slices.Equal(ids, test.want) {
				t.Errorf("programs %v, want %v", ids, test.want)
			}
			if err != nil && strings.Contains(err.Error(), other) {
				t.Errorf("tells of another namespace: %v", err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	pinned := func(pins string, names ...string) Pinned {
		program := Pinned{Program: Program{Name: "counter", Pins: pins}}
		for _, name := range names {
			program.Maps = append(program.Maps, maps.Map{Name: name, Path: pins + "/" + name})
		}
		return program
	}
	tests := map[string]struct {
		programs []Pinned
		wanted   []string
		want     []maps.Map
		err      error
		says     []string
	}{
		"one":                {programs: []Pinned{pinned("/m/1", "a", "b")}, wanted: []string{"b"}, want: []maps.Map{{Name: "b", Path: "/m/1/b"}}},
		"in order of asking": {programs: []Pinned{pinned("/m/1", "a", "b")}, wanted: []string{"b", "a"}, want: []maps.Map{{Name: "b", Path: "/m/1/b"}, {Name: "a", Path: "/m/1/a"}}},
		"all":                {programs: []Pinned{pinned("/m/1", "a", "b")}, want: []maps.Map{{Name: "a", Path: "/m/1/a"}, {Name: "b", Path: "/m/1/b"}}},
		"newest":             {programs: []Pinned{pinned("/m/2", "a"), pinned("/m/1", "a")}, wanted: []string{"a"}, want: []maps.Map{{Name: "a", Path: "/m/2/a"}}},
		"newest that has it": {programs: []Pinned{pinned("/m/3", "a"), pinned("/m/2", "a", "b"), pinned("/m/1", "b")}, want: []maps.Map{{Name: "a", Path: "/m/3/a"}, {Name: "b", Path: "/m/2/b"}}},
		"newest unloaded":    {programs: []Pinned{pinned("/m/2"), pinned("/m/1", "a")}, wanted: []string{"a"}, want: []maps.Map{{Name: "a", Path: "/m/1/a"}}},
		"unknown":            {programs: []Pinned{pinned("/m/1", "b", "a")}, wanted: []string{"a", "c"}, err: ErrNotFound, says: []string{`map "c"`, "a, b"}},
		"no maps":            {programs: []Pinned{pinned("/m/1")}, err: ErrNotFound, says: []string{`"counter"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := Choose(test.programs, test.wanted)
			checkError(t, err, test.err, test.says)
			if !slices.Equal(chosen, test.want) {
				t.Errorf("maps %v, want %v", chosen, test.want)
			}
		})
	}
}

func checkError(t *testing.T, err, want error, says []string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q doesn't say %q", err, part)
		}
	}
}
