// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// sharer returns a program that uses the maps of another.
func (n *node) sharer(name, function, owner string, names ...string) *v1alpha1.TracepointProgram {
	o := n.tracepoint(name, function, names...)
	o.Spec.MapOwnerSelector = metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelOwnedByProgram: owner}}
	return o
}

// shares waits until a user object's program uses the maps of another's, and returns the id of
// the latter.
func (n *node) shares(user, owner string) (id uint32) {
	n.t.Helper()
	n.eventually(user+" to use the maps of "+owner, func() error {
		objects := n.programs()
		status := map[string]*v1alpha1.BpfProgramStatus{}
		for _, o := range objects {
			status[o.GetLabels()[v1alpha1.LabelOwnedByProgram]] = o.GetStatus()
		}
		of, by := status[owner], status[user]
		if of == nil || by == nil || of.ProgramID == 0 || by.MapOwnerID == nil || *by.MapOwnerID != of.ProgramID {
			return fmt.Errorf("owner %+v, user %+v", of, by)
		}
		id = of.ProgramID
		return nil
	})
	return id
}

// The write that reports a loaded map owner takes effect, and its response is lost. The program
// that waits for the owner is loaded without waiting for the next list of reports.
func TestSharedMapsAfterALostResponse(t *testing.T) {
	n := start(t)
	n.daemon.PinnedByName = true
	waits, lost := make(chan struct{}), false
	n.mu.Lock()
	n.writes = func(request string, done bool) error {
		if lost || !strings.Contains(request, "/bpfprograms/holder-") || !strings.HasSuffix(request, "/status") {
			return nil
		}
		<-waits
		if done {
			lost = true
			return errors.New("the response is lost")
		}
		return nil
	}
	n.mu.Unlock()
	n.create(n.tracepoint("holder", "f", "a/x"))
	n.create(n.sharer("waiting", "h", "holder", "b/y"))
	n.says("waiting", v1alpha1.BpfProgCondMapOwnerNotLoaded, "map owner")
	close(waits)
	n.shares("waiting", "holder")
	if !lost {
		t.Error("no response was lost")
	}
}

// The life of shared maps. A program that uses them waits for their owner, follows it after a
// reload, and keeps running when it is deleted.
func TestSharedMaps(t *testing.T) {
	n := start(t)
	n.daemon.PinnedByName = true
	user := n.sharer("user", "g", "owner", "b/y")
	n.create(user)
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotFound, "no program on this node matches mapownerselector bpfman.io/ownedByProgram=owner")

	owner := n.tracepoint("owner", "f", "a/x")
	n.create(owner)
	n.holds("TracepointProgram/owner f a/x", "TracepointProgram/user g b/y")
	before := n.shares("user", "owner")

	n.change(owner, func() { owner.Spec.GlobalData = map[string][]byte{"sampling": {1}} })
	n.eventually("the owner's reload", func() error {
		for _, p := range n.daemon.Programs() {
			if p.ID == before {
				return fmt.Errorf("program %d is still there", before)
			}
		}
		return nil
	})
	n.holds("TracepointProgram/owner f a/x", "TracepointProgram/user g b/y")
	if after := n.shares("user", "owner"); after == before {
		t.Errorf("still the maps of program %d", before)
	}

	n.delete(owner)
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotFound, "keeps running")
	n.delete(user)
	n.holds()
}

// A program that would count in maps that nobody reads doesn't stay loaded.
func TestMapsThatTheDaemonDoesNotShare(t *testing.T) {
	n := start(t)
	owner := n.tracepoint("owner", "f", "a/x")
	n.create(owner)
	n.holds("TracepointProgram/owner f a/x")
	id := n.daemon.Programs()[0].ID
	n.create(n.sharer("user", "g", "owner", "b/y"))
	n.says("user", v1alpha1.BpfProgCondNotLoaded, fmt.Sprintf("the maps of program %d are not shared", id))
	n.eventually("the owner alone", func() error {
		if held := n.daemon.Programs(); len(held) != 1 || held[0].ID != id {
			return fmt.Errorf("%v", held)
		}
		return nil
	})
}

