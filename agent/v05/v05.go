// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package v05 removes what a bpfman daemon of v0.5 left on the node. The daemon
// of v0.6 neither lists nor removes it. Otherwise, the programs would run, and
// use memory, until the node reboots.
//
// The pins of v0.5 are recognized by their paths. They are set aside before the
// daemon of v0.6 starts and creates its own: they are moved to a directory in the
// same bpffs, where pinned links keep their programs attached. Nothing is
// interrupted. After the replacements are attached, the directory is removed.
//
// The paths are those of bpfman v0.5.6 (bpfman/src/lib.rs, utils.rs). The target
// test-upstream-daemon checks them with the daemon.
//
// Release v0.8.0 removes this package, with operator/takeover's part for v0.5.
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
	// aside is the directory below the bpffs to which v0.5's pins are moved. Names
	// in a bpffs can't contain dots.
	aside = "v05"
	// links is the directory in which the daemon of v0.6 pins links. The daemon of
	// v0.5 has no such directory. Its successors create it with the first link that isn't a TCX link, and the file lock beside
	// the bpffs when they start.
	links = "links"
	lock  = ".lock"
	maps  = "maps"
	xdp   = "xdp"
)

// dispatchers contains the directories of XDP and TC dispatchers, which run
// several programs on one interface.
var dispatchers = []string{xdp, "tc-ingress", "tc-egress"}

var (
	program = regexp.MustCompile(`^prog_(\d+)$`)
	// link matches the only link of a program outside of dispatchers.
	link = regexp.MustCompile(`^prog_(\d+)_link$`)
	// revision matches the directory of a dispatcher: network namespace, interface,
	// and the number of replacements. It contains the links of its programs.
	revision = regexp.MustCompile(`^(dispatcher_\d+_\d+)_\d+$`)
	// member matches the link of a program in a dispatcher of v0.5, with the
	// program's ID. In v0.6, the number is the position, which is less than ten.
	member = regexp.MustCompile(`^link_(\d{2,})$`)
	// anyMember matches a link in a dispatcher if v0.6 hasn't run on the node.
	anyMember = regexp.MustCompile(`^link_(\d+)$`)
)

// Found reports whether a daemon of v0.5 left anything that still exists: pins
// below bpffs, recorded filters, or a database below root, which is the host's
// file system.
func Found(bpffs, root string) (bool, error) {
	pins, err := find(bpffs)
	if err != nil {
		return false, fmt.Errorf("look for pins of bpfman v0.5: %w", err)
	}
	for _, path := range []string{filepath.Join(bpffs, noted), filepath.Join(root, stateDir, "db", recognized)} {
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

// SetAside moves the pins of a daemon of v0.5 below bpffs, which is the daemon's
// file system. It returns the moved paths, relative to bpffs. It must run before
// the daemon of v0.6 starts, and can be repeated after a crash.
//
// The link of an XDP dispatcher to its interface stays. The daemon of v0.6 uses
// the same path, and atomically replaces the dispatcher in this link. It could
// not attach another XDP program to the interface in any other way while this one
// is attached.
func SetAside(bpffs string) ([]string, error) {
	found, err := find(bpffs)
	if err != nil {
		return nil, fmt.Errorf("look for pins of bpfman v0.5: %w", err)
	}
	// Before the move, because after a crash only the remaining pins are found. An
	// error is only returned at the end, because a remaining filter does no harm.
	filters := noteFilters(bpffs, found)
	for _, path := range found {
		to := filepath.Join(bpffs, aside, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // the mode of the daemon's directories
			return nil, fmt.Errorf("set aside pins of bpfman v0.5: %w", err)
		}
		if err := os.Rename(filepath.Join(bpffs, path), to); err != nil {
			return nil, fmt.Errorf("set aside pins of bpfman v0.5: %w", err)
		}
	}
	return found, filters
}

// find returns the paths below a bpffs that a daemon of v0.5 created.
func find(bpffs string) ([]string, error) {
	// If no later version has run, all paths are v0.5's.
	alone := true
	for _, path := range []string{filepath.Join(bpffs, links), filepath.Join(filepath.Dir(bpffs), lock)} {
		_, err := os.Stat(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("check whether a version after v0.5 has run: %w", err)
		}
		alone = alone && err != nil
	}
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

// dispatched returns the IDs of v0.5's programs in dispatchers, and the paths of
// these dispatchers.
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

// membersOf returns the IDs of v0.5's programs in a dispatcher. Its links contain
// the IDs in their names, and the programs are pinned at the top of the bpffs.
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

// Programs returns the kernel IDs of the programs that are set aside.
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

// Remove removes the pins that are set aside. The kernel detaches and frees each
// program with its last pin. Maps that a pod has mounted in a volume stay there.
// No call of the daemon may be in progress, because the daemon takes over XDP
// links that this function could remove.
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
			continue // v0.6 now uses the interface and its link
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

// names returns the names in a directory, or none if it doesn't exist.
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

// match returns the first submatch of an expression in a name, or "".
func match(expression *regexp.Regexp, name string) string {
	if found := expression.FindStringSubmatch(name); found != nil {
		return found[1]
	}
	return ""
}
