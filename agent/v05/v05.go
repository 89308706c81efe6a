// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package v05 deals with what a bpfman daemon of v0.5 left on the node. That of
// v0.6 neither lists nor removes it: the programs would run, and their memory be
// taken, until the node reboots.
//
// What is v0.5's is known by its paths, and so set aside before the daemon of
// v0.6 starts and makes any of its own: into a directory of the same bpffs,
// where a pinned link goes on attaching its program. Nothing is interrupted.
// Once what replaces them is attached, the directory is removed.
//
// Paths are those of bpfman v0.5.6 (bpfman/src/lib.rs, utils.rs), seen with the
// daemon itself by make test-upstream-daemon.
package v05

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

const (
	// aside is the directory below the bpffs that v0.5's pins are moved to. A
	// bpffs takes no dots in names.
	aside = "v05"
	// links is where the daemon of v0.6 pins links; that of v0.5 has no such
	// directory.
	links = "links"
	maps  = "maps"
	xdp   = "xdp"
)

// dispatchers are the directories of the dispatchers of XDP and TC, which chain
// the programs of an interface.
var dispatchers = []string{xdp, "tc-ingress", "tc-egress"}

var (
	program = regexp.MustCompile(`^prog_(\d+)$`)
	// link is the one link of a program that isn't in a dispatcher.
	link = regexp.MustCompile(`^prog_(\d+)_link$`)
	// revision is a directory of a dispatcher: network namespace, interface, and
	// how often it was replaced. In it are the links of its programs.
	revision = regexp.MustCompile(`^(dispatcher_\d+_\d+)_\d+$`)
	// member is a link of a program in a dispatcher, by the program's id. That of
	// v0.6 has the position, of which there are ten.
	member = regexp.MustCompile(`^link_(\d{2,})$`)
	// anyMember is a link in a dispatcher where v0.6 hasn't run.
	anyMember = regexp.MustCompile(`^link_(\d+)$`)
)

// Found tells whether a daemon of v0.5 left anything that isn't dealt with: pins
// below bpffs, filters that were noted, or a database below root, the host's file
// system.
func Found(bpffs, root string) (bool, error) {
	pins, err := find(bpffs)
	if err != nil {
		return false, fmt.Errorf("look for pins of bpfman v0.5: %w", err)
	}
	for _, path := range []string{filepath.Join(bpffs, noted), filepath.Join(root, stateDir, "db", recognised)} {
		_, err := os.Stat(path)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return len(pins) > 0, fmt.Errorf("look for files of bpfman v0.5: %w", err)
		}
	}
	return len(pins) > 0, nil
}

// SetAside moves what a daemon of v0.5 pinned below bpffs, the daemon's file
// system, and returns the paths moved, relative to it. It must run before the
// daemon of v0.6 does, and can be repeated after a crash.
//
// One pin stays: the link of a dispatcher of XDP to its interface. The daemon of
// v0.6 has the same path, and replaces the dispatcher in it at once, while any
// other way would have to find the interface free.
func SetAside(bpffs string) ([]string, error) {
	found, err := find(bpffs)
	if err != nil {
		return nil, fmt.Errorf("look for pins of bpfman v0.5: %w", err)
	}
	// Before they are moved: what is found after a crash is no more than is left.
	// A filter that stays does no harm, so it keeps nothing else.
	filters := noteFilters(bpffs, found)
	for _, path := range found {
		to := filepath.Join(bpffs, aside, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as the daemon's own directories
			return nil, fmt.Errorf("set aside pins of bpfman v0.5: %w", err)
		}
		if err := os.Rename(filepath.Join(bpffs, path), to); err != nil {
			return nil, fmt.Errorf("set aside pins of bpfman v0.5: %w", err)
		}
	}
	return found, filters
}

