// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// pinsDir is the daemon's BPF file system. The daemons pin each program as prog_ID, its maps in maps/ID, and each link
	// that isn't part of a dispatcher as links/ID. One of them pins TCX links by their place and program.
	pinsDir     = "/run/bpfman/fs"
	programPins = "prog_"
	mapPins     = "maps"
	linkPins    = "links"
	tcxPin      = "link_"
	tcxPins     = "tcx-*/" + tcxPin + "*"
)

// pin is a path below which a program, its maps, or a link is pinned.
type pin struct {
	path string
	// id is that of the link in links, and otherwise of the program.
	id uint32
	// older means that its time is before that of the daemon's database.
	older bool
}

// isTCX reports whether a pin is that of a TCX link that is pinned by its program.
func isTCX(path string) bool { return strings.HasPrefix(filepath.Base(path), tcxPin) }

func (p pin) isLink() bool { return filepath.Base(filepath.Dir(p.path)) == linkPins }

// isAfter reports whether the program that is pinned, or whose maps or link, has a higher ID than another one.
func (p pin) isAfter(id uint32) bool {
	if !p.isLink() {
		return p.id > id
	}
	of, err := linked(p.path)
	return err == nil && of > id
}

// pinned returns the pins of programs, maps, and links below root. If there is another daemon's database, pins of programs with
// IDs up to before can be that one's, and nothing says whose. It returns only the others then.
func pinned(root string, d dialect, before uint32) ([]pin, error) {
	config, err := os.Stat(filepath.Join(root, d.database()))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // there is no such daemon
	}
	if err != nil {
		return nil, problem.Errorf(problem.DaemonStateUnusable, "read when the daemon's database was created: %w", err)
	}
	changed := otherDatabase(root, d)
	var pins []pin
	for _, pattern := range []string{programPins + "*", mapPins + "/*", linkPins + "/*", tcxPins} {
		found, err := filepath.Glob(filepath.Join(root, pinsDir, pattern))
		if err != nil {
			return nil, problem.Errorf(problem.DaemonStateUnusable, "look for pins: %w", err)
		}
		for _, path := range found {
			id, ok := idOf(path)
			if !ok {
				continue
			}
			info, err := os.Lstat(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, problem.Errorf(problem.DaemonStateUnusable, "look for pins: %w", err)
			}
			found := pin{path, id, info.ModTime().Before(config.ModTime())}
			if changed && !found.isAfter(before) {
				continue
			}
			pins = append(pins, found)
		}
	}
	return pins, nil
}

// linksAmong returns the IDs of the links that are pinned.
func linksAmong(pins []pin) (links []uint32) {
	for _, p := range pins {
		if p.isLink() {
			links = append(links, p.id)
		}
	}
	return links
}

// idOf returns the ID of the program or link that a pin is for.
func idOf(path string) (id uint32, ok bool) {
	name := strings.TrimPrefix(filepath.Base(path), programPins)
	if place, tcx := strings.CutPrefix(name, tcxPin); tcx {
		name = place[strings.LastIndex(place, "_")+1:]
	}
	n, err := strconv.ParseUint(name, 10, 32)
	return uint32(n), err == nil
}

// orphans returns the pins of programs, with their TCX links, and of links that aren't in the daemon's list. The daemon
// leaves them if it is killed during a call. Nobody else would ever remove them, a link would
// stay attached, and the kernel might refuse to attach the program there again. The pins must be
// from before the list: the daemon completes a call before the next one, so what was pinned
// before and isn't in the list has no call in progress, except for programs that others load: see [Inventory.left].
//
// Pins that are older than the daemon's database are of another version, and aren't orphans. But if a pin of a listed
// program is older, too, the clock was set back, and times say nothing. The kernel's IDs of programs increase, so
// what has a higher ID than the first listed program is of this database. Only this version has a directory of links.
func orphans(pins []pin, list *gobpfman.ListResponse) (programs []string, links []uint32) {
	listed, attached := map[uint32]bool{}, map[uint32]bool{}
	for _, result := range list.GetResults() {
		listed[result.GetKernelInfo().GetId()] = true
		listed[result.GetInfo().GetMapOwnerId()] = true // 0, without an owner, is no program's ID
		if owner, ok := idOf(result.GetInfo().GetMapPinPath()); ok {
			listed[owner] = true
		}
		for _, link := range result.GetInfo().GetLinks() {
			attached[link] = true
		}
	}
	first, setBack := uint32(math.MaxUint32), false
	for _, pin := range pins {
		if !pin.isLink() && listed[pin.id] {
			first, setBack = min(first, pin.id), setBack || pin.older
		}
	}
	for _, pin := range pins {
		switch {
		case pin.older && (!setBack || !pin.isLink() && pin.id <= first): // of another version
		case pin.isLink() && !attached[pin.id]:
			links = append(links, pin.id)
		case !pin.isLink() && !listed[pin.id]:
			programs = append(programs, pin.path)
		}
	}
	return programs, links
}

// removeOrphans removes what orphans returns. The daemon may still have parts of a link that its
// list lacks, and detaches such a link itself.
func (i *Inventory) removeOrphans(ctx context.Context, d dialect, pins []pin, list *gobpfman.ListResponse) error {
	programs, links := orphans(pins, list)
	programs = i.left(d, programs)
	if len(programs)+len(links) > 0 {
		logr.FromContextOrDiscard(ctx).Info("Removing what the daemon left when it was killed", "pins", programs, "links", links)
	}
	var errs []error
	for _, pin := range programs {
		errs = append(errs, os.RemoveAll(pin))
	}
	for _, link := range links {
		errs = append(errs, i.detach(ctx, d, link))
	}
	if err := errors.Join(errs...); err != nil {
		return problem.Errorf(problem.DaemonStateUnusable, "remove what the daemon left when it was killed: %w", err)
	}
	return nil
}

// othersLoad is how long a program that others load can be pinned before it is listed. The agent's own Loads end before that.
const othersLoad = bpfman.MaxLoad + time.Minute

// left returns those of the pins of unlisted programs that nobody is loading. A program that has a link was listed before, so
// nobody is loading it.
func (i *Inventory) left(d dialect, pins []string) (left []string) {
	if !d.pinsBeforeItLists() {
		return pins
	}
	now, unlisted := time.Now(), map[string]time.Time{}
	for _, pin := range pins {
		since, known := i.unlisted[pin]
		if !known {
			since = now
		}
		if unlisted[pin] = since; now.Sub(since) >= othersLoad || isTCX(pin) {
			left = append(left, pin)
		}
	}
	i.unlisted = unlisted
	return left
}

// removeLinkPins removes the pins below root of links that the daemon has removed or doesn't
// find. If it was killed during Attach, it can list a link that is attached, but that neither
// Detach nor Unload find.
func removeLinkPins(root string, links ...uint32) error {
	for _, link := range links {
		err := os.Remove(filepath.Join(root, pinsDir, linkPins, strconv.FormatUint(uint64(link), 10)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return problem.Errorf(problem.DaemonStateUnusable, "remove the pin of link %d: %w", link, err)
		}
	}
	return nil
}
