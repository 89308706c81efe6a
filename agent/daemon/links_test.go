// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// crowded is a daemon in Go that takes as long to answer about a program as if there were ten times as many programs.
type crowded struct {
	*daemontest.Daemon
	t *testing.T
	// gets is the number of answers, and began is when the last list began.
	gets  int
	began time.Time
	// refuses makes it refuse to answer about the nth program.
	refuses int
}

// each is what a program adds to each answer. The real daemon took 28 s for 1,400 programs, so 140 take 28 s here.
const each = 200 * time.Millisecond / 140

func newCrowded(t *testing.T, programs int) *crowded {
	t.Helper()
	d := &crowded{Daemon: daemontest.NewGo(t.TempDir()), t: t, refuses: -1}
	for n := range programs {
		response, err := d.Load(t.Context(), request(program.Key{Kind: owner.Kind, Name: strconv.Itoa(n)}, "f"))
		if err != nil {
			t.Fatal(err)
		}
		d.attach(response.GetPrograms()[0].GetKernelInfo().GetId())
	}
	d.SetFault(func(call string, _ proto.Message, done bool) error {
		switch {
		case call == "List" && !done:
			d.began = time.Now()
		case call == "Get" && !done:
			<-time.After(each * time.Duration(programs))
			if d.gets++; d.gets == d.refuses {
				return status.Error(codes.Internal, "database is locked")
			}
			if lasts := time.Since(d.began); lasts >= callDeadline/2+time.Second {
				t.Errorf("a list lasts %s", lasts)
			}
		}
		return nil
	})
	return d
}

// attach attaches a program without the agent, and returns the link.
func (d *crowded) attach(id uint32) uint32 {
	d.t.Helper()
	response, err := d.Attach(d.t.Context(), &gobpfman.AttachRequest{Id: id, Attach: point("lo").Info})
	if err != nil {
		d.t.Fatal(err)
	}
	return response.GetLinkId()
}

// asked returns for how many programs the daemon was asked since the last call.
func (d *crowded) asked() int {
	n := d.gets
	d.gets = 0
	return n
}

// No list takes the daemon too long to answer, however many programs there are, and however often the answers are cut off.
func TestListsOfManyProgramsOfGo(t *testing.T) {
	for name, c := range map[string]struct{ programs, refuses, asked int }{
		"as many as fit in one list": {40, -1, 40},
		"many":                       {140, -1, 140},
		"a refusal in between":       {140, 70, 141},
		"very many":                  {400, -1, 400},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newCrowded(t, c.programs)
				i := NewInventory(d, d.Root)
				d.refuses = c.refuses
				_, err := i.Refresh(t.Context())
				if (err != nil) != (c.refuses > 0) {
					t.Fatal(err)
				}
				refresh(t, i)
				if links := len(i.Of(program.Key{Kind: owner.Kind, Name: "7"})[0].Links); links != 1 {
					t.Errorf("%d links", links)
				}
				began := time.Now()
				again := d.asked() - c.asked
				refresh(t, i)
				if took := time.Since(began); again > 20 || took >= 2*askAgainFor || d.asked() == 0 {
					t.Errorf("%d were asked about again, and the next list took %s", again, took)
				}
			})
		})
	}
}

// What the agent attaches and detaches is known immediately, and what others do, after some lists.
func TestChangesAmongManyProgramsOfGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCrowded(t, 140)
		i := known(t, d, d.Root)
		key := program.Key{Kind: owner.Kind, Name: "139"} // it is the last in turn
		id := i.Of(key)[0].ID
		if err := i.Attach(t.Context(), id, point("lo egress")); err != nil {
			t.Fatal(err)
		}
		for link := range i.Of(key)[0].Links {
			if err := i.Detach(t.Context(), id, link); err != nil {
				t.Fatal(err)
			}
			break
		}
		if changed := refresh(t, i); len(changed) > 0 || len(i.Of(key)[0].Links) != 1 {
			t.Errorf("changed %v, links %v", changed, i.Of(key)[0].Links)
		}
		link := d.attach(id)
		lists := 0
		for ; len(i.Of(key)[0].Links) == 1 && lists < 100; lists++ {
			refresh(t, i)
		}
		if _, found := i.Of(key)[0].Links[link]; !found || lists == 100 {
			t.Errorf("after %d lists, the links are %v", lists, i.Of(key)[0].Links)
		}
		// Whether this Attach took effect is unknown, so this program is the first to be asked about.
		d.SetFault(func(call string, _ proto.Message, done bool) error {
			if call == "Attach" && done {
				return status.Error(codes.Unavailable, "no socket")
			}
			return nil
		})
		if err := i.Attach(t.Context(), id, point("eth0")); err == nil || i.Known() {
			t.Fatalf("%v", err)
		}
		refresh(t, i)
		if links := i.Of(key)[0].Links; len(links) != 3 {
			t.Errorf("links %v", links)
		}
	})
}

// A pinned link that no program is known to have can be one that others have attached since. It isn't what a daemon left that
// was killed. The latter is removed, and what can't be removed doesn't cost each list an answer about each program.
func TestLinksOfOthersAmongManyProgramsOfGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newCrowded(t, 140)
		writeFile(t, filepath.Join(d.Root, newGolang().database()))
		links := filepath.Join(d.Root, pinsDir, linkPins)
		pin := func(link uint32) string { return filepath.Join(links, decimal(link)) }
		for link := range uint32(140) {
			writeFile(t, pin(link+1))
		}
		i := known(t, d, d.Root)
		last := d.Programs()[139]
		foreign, left := d.attach(last.ID), uint32(9000)
		writeFile(t, pin(foreign))
		writeFile(t, pin(left))
		refresh(t, i)
		if got := len(d.Programs()[139].Links); got != 2 {
			t.Errorf("the program has %d links", got)
		}
		if _, err := os.Lstat(pin(left)); !os.IsNotExist(err) {
			t.Errorf("the pin without a link: %v", err)
		}
		// A directory with a file can't be removed.
		writeFile(t, filepath.Join(pin(left+1), "file"))
		refresh(t, i)
		d.asked()
		refresh(t, i)
		if n := d.asked(); n > 10 {
			t.Errorf("%d programs were asked about", n)
		}
	})
}