// find lists the paths below a bpffs that a daemon of v0.5 made.
func find(bpffs string) ([]string, error) {
	_, err := os.Stat(filepath.Join(bpffs, links))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("check whether bpfman v0.6 has run: %w", err)
	}
	// Where v0.6 hasn't run there is nothing of its own to be told apart.
	alone := err != nil
	top, err := names(bpffs)
	if err != nil {
		return nil, err
	}
	ids, found, err := dispatched(bpffs, top, alone)
	if err != nil {
		return nil, err
	}
	for _, name := range top {
		if id := match(link, name); id != "" {
			ids[id] = true
			found = append(found, name)
		}
	}
	for _, name := range top {
		if id := match(program, name); id != "" && (alone || ids[id]) {
			found = append(found, name)
		}
	}
	owners, err := names(filepath.Join(bpffs, maps))
	if err != nil {
		return nil, err
	}
	for _, id := range owners {
		if alone || ids[id] {
			found = append(found, filepath.Join(maps, id))
		}
	}
	return found, nil
}

// dispatched lists v0.5's programs in dispatchers, by id, and the paths of these
// dispatchers.
func dispatched(bpffs string, top []string, alone bool) (ids map[string]bool, found []string, err error) {
	ids = map[string]bool{}
	for _, dir := range dispatchers {
		revisions, err := names(filepath.Join(bpffs, dir))
		if err != nil {
			return nil, nil, err
		}
		for _, name := range revisions {
			members, err := membersOf(filepath.Join(bpffs, dir), name, top, alone)
			if err != nil {
				return nil, nil, err
			}
			for _, id := range members {
				ids[id] = true
			}
			if len(members) > 0 || alone && revision.MatchString(name) {
				found = append(found, filepath.Join(dir, name))
			}
		}
	}
	return ids, found, nil
}

// membersOf lists the ids of v0.5's programs in a dispatcher: links in it are
// named by them, and they are among the pins at the top.
func membersOf(dir, name string, top []string, alone bool) ([]string, error) {
	if !revision.MatchString(name) {
		return nil, nil
	}
	pins, err := names(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	expression := member
	if alone {
		expression = anyMember
	}
	var ids []string
	for _, pin := range pins {
		if id := match(expression, pin); id != "" && slices.Contains(top, "prog_"+id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Programs returns the kernel's ids of the programs that are set aside.
func Programs(bpffs string) ([]string, error) {
	pins, err := names(filepath.Join(bpffs, aside))
	if err != nil {
		return nil, fmt.Errorf("look for programs of bpfman v0.5: %w", err)
	}
	var ids []string
	for _, name := range pins {
		if id := match(program, name); id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Remove removes what is set aside: the kernel detaches and frees each program
// with its last pin. Maps that a pod has in a volume stay in it. No call of the
// daemon may be under way: it takes over links of XDP that belong here.
func Remove(bpffs string) error {
	revisions, err := names(filepath.Join(bpffs, aside, xdp))
	if err != nil {
		return fmt.Errorf("remove programs of bpfman v0.5: %w", err)
	}
	theirs, err := names(filepath.Join(bpffs, xdp))
	if err != nil {
		return fmt.Errorf("remove programs of bpfman v0.5: %w", err)
	}
	for _, name := range revisions {
		dispatcher := match(revision, name)
		if dispatcher == "" || slices.ContainsFunc(theirs, func(n string) bool { return match(revision, n) == dispatcher }) {
			continue // v0.6 has the interface now, and its link
		}
		if err := os.Remove(filepath.Join(bpffs, xdp, dispatcher+"_link")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove programs of bpfman v0.5: %w", err)
		}
	}
	if err := os.RemoveAll(filepath.Join(bpffs, aside)); err != nil {
		return fmt.Errorf("remove programs of bpfman v0.5: %w", err)
	}
	return nil
}

// names lists a directory, nothing where there is none.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	list := make([]string, 0, len(entries))
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list, nil
}

// match returns what an expression finds in a name, "" where it doesn't.
func match(expression *regexp.Regexp, name string) string {
	if found := expression.FindStringSubmatch(name); found != nil {
		return found[1]
	}
	return ""
}