// usersOf waits until a program's report contains exactly these programs as users of its maps.
func (n *node) usersOf(owner string, want ...uint32) {
	n.t.Helper()
	n.eventually("the users of the maps of "+owner, func() error {
		for _, o := range n.programs() {
			if o.GetLabels()[v1alpha1.LabelOwnedByProgram] != owner {
				continue
			}
			var got []string
			for _, id := range want {
				got = append(got, strconv.FormatUint(uint64(id), 10))
			}
			if slices.Sort(got); !slices.Equal(got, o.GetStatus().MapUsedBy) {
				return fmt.Errorf("%q, not %q", o.GetStatus().MapUsedBy, got)
			}
			return nil
		}
		return errors.New("it has no object")
	})
}

func (n *node) idOf(function string) uint32 {
	n.t.Helper()
	for _, p := range n.daemon.Programs() {
		if p.Function == function {
			return p.ID
		}
	}
	n.t.Fatalf("%s isn't loaded", function)
	return 0
}

// A map owner that fails, several that match, and one that the selector matches later.
func TestMapOwnersThatAreNotOne(t *testing.T) {
	n := start(t)
	n.daemon.PinnedByName = true
	mend := n.fails("no such file")
	owner := n.tracepoint("owner", "bad", "a/x")
	n.create(owner)
	n.says("owner", v1alpha1.BpfProgCondNotLoaded, "no such file")
	user := n.sharer("user", "g", "owner", "b/y")
	n.create(user)
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotLoaded, "is not loaded on this node")
	mend()
	n.holds("TracepointProgram/owner bad a/x", "TracepointProgram/user g b/y")
	n.shares("user", "owner")
	n.usersOf("owner", n.idOf("g"))

	// Objects of two kinds can have the same name. The kind distinguishes them.
	tcx := n.tcx("owner", nil, "eth0")
	n.create(tcx)
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotFound, "matches 2 programs on this node instead of one")
	n.says("user", v1alpha1.BpfProgCondMapOwnerNotFound, "keeps running")
	running := n.idOf("g")
	n.change(user, func() { user.Spec.MapOwnerSelector.MatchLabels[v1alpha1.LabelOwnerKind] = "TracepointProgram" })
	n.holds("TracepointProgram/owner bad a/x", "TracepointProgram/user g b/y", "TcxProgram/owner t eth0")
	if now := n.idOf("g"); now != running {
		t.Errorf("program %d became %d", running, now)
	}

	n.delete(user)
	n.holds("TracepointProgram/owner bad a/x", "TcxProgram/owner t eth0")
	n.eventually("the owner to have no users", func() error {
		for _, o := range n.programs() {
			if users := o.GetStatus().MapUsedBy; len(users) > 0 {
				return fmt.Errorf("%s: %q", o.GetName(), users)
			}
		}
		return nil
	})
}

// Members of an application use the maps of another application's member, while other members use
// the application's own maps.
func TestMapsAcrossApplications(t *testing.T) {
	n := start(t)
	n.daemon.PinnedByName = true
	application := func(name string, programs ...v1alpha1.TracepointProgramInfo) *v1alpha1.BpfApplication {
		app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.fill(&app.Spec.BpfAppCommon)
		for _, p := range programs {
			app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &p})
		}
		return app
	}
	member := func(function, tracepoint string) v1alpha1.TracepointProgramInfo {
		return v1alpha1.TracepointProgramInfo{BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: function}, Names: []string{tracepoint}}
	}
	shares := member("shares", "c/z")
	shares.MapOwnerSelector.MatchLabels = map[string]string{v1alpha1.LabelOwnedByProgram: "maps", v1alpha1.LabelAppProgramID: "tracepoint-second"}
	user := application("uses", member("own", "b/y"), shares)
	n.create(user)
	n.says("uses", v1alpha1.BpfProgCondMapOwnerNotFound, "no program on this node matches mapownerselector")
	n.eventually("the other member to be loaded all the same", func() error {
		if p := n.daemon.Programs(); len(p) != 1 || p[0].Function != "own" || len(p[0].Links) != 1 {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
	alone := n.idOf("own")

	n.create(application("maps", member("first", "a/x"), member("second", "a/y")))
	n.holds("BpfApplication/maps first a/x", "BpfApplication/maps second a/y", "BpfApplication/uses own b/y", "BpfApplication/uses shares c/z")
	if now := n.idOf("own"); now != alone {
		t.Errorf("program %d became %d for another's maps", alone, now)
	}
	for _, o := range n.programs() {
		s := o.GetStatus()
		want := map[string]uint32{"shares": n.idOf("second")}[s.Function]
		if got := s.MapOwnerID; (got == nil) != (want == 0) || got != nil && *got != want {
			t.Errorf("%s uses the maps of %v, not of %d", s.Function, got, want)
		}
	}
}
