// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/inspectors"
	"github.com/bpfman/bpfman-operator/internal/globals"
	"github.com/bpfman/bpfman-operator/internal/nearest"
)

// mapFlags are the flags of commands that query inspectors about a map, which an object or the kernel's ID specifies.
type mapFlags struct {
	live liveFlags
	id   uint32
}

func (f *mapFlags) addTo(command *cobra.Command, connect cluster.Connect) {
	f.live.addTo(command, connect, "Nodes whose maps to show. By default, all that the object selects.")
	command.Flags().Uint32Var(&f.id, "map-id", 0, "Kernel ID of the map, on the node that --node specifies.")
}

// wantedMap is a map on each of some nodes.
type wantedMap struct {
	asked []inspectors.Inspector
	// which has the arguments by which inspectors find the map, by node.
	which map[string][]string
	// again returns what which is now. It is nil if that doesn't change.
	again func(context.Context) (map[string][]string, error)
}

// wanted finds the map that the arguments and the flags specify.
func (f *mapFlags) wanted(ctx context.Context, c *cluster.Cluster, args []string) (w wantedMap, err error) {
	switch {
	case f.id != 0 && (len(args) > 0 || len(f.live.nodes) != 1):
		return w, errors.New("--map-id takes one --node, and no object")
	case f.id == 0 && len(args) == 0:
		return w, errors.New("name an object, and its map if it has several, such as tcxprogram/counter packets, or a map by --node and --map-id")
	case f.id != 0:
		w.which = map[string][]string{f.live.nodes[0]: {"--map", number(f.id)}}
	default:
		object, name := args[0], ""
		if len(args) == 2 {
			name = args[1]
		}
		w.again = func(ctx context.Context) (map[string][]string, error) { return f.ofObject(ctx, c, object, name) }
		if w.which, err = w.again(ctx); err != nil {
			return w, err
		}
	}
	w.asked, err = f.live.inspectors(ctx, c, slices.Sorted(maps.Keys(w.which))...)
	return w, err
}

// ask calls ask with the arguments for an inspector, and again if the map was replaced.
func (w wantedMap) ask(ctx context.Context, i inspectors.Inspector, ask func(which []string) error) error {
	if w.again == nil {
		return ask(w.which[i.Node])
	}
	return afterReload(ctx, w.which[i.Node], ask, func(ctx context.Context) ([]string, error) {
		now, err := w.again(ctx)
		return now[i.Node], err
	})
}

// ofObject returns the arguments that specify an object's map, by node. An empty name is that of the object's only map.
func (f *mapFlags) ofObject(ctx context.Context, c *cluster.Cluster, object, name string) (map[string][]string, error) {
	reports, err := reportsOf(ctx, c, []string{object}, f.live.nodes)
	if err != nil {
		return nil, err
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("%s isn't loaded on any of the nodes: to find out why, run kubectl bpfman why %s", object, object)
	}
	if globals.IsSection(name) {
		return sectionOf(reports, name), nil
	}
	asks := map[string]map[string][]string{} // by the name of the map
	for _, report := range reports {
		for m, path := range report.GetSpec().Maps {
			if asks[m] == nil {
				asks[m] = map[string][]string{}
			}
			asks[m][report.GetStatus().Node] = []string{"--pin", path}
		}
	}
	names := slices.Sorted(maps.Keys(asks))
	switch {
	case name == "" && len(names) == 1:
		name = names[0]
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("%s has several maps: name one of %s", object, strings.Join(names, ", "))
	}
	if asks[name] == nil {
		return nil, fmt.Errorf("%s has no map%s: it has %s, and possibly global variables, such as .bss%s",
			object, quotedName(name), cmp.Or(strings.Join(names, ", "), "none"), nearest.Question(name, slices.Values(names)))
	}
	return asks[name], nil
}

// quotedName returns the name of a map, if there is one, as a part of a sentence.
func quotedName(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

// sectionOf returns the arguments that specify a section of global variables, by node. The loader doesn't pin it, so
// the inspector finds it among the maps of the programs.
func sectionOf(reports []v1alpha1.ProgramObject, name string) map[string][]string {
	programs := map[string][]string{}
	for _, report := range reports {
		status := report.GetStatus()
		programs[status.Node] = append(programs[status.Node], strconv.FormatUint(uint64(status.ProgramID), 10))
	}
	asks := map[string][]string{}
	for node, ids := range programs {
		asks[node] = []string{"--section", name, "--programs", strings.Join(ids, ",")}
	}
	return asks
}
