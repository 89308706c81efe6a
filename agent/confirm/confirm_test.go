// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const limit = 30 * time.Second

var key = program.Key{Kind: "XdpProgram", Name: "firewall"}

// world is a node with a journal, a network, and an agent that can crash.
type world struct {
	t         *testing.T
	dir, proc string

	sync.Mutex
	responds   func() Response
	failing    error
	undone     []string // what ran instead
	changed    int
	changes    *Changes
	stop       context.CancelFunc
	requests   int
	generation int64
	limit      time.Duration // of the next agent
	booted     time.Time     // by the clock that the next agent finds
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), proc: t.TempDir(), responds: func() Response { return Responded }, limit: limit}
	w.boot("first")
	w.start()
	return w
}

func (w *world) boot(id string) {
	w.t.Helper()
	w.booted = time.Now().Add(-time.Hour)
	dir := filepath.Join(w.proc, "sys/kernel/random")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "boot_id"), []byte(id+"\n"), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start() {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	w.stop = stop
	booted := w.booted
	w.changes = &Changes{
		Limit:  w.limit,
		Uptime: func() time.Duration { return time.Since(booted) },
		Ask: func(context.Context) Response {
			w.Lock()
			defer w.Unlock()
			w.requests++
			return w.responds()
		},
		Undo: w.undo,
		Changed: func(program.Key) {
			w.Lock()
			defer w.Unlock()
			w.changed++
		},
	}
	if err := w.changes.Open(w.dir, w.proc); err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = w.changes.Run(ctx) }()
}

func (w *world) undo(_ context.Context, all map[program.Key]*Version) map[program.Key]error {
	w.Lock()
	defer w.Unlock()
	failed := map[program.Key]error{}
	for key, previous := range all {
		if failed[key] = w.failing; w.failing != nil {
			continue
		}
		runs := "nothing"
		if previous != nil {
			owner, err := previous.Owner()
			if err != nil {
				w.t.Error(err)
				continue
			}
			runs = owner.Members[0].LoadInfo().GetName() + " of " + previous.Image.Digest
		}
		if previous != nil && len(previous.Places) > 0 {
			runs += " at " + pointsOf(previous.Places)
		}
		w.undone = append(w.undone, runs)
	}
	return failed
}

// crash ends the agent and starts it again.
func (w *world) crash() {
	w.stop()
	w.pass(0)
	w.start()
}

// version returns a version of the object with another function.
func (w *world) version(function string) Version {
	w.t.Helper()
	w.generation++
	o := &v1alpha1.XdpProgram{}
	o.Name, o.UID, o.Generation = key.Name, "uid", w.generation
	o.Spec.BpfFunctionName = function
	v, err := VersionOf(key.Kind, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// attach simulates a pass of the agent.
func (w *world) attach(v Version, digest string) {
	w.t.Helper()
	w.attempt(v, digest, Pass{Attached: true, Added: true, Complete: true})
}

// attempt simulates a pass of the agent with a result.
func (w *world) attempt(v Version, digest string, result Pass) {
	w.t.Helper()
	err := w.changes.Begin(key, v)
	v.Image = bytecode.Image{Digest: digest}
	if err := errors.Join(err, w.changes.End(key, v, result)); err != nil {
		w.t.Fatal(err)
	}
}

// extend simulates a pass that attaches a version to some points, of which it has some then, and that doesn't complete it.
func (w *world) extend(v Version, attaches, has string) {
	w.t.Helper()
	for _, place := range placesOf(attaches) {
		if err := w.changes.Begin(key, v, place); err != nil {
			w.t.Fatal(err)
		}
	}
	v.Image = bytecode.Image{Digest: "d1"}
	if err := w.changes.End(key, v, Pass{Attached: has != "", Added: attaches != "", Replaced: true, Places: placesOf(has)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) succeed(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// placesOf returns the places with names.
func placesOf(names string) []program.Place {
	var places []program.Place
	for name := range strings.FieldsSeq(names) {
		places = append(places, program.Place{Point: name})
	}
	return places
}

func pointsOf(places []program.Place) string {
	names := make([]string, 0, len(places))
	for _, place := range places {
		names = append(names, place.Point)
	}
	return strings.Join(names, " ")
}

// runsAt checks where a version runs of which the rest is undone. It is "everywhere" if nothing is undone, and "" if all is.
func (w *world) runsAt(v Version, wanted string, words ...string) {
	w.t.Helper()
	is := "everywhere"
	if r := w.changes.Rollback(key, v); r != nil {
		is = ""
		if r.Rest {
			is = pointsOf(r.Previous.Places)
		}
		for _, word := range words {
			if !strings.Contains(r.Message, word) {
				w.t.Errorf("%q lacks %q", r.Message, word)
			}
		}
	}
	if is != wanted {
		w.t.Errorf("it runs at %q, want %q", is, wanted)
	}
}

// rewrite changes the record on the disk, as another version of the agent does, between two processes of the agent.
func (w *world) rewrite(change func(string) string) {
	w.t.Helper()
	w.stop()
	w.pass(0)
	paths, err := filepath.Glob(filepath.Join(w.dir, "*"))
	if err != nil || len(paths) != 1 {
		w.t.Fatal(paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		w.t.Fatal(err)
	}
	changed := change(string(text))
	if err := os.WriteFile(paths[0], []byte(changed), 0o600); err != nil || changed == string(text) {
		w.t.Fatal(string(text), err)
	}
	w.start()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.Unlock()
	<-time.After(d)
	synctest.Wait()
	w.Lock()
}

func (w *world) runs(v Version, wanted string, words ...string) {
	w.t.Helper()
	is := "it"
	r := w.changes.Rollback(key, v)
	if r != nil {
		is = "nothing"
		if r.Previous != nil {
			is = "the previous one"
		}
		for _, word := range words {
			if !strings.Contains(r.Message, word) {
				w.t.Errorf("%q lacks %q", r.Message, word)
			}
		}
	}
	if is != wanted {
		w.t.Errorf("%s runs instead of %s: %+v", is, wanted, r)
	}
}

func node(t *testing.T, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		w.Lock() // except while time passes
		defer w.Unlock()
		test(w)
	})
}

func TestConfirmed(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("good")
		w.attach(v, "d1")
		w.pass(2 * limit)
		w.runs(v, "it")
		if w.requests != 1 || len(w.undone) > 0 {
			w.t.Errorf("%d requests, undone %q", w.requests, w.undone)
		}
		w.attach(v, "d1")
		w.pass(limit)
		if images := w.changes.Images(); w.requests != 1 || len(images) != 1 || images[0].Digest != "d1" {
			w.t.Errorf("%d requests, images %v", w.requests, images)
		}
	})
}

// One request confirms all changes.
func TestOneRequestForAll(t *testing.T) {
	node(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			other := program.Key{Kind: key.Kind, Name: name}
			v := w.version(name)
			if err := errors.Join(w.changes.Begin(other, v), w.changes.End(other, v, Pass{Attached: true, Complete: true})); err != nil {
				w.t.Fatal(err)
			}
		}
		w.pass(2 * limit)
		if w.requests != 1 {
			w.t.Errorf("%d requests", w.requests)
		}
	})
}

func TestRolledBack(t *testing.T) {
	node(t, func(w *world) {
		good := w.version("good")
		w.attach(good, "d1")
		w.pass(limit)
		w.responds = func() Response {
			if len(w.undone) > 0 {
				return Responded
			}
			return Silent
		}
		bad := w.version("bad")
		start := time.Now()
		w.attach(bad, "d2")
		w.pass(limit + time.Second)
		if took := time.Since(start); len(w.undone) != 1 || w.undone[0] != "good of d1" || took > limit+2*time.Second {
			w.t.Fatalf("undone %q after %s", w.undone, took)
		}
		w.pass(limit)
		w.runs(bad, "the previous one", "for 30s after generation 2 was attached, and got one after the rollback: generation 1 runs again; this node doesn't try generation 2 again until", "bpfman.io/restartedAt")
		w.runs(good, "it")
		w.crash()
		w.runs(bad, "the previous one", "generation 1 runs again")

		fixed := w.version("fixed")
		w.runs(fixed, "it")
		w.attach(fixed, "d3")
		w.pass(limit)
		w.runs(fixed, "it")
		w.runs(bad, "it") // it is a new change now
		if len(w.undone) != 1 {
			w.t.Errorf("undone %q", w.undone)
		}
	})
}

func TestFirstVersion(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		bad := w.version("bad")
		w.attach(bad, "d")
		w.pass(limit + time.Second)
		w.runs(bad, "nothing", "nothing runs instead")
		if len(w.undone) != 1 || w.undone[0] != "nothing" {
			w.t.Errorf("undone %q", w.undone)
		}
	})
}

// If the API server doesn't respond after the rollback either, the version wasn't the cause.
func TestUnproven(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		v := w.version("good")
		w.attach(v, "d")
		w.pass(10 * limit)
		w.runs(v, "nothing", "this node tries generation 1 again when the API server responds")
		w.crash()
		w.pass(limit)
		before := w.changed
		w.responds = func() Response { return Responded }
		w.pass(later + time.Second)
		w.runs(v, "it")
		if w.changed == before {
			w.t.Error("nobody is told that it can be tried again")
		}
		w.attach(v, "d")
		w.pass(limit)
		w.runs(v, "it")
		if len(w.undone) != 1 {
			w.t.Errorf("undone %q", w.undone)
		}
	})
}

// An API server that doesn't run isn't held against a version.
func TestAPIServerDown(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Reached }
		v := w.version("good")
		w.attach(v, "d")
		w.pass(10 * limit)
		w.runs(v, "it")
		w.responds = func() Response { return Responded }
		w.pass(limit)
		w.crash()
		w.responds = func() Response { return Silent }
		w.pass(2 * limit)
		w.runs(v, "it") // it is confirmed
	})
}

func TestCrashes(t *testing.T) {
	for name, test := range map[string]struct {
		crash func(w *world, v Version)
		runs  string
		words string
	}{
		"before it is attached": {func(w *world, v Version) {
			if err := w.changes.Begin(key, v); err != nil {
				w.t.Fatal(err)
			}
			w.crash()
		}, "the previous one", "no response"},
		"after it is attached": {func(w *world, v Version) {
			w.attach(v, "d2")
			w.crash()
		}, "the previous one", "no response"},
		"the daemon is down": {func(w *world, v Version) {
			w.failing = errors.New("connection refused")
			w.attach(v, "d2")
			w.pass(2 * limit)
			if len(w.undone) > 0 {
				w.t.Errorf("undone %q", w.undone)
			}
			w.stop()
			w.pass(0)
			w.failing = nil
			w.start()
		}, "the previous one", "no response"},
		"a reboot": {func(w *world, v Version) {
			w.attach(v, "d2")
			w.boot("second")
			w.crash()
		}, "the previous one", "this node restarted before the API server had confirmed generation 2"},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				w.attach(w.version("good"), "d1")
				w.pass(limit)
				w.responds = func() Response { return Silent }
				v := w.version("bad")
				test.crash(w, v)
				w.pass(2 * limit)
				w.runs(v, test.runs, test.words)
				if len(w.undone) == 0 || w.undone[0] != "good of d1" {
					w.t.Errorf("undone %q", w.undone)
				}
			})
		})
	}
}

// The daemon can take longer than the time limit to attach a version. While the API server responds, the version isn't
// rolled back, and it is confirmed when all of it is attached.
func TestSlowlyAttached(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		v := w.version("slow")
		other, quick := program.Key{Kind: key.Kind, Name: "other"}, w.version("quick")
		err := errors.Join(w.changes.Begin(key, v), w.changes.Begin(other, quick), w.changes.End(other, quick, Pass{Attached: true, Complete: true}))
		if err != nil {
			w.t.Fatal(err)
		}
		w.pass(10 * limit)
		w.runs(v, "it")
		if images := w.changes.Images(); len(w.undone) > 0 || len(images) != 1 || images[0].Digest != "d1" {
			w.t.Errorf("undone %q, images %v", w.undone, images)
		}
		if w.requests > 30 {
			w.t.Errorf("%d requests", w.requests)
		}
		w.attach(v, "d2")
		w.pass(limit)
		if images := w.changes.Images(); len(images) != 1 || images[0].Digest != "d2" {
			w.t.Errorf("images %v", images)
		}
	})
}

// A version that cuts off the node is rolled back, although not all of it is attached.
func TestCutOffBeforeAllIsAttached(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("bad")
		if err := w.changes.Begin(key, v); err != nil {
			w.t.Fatal(err)
		}
		w.pass(2 * limit)
		w.responds = func() Response { return Silent }
		w.pass(2 * limit)
		w.runs(v, "nothing", "no response")
	})
}

// Nobody waits for a version that was replaced before all of it was attached.
func TestReplacedBeforeAllIsAttached(t *testing.T) {
	node(t, func(w *world) {
		if err := errors.Join(w.changes.Begin(key, w.version("slow")), w.changes.End(key, w.version("without interfaces"), Pass{Complete: true})); err != nil {
			w.t.Fatal(err)
		}
		w.pass(10 * limit)
		if keys := w.changes.Keys(); len(keys) > 0 || w.requests > 1 {
			w.t.Errorf("records of %v, %d requests", keys, w.requests)
		}
	})
}

// What fails to load is never confirmed: the previous version runs on.
func TestNotLoaded(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		bad := w.version("bad")
		if err := w.changes.End(key, bad, Pass{}); err != nil {
			w.t.Fatal(err)
		}
		w.responds = func() Response { return Silent }
		w.attach(bad, "d2")
		w.pass(limit + time.Second)
		w.runs(bad, "the previous one")
	})
}

// What failed to attach isn't confirmed, and is rolled back like any other version, because it can be attached anyway.
func TestNotAttached(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("good")
		if err := errors.Join(w.changes.Begin(key, v), w.changes.End(key, v, Pass{})); err != nil {
			w.t.Fatal(err)
		}
		w.pass(2 * limit)
		w.runs(v, "it")
		w.responds = func() Response { return Silent }
		if err := errors.Join(w.changes.Begin(key, v), w.changes.End(key, v, Pass{})); err != nil {
			w.t.Fatal(err)
		}
		w.pass(limit + time.Second)
		w.runs(v, "nothing")
	})
}

func TestForgotten(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		if err := w.changes.Forget(key); err != nil {
			w.t.Fatal(err)
		}
		w.crash()
		if images := w.changes.Images(); len(images) > 0 {
			w.t.Errorf("images %v", images)
		}
	})
}

// An object can be deleted while its change is being rolled back. Its programs may have been loaded again then, so the next
// pass, which unloads them, follows.
func TestDeletedDuringARollback(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		w.responds = func() Response { return Silent }
		v := w.version("bad")
		undo, changed := w.changes.Undo, 0
		w.changes.Undo = func(ctx context.Context, all map[program.Key]*Version) map[program.Key]error {
			if err := w.changes.Forget(key); err != nil {
				w.t.Error(err)
			}
			failed := undo(ctx, all)
			w.Lock()
			defer w.Unlock()
			changed = w.changed
			return failed
		}
		w.attach(v, "d2")
		w.pass(2 * limit)
		if len(w.undone) != 1 || w.changed <= changed || len(w.changes.Keys()) > 0 {
			w.t.Errorf("undone %q, %d passes afterwards, recorded are %v", w.undone, w.changed-changed, w.changes.Keys())
		}
		w.runs(v, "it")
	})
}

// A damaged record is removed.
func TestDamaged(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("good")
		w.attach(v, "d1")
		w.pass(limit)
		paths, err := filepath.Glob(filepath.Join(w.dir, "*"))
		if err != nil || len(paths) != 1 {
			w.t.Fatal(paths, err)
		}
		if err := os.WriteFile(paths[0], []byte("{"), 0o600); err != nil {
			w.t.Fatal(err)
		}
		w.crash()
		w.runs(v, "it")
		if _, err := os.Stat(paths[0]); err == nil {
			w.t.Error("it is still there")
		}
	})
}

// What doesn't affect programs isn't a version.
func TestVersions(t *testing.T) {
	object := func(edit func(*v1alpha1.XdpProgram)) string {
		o := &v1alpha1.XdpProgram{}
		o.Name, o.UID, o.Generation = "x", "uid", 1
		o.Spec.Priority = 50
		edit(o)
		v, err := VersionOf("XdpProgram", o)
		if err != nil {
			t.Fatal(err)
		}
		return v.id()
	}
	first := object(func(*v1alpha1.XdpProgram) {})
	for name, test := range map[string]struct {
		edit    func(*v1alpha1.XdpProgram)
		another bool
	}{
		"labels":     {func(o *v1alpha1.XdpProgram) { o.Labels = map[string]string{"a": "b"} }, false},
		"generation": {func(o *v1alpha1.XdpProgram) { o.Generation = 7 }, false},
		"annotation": {func(o *v1alpha1.XdpProgram) { o.Annotations = map[string]string{"a": "b"} }, false},
		"status": {func(o *v1alpha1.XdpProgram) {
			o.Status.ObservedGeneration = 7
		}, false},
		"restarted": {func(o *v1alpha1.XdpProgram) { o.Annotations = map[string]string{v1alpha1.AnnotationRestartedAt: "now"} }, true},
		"priority":  {func(o *v1alpha1.XdpProgram) { o.Spec.Priority = 51 }, true},
		"UID":       {func(o *v1alpha1.XdpProgram) { o.UID = "another" }, true},
	} {
		if got := object(test.edit) != first; got != test.another {
			t.Errorf("%s: another version: %t", name, got)
		}
	}
}

// The time limit continues while the agent doesn't run, no matter how the node's clock is set meanwhile.
func TestClockIsSet(t *testing.T) {
	for name, c := range map[string]struct {
		shown, passed time.Duration // by the wall clock, and by a clock that nobody sets
	}{
		"not at all":      {10 * time.Second, 10 * time.Second},
		"an hour forward": {time.Hour + 10*time.Second, 10 * time.Second},
		"an hour back":    {time.Second, time.Hour + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				w.attach(w.version("good"), "d1")
				w.pass(limit)
				w.responds = func() Response { return Silent }
				w.attach(w.version("bad"), "d2")
				w.stop()
				w.pass(c.shown) // in the bubble, all clocks are the same
				w.booted = w.booted.Add(c.shown - c.passed)
				w.start()
				if left := limit - c.passed; left > 0 {
					w.pass(left - time.Second)
					if len(w.undone) > 0 {
						w.t.Fatal("it is undone too early")
					}
				}
				w.pass(2*time.Second + 2*patience) // some requests
				if len(w.undone) != 1 || w.undone[0] != "good of d1" {
					w.t.Fatalf("undone %q", w.undone)
				}
			})
		})
	}
}

// A record of a version of bpfman that stored times is read.
func TestRecordWithTimes(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		v := w.version("bad")
		w.attach(v, "d")
		w.rewrite(func(text string) string {
			return regexp.MustCompile(`"due":\d+`).ReplaceAllString(text, `"deadline":"2026-01-01T00:00:00Z"`)
		})
		w.pass(limit - time.Second)
		w.runs(v, "it")
		w.pass(2 * time.Second)
		w.runs(v, "nothing")
	})
}

// A part of a version that is attached later is confirmed too. If it cuts off the node, and the part that was confirmed before isn't
// known, because programs of the previous version still ran beside it, all of the version is rolled back.
func TestAttachedInParts(t *testing.T) {
	part, rest := Pass{Attached: true, Added: true}, Pass{Attached: true, Added: true, Complete: true}
	for name, c := range map[string]struct {
		second Pass
		cut    bool
		undone int
		digest string // of the version that runs after a crash
	}{
		"the rest cuts off the node":            {rest, true, 1, "d1"},
		"the rest fails, and cuts off the node": {part, true, 1, "d1"},
		"the rest works":                        {rest, false, 0, "d2"},
		"another part works":                    {part, false, 0, "d2"},
		"nothing more is attached":              {Pass{Attached: true}, true, 0, "d2"},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				w.attach(w.version("good"), "d1")
				w.pass(limit)
				v := w.version("parts")
				w.attempt(v, "d2", part)
				w.pass(10 * limit)
				if w.requests > 2 {
					w.t.Errorf("%d requests", w.requests)
				}
				w.runs(v, "it")
				if is := w.changes.Confirmed(key, "uid"); is == nil || is.Image.Digest != "d2" {
					w.t.Errorf("%+v runs", is)
				}
				if w.changes.Unconfirmed() > 0 {
					w.t.Error("the part isn't confirmed")
				}
				if c.cut {
					w.responds = func() Response { return Silent }
				}
				w.attempt(v, "d2", c.second)
				w.pass(10 * limit)
				w.crash()
				w.pass(10 * limit)
				if len(w.undone) != c.undone {
					w.t.Errorf("undone %q", w.undone)
				}
				images := w.changes.Images()
				if c.undone == 0 && (len(images) == 0 || images[len(images)-1].Digest != c.digest) || c.undone > 0 && images[0].Digest != c.digest {
					w.t.Errorf("images %v", images)
				}
			})
		})
	}
}

// A part that was confirmed beside the version before isn't the whole version after a start without a time limit.
func TestPartWithoutLimit(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		v := w.version("parts")
		w.attempt(v, "d2", Pass{Attached: true, Added: true})
		w.pass(limit)
		for _, w.limit = range []time.Duration{0, limit} {
			w.crash()
		}
		w.responds = func() Response { return Silent }
		w.attach(v, "d2")
		w.pass(2 * limit)
		if len(w.undone) != 1 || w.undone[0] != "good of d1" {
			t.Errorf("undone %q", w.undone)
		}
	})
}

// What was confirmed of a version is what runs again after the next one. If it isn't known where, it is attached nowhere on the node.
func TestPartRunsAgain(t *testing.T) {
	node(t, func(w *world) {
		w.attempt(w.version("part"), "d1", Pass{Attached: true, Added: true})
		w.pass(limit)
		w.responds = func() Response { return Silent }
		bad := w.version("bad")
		w.attach(bad, "d2")
		w.pass(limit + time.Second)
		if len(w.undone) != 1 || w.undone[0] != "part of d1" {
			w.t.Errorf("undone %q", w.undone)
		}
		if r := w.changes.Rollback(key, bad); r == nil || !r.Previous.Confined() {
			w.t.Errorf("%+v", r)
		}
	})
}

// Where a version was confirmed, it stays when the rest of it is undone.
func TestRestIsUndone(t *testing.T) {
	cut := func(w *world, v Version) { // the API server is silent while a second point is attached
		w.responds = func() Response {
			if len(w.undone) > 0 {
				return Responded
			}
			return Silent
		}
		w.extend(v, "b", "a b")
		w.pass(limit + time.Second)
	}
	silent := func() Response { return Silent }
	for name, c := range map[string]struct {
		play   func(*world, Version)
		undone string // what ran instead, the last time
		at     string // where the version runs in the end
		words  []string
	}{
		"it was the cause": {func(w *world, v Version) {
			cut(w, v)
			w.pass(limit)
		}, "part of d1 at a", "a", []string{
			"this node got no response from the API server for 30s after the rest of generation 1 was attached, and got one after the rollback",
			"what was confirmed before stays attached; this node doesn't try the rest of generation 1 again until the object or its annotation bpfman.io/restartedAt",
		}},
		"it was the cause, and the agent restarts": {func(w *world, v Version) {
			cut(w, v)
			w.pass(limit)
			w.crash()
			w.pass(limit)
		}, "part of d1 at a", "a", []string{"and got one after the rollback"}},
		"it was the cause, and the node restarts": {func(w *world, v Version) {
			cut(w, v)
			w.pass(limit)
			w.boot("second")
			w.crash()
			w.responds = silent
			w.extend(v, "a", "a")
			w.pass(2 * limit)
		}, "part of d1 at a", "a", []string{"and got one after the rollback"}},
		"an outage": {func(w *world, v Version) {
			w.responds = silent
			w.extend(v, "b", "a b")
			w.pass(10 * limit)
		}, "part of d1 at a", "a", []string{"this node tries the rest of generation 1 again when the API server responds"}},
		"an outage that ends": {func(w *world, v Version) {
			w.responds = silent
			w.extend(v, "b", "a b")
			w.pass(10 * limit)
			before := w.changed
			w.responds = func() Response { return Responded }
			w.pass(limit)
			if w.changed == before {
				w.t.Error("nobody is told that the rest can be tried again")
			}
		}, "part of d1 at a", "everywhere", nil},
		"an outage that ends, and the rest works": {func(w *world, v Version) {
			w.responds = silent
			w.extend(v, "b", "a b")
			w.pass(10 * limit)
			w.responds = func() Response { return Responded }
			w.pass(limit)
			w.extend(v, "b", "a b")
			w.pass(limit)
			w.responds = silent
			w.extend(v, "c", "a b c")
			w.pass(2 * limit)
		}, "part of d1 at a b", "a b", nil},
		"an outage after a reboot": {func(w *world, v Version) {
			w.boot("second")
			w.crash()
			w.responds = silent
			w.extend(v, "a b", "a b")
			w.pass(2 * limit)
		}, "part of d1 at a", "a", nil},
		"the node restarts while it is tried": {func(w *world, v Version) {
			w.responds = silent
			w.extend(v, "b", "a b")
			w.boot("second")
			w.crash()
			w.pass(limit)
		}, "part of d1 at a", "a", []string{"this node restarted before the API server had confirmed the rest of generation 1: what was confirmed before stays attached"}},
		"nothing of the part is there": {func(w *world, v Version) {
			w.extend(v, "b", "b")
			w.pass(limit)
			w.responds = silent
			w.extend(v, "c", "c")
			w.pass(2 * limit)
		}, "part of d1 at a b", "a b", nil},
		"nothing is there when the API server responds": {func(w *world, v Version) {
			w.extend(v, "b", "")
			w.pass(limit)
			w.responds = silent
			w.extend(v, "c", "c")
			w.pass(2 * limit)
		}, "part of d1 at a", "a", nil},
		"nothing lacks for a while": {func(w *world, v Version) {
			v.Image = bytecode.Image{Digest: "d1"}
			w.succeed(w.changes.End(key, v, Pass{Attached: true, Complete: true, Places: placesOf("a")}))
			w.responds = silent
			w.extend(v, "b", "a b")
			w.pass(2 * limit)
		}, "part of d1 at a", "a", nil},
		"a later version": {func(w *world, _ Version) {
			w.responds = silent
			w.attach(w.version("bad"), "d2")
			w.pass(2 * limit)
		}, "part of d1 at a", "everywhere", nil},
		"a later version, after the rest": {func(w *world, v Version) {
			cut(w, v)
			w.pass(limit)
			w.responds = silent
			bad := w.version("bad")
			w.attach(bad, "d2")
			w.pass(2 * limit)
			w.runs(bad, "the previous one", "generation 1 runs again where it was confirmed")
		}, "part of d1 at a", "everywhere", nil},
		"a later version, and again this one": {func(w *world, v Version) {
			w.responds = silent
			w.attach(w.version("bad"), "d2")
			w.pass(10 * limit)
			w.extend(v, "a", "a")
			w.pass(2 * limit)
			w.runsAt(v, "everywhere")
			w.extend(v, "b", "a b")
			w.pass(2 * limit)
		}, "part of d1 at a", "a", nil},
		"without a time limit in between": {func(w *world, v Version) {
			w.limit = 0
			w.crash()
			w.extend(v, "b", "a b")
			w.limit = limit
			w.crash()
			w.responds = silent
			w.extend(v, "c", "a b c")
			w.pass(2 * limit)
		}, "", "everywhere", nil},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				v := w.version("part")
				w.extend(v, "a", "a")
				w.pass(limit)
				c.play(w, v)
				w.runsAt(v, c.at, c.words...)
				if last := strings.Join(w.undone[max(0, len(w.undone)-1):], ""); last != c.undone {
					w.t.Errorf("undone is %q", w.undone)
				}
				if images := w.changes.Images(); len(images) == 0 || images[0].Digest != "d1" {
					w.t.Errorf("kept are the images %v", images)
				}
			})
		})
	}
}

// Where a version was confirmed, it is attached again without a trial: after a reboot, and when an interface appears again.
func TestConfirmedPlaces(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("part")
		w.extend(v, "a b", "a b")
		w.pass(limit)
		w.boot("second")
		w.crash()
		w.responds = func() Response { return Silent }
		for _, has := range []string{"a", "", "a b"} {
			w.extend(v, has, has)
			if w.changes.Unconfirmed() > 0 {
				w.t.Fatalf("attached to %q again, it is tried", has)
			}
		}
		w.pass(2 * limit)
		w.runsAt(v, "everywhere")
		if w.extend(v, "a c", "a b c"); w.changes.Unconfirmed() != 1 {
			w.t.Error("attached to another point, it isn't tried")
		}
	})
}

// An earlier version of the agent recorded no places, and ignores those in a record.
func TestRecordWithoutPlaces(t *testing.T) {
	forget := func(text string) string { return regexp.MustCompile(`,"places":\[[^]]*\]`).ReplaceAllString(text, "") }
	for name, c := range map[string]struct{ seen, undone string }{
		"before the first pass": {"", "nothing"},
		"after it":              {"a", "part of d1 at a"},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				v := w.version("part")
				w.extend(v, "a", "a")
				w.pass(limit)
				w.rewrite(forget)
				if c.seen != "" {
					w.extend(v, "", c.seen)
				}
				w.responds = func() Response { return Silent }
				w.extend(v, "b", "a b")
				w.pass(2 * limit)
				if len(w.undone) != 1 || w.undone[0] != c.undone {
					w.t.Errorf("undone %q", w.undone)
				}
			})
		})
	}
}

// A pass that attached the rest can be interrupted, so that the next one finds it attached. It isn't confirmed by that.
func TestRestOfAnInterruptedPass(t *testing.T) {
	for name, has := range map[string]string{"alone": "a b", "beside programs of another version": ""} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				v := w.version("part")
				w.extend(v, "a", "a")
				w.pass(limit)
				w.responds = func() Response { return Silent }
				w.succeed(w.changes.Begin(key, v, placesOf("b")...))
				w.changes.Interrupted(key, v, true)
				v.Image = bytecode.Image{Digest: "d1"}
				w.succeed(w.changes.End(key, v, Pass{Attached: true, Places: placesOf(has)}))
				w.pass(2 * limit)
				if len(w.undone) != 1 || w.undone[0] != "part of d1 at a" {
					t.Errorf("undone %q", w.undone)
				}
			})
		})
	}
}

// A version that ran before there was anything that could cut off the node isn't confirmed by that.
func TestUnattached(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // another version was confirmed
		pass   Pass
	}{
		"after another version":      {true, Pass{Complete: true}},
		"under a policy":             {false, Pass{Complete: true, Record: true}},
		"both":                       {true, Pass{Complete: true, Record: true}},
		"without a record of either": {false, Pass{Complete: true}},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				if c.before {
					w.attach(w.version("before"), "d0")
					w.pass(limit)
				}
				v := w.version("late")
				v.Image = bytecode.Image{Digest: "d1"}
				w.succeed(w.changes.End(key, v, c.pass))
				w.crash()
				w.responds = func() Response { return Silent }
				w.extend(v, "eth1", "eth1")
				w.pass(2 * limit)
				if len(w.undone) != 1 {
					t.Fatalf("undone %q", w.undone)
				}
				w.runsAt(v, "")
				w.responds = func() Response { return Responded }
				w.pass(limit)
				w.succeed(w.changes.End(key, v, c.pass))
				w.boot("another")
				w.crash()
				w.responds = func() Response { return Silent }
				if err := w.changes.Begin(key, v, placesOf("eth1")...); err == nil {
					t.Error("it is attached again")
				}
			})
		})
	}
}

// What was confirmed once stays so, and runs again, no matter which other versions were tried meanwhile.
func TestConfirmedStays(t *testing.T) {
	for name, c := range map[string]struct {
		then func(w *world, v Version) // after the version was confirmed at a
		want string                    // of the last undo
	}{
		"nothing is selected for a while, a reboot": {func(w *world, v Version) {
			w.succeed(w.changes.End(key, v, Pass{Complete: true}))
			w.extend(v, "a", "a")
			w.extend(v, "b", "a b")
			w.boot("another")
			w.crash()
		}, "part of d1 at a"},
		"another one was rolled back, a reboot": {func(w *world, v Version) {
			w.attach(w.version("bad"), "d2")
			w.pass(3 * limit)
			w.succeed(w.changes.Begin(key, v, placesOf("b")...))
			w.boot("another")
			w.crash()
		}, "part of d1 at a"},
		"the object goes back to it from another one's part": {func(w *world, v Version) {
			w.responds = func() Response { return Responded }
			w.attempt(v, "d1", Pass{Attached: true, Added: true, Complete: true})
			w.pass(limit)
			other := w.version("other")
			w.extend(other, "a", "a")
			w.pass(limit)
			w.extend(v, "a", "a")
			w.responds = func() Response { return Silent }
			w.extend(w.version("bad"), "a", "a")
			w.pass(2 * limit)
		}, "part of d1"},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				v := w.version("part")
				w.extend(v, "a", "a")
				w.pass(limit)
				w.responds = func() Response { return Silent }
				c.then(w, v)
				w.pass(limit)
				if len(w.undone) == 0 || w.undone[len(w.undone)-1] != c.want {
					t.Errorf("undone %q", w.undone)
				}
			})
		})
	}
}

// A version that may have crashed the node isn't attached again after the reboot, not even before it is rolled back.
func TestCrashedNode(t *testing.T) {
	for _, late := range []time.Duration{0, time.Second, 10 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			node(t, func(w *world) {
				w.attach(w.version("good"), "d1")
				w.pass(2 * limit)
				bad := w.version("bad")
				w.succeed(w.changes.Begin(key, bad, placesOf("a")...))
				w.boot("another")
				w.crash()
				w.pass(late)
				if err := w.changes.Begin(key, bad, placesOf("a")...); err == nil {
					t.Error("it is attached again")
				}
				w.runs(bad, "the previous one", "this node restarted")
			})
		})
	}
}

// The image of a version that an object goes back to can have changed.
func TestImageOfTheVersionBefore(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("good")
		w.attach(v, "d1")
		w.pass(limit)
		w.extend(w.version("other"), "a", "a")
		v.Image.Digest = "d2"
		w.succeed(w.changes.End(key, v, Pass{Attached: true, Added: true, Complete: true, Places: placesOf("a")}))
		w.responds = func() Response { return Silent }
		w.attach(w.version("bad"), "d3")
		w.pass(2 * limit)
		if len(w.undone) != 1 || w.undone[0] != "good of d2" {
			t.Errorf("undone %q", w.undone)
		}
	})
}

// New interfaces of pods can appear forever. A record is bounded, and has those that are there.
func TestPlacesAreBounded(t *testing.T) {
	places := func(from, to int) []program.Place {
		var all []program.Place
		for n := from; n < to; n++ {
			all = append(all, program.Place{Point: fmt.Sprintf("veth%05d", n)})
		}
		return all
	}
	for name, c := range map[string]struct{ known, attached, want []program.Place }{
		"few":           {places(0, 2), places(1, 3), places(0, 3)},
		"as many":       {places(0, mostPlaces-1), places(1, mostPlaces), places(0, mostPlaces)},
		"too many":      {places(0, mostPlaces), places(mostPlaces, mostPlaces+1), places(mostPlaces, mostPlaces+1)},
		"many at once":  {nil, places(0, mostPlaces+1), places(0, mostPlaces)},
		"none is there": {places(0, 2), nil, places(0, 2)},
	} {
		v := Version{Places: c.known}
		if got := v.confirmedAt(c.attached); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d places, want %d", name, len(got), len(c.want))
		}
	}
}

// A version with the links of one whose rollback failed isn't confirmed by that. The rollback goes on.
func TestSameLinksWhileUndone(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		w.responds = func() Response { return Silent }
		w.failing = errors.New("connection refused")
		w.attach(w.version("bad"), "d2")
		w.pass(2 * limit)
		v := w.version("restarted")
		w.succeed(w.changes.End(key, v, Pass{Attached: true, Complete: true, Replaced: true}))
		w.failing = nil
		w.pass(2 * limit)
		if len(w.undone) != 1 || w.undone[0] != "good of d1" {
			t.Errorf("undone %q", w.undone)
		}
		w.runs(v, "the previous one")
	})
}

// A reboot doesn't undo a version of which a part was confirmed.
func TestRebootWithAPart(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("part")
		w.attempt(v, "d1", Pass{Attached: true, Added: true})
		w.pass(limit)
		w.boot("second")
		w.crash()
		w.pass(limit)
		w.runs(v, "it")
		w.attach(v, "d1")
		w.pass(limit)
		w.runs(v, "it")
		if len(w.undone) > 0 || w.changes.Unconfirmed() > 0 {
			w.t.Errorf("undone %q", w.undone)
		}
	})
}

// Attempts that go on while the node is cut off don't move the deadline.
func TestSilenceWhileAttaching(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("bad")
		silent := time.Time{}
		w.responds = func() Response {
			if silent.IsZero() {
				silent = time.Now()
			}
			return Silent
		}
		for len(w.undone) == 0 {
			if err := w.changes.Begin(key, v); err != nil {
				w.t.Fatal(err)
			}
			w.pass(2 * time.Second)
			if err := w.changes.End(key, v, Pass{Attached: true, Added: true}); err != nil {
				w.t.Fatal(err)
			}
			if time.Since(silent) > limit+5*time.Second && !silent.IsZero() {
				w.t.Fatal("it isn't undone")
			}
		}
	})
}

// A pass that still goes on when its version is rolled back attaches nothing more.
func TestAttachedWhileUndone(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		v := w.version("bad")
		w.attach(v, "d")
		w.pass(limit + time.Second)
		if err := w.changes.Begin(key, v); err == nil {
			w.t.Error("it is attached again")
		}
		w.runs(v, "nothing")
	})
}

// Without a time limit, nothing is confirmed or rolled back. The node still knows which version runs.
func TestWithoutLimit(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		bad := w.version("bad")
		w.attach(bad, "d")
		w.pass(10 * limit)
		w.runs(bad, "nothing")
		w.limit = 0
		w.crash()
		w.runs(bad, "it")
		before := w.requests
		w.attempt(bad, "d", Pass{Attached: true, Added: true})
		w.pass(10 * limit)
		w.boot("second")
		w.crash()
		if is := w.changes.Confirmed(key, "uid"); is == nil || is.Image.Digest != "d" {
			w.t.Errorf("%+v runs", is)
		}
		if w.requests > before || len(w.undone) > 1 {
			w.t.Errorf("%d requests, undone %q", w.requests-before, w.undone)
		}
	})
}

// An agent that was stopped for longer than the time limit asks the API server before it rolls anything back.
func TestStoppedBeyondTheLimit(t *testing.T) {
	for name, before := range map[string][]Response{
		"before it asked":                      nil,
		"after a response while it attached":   {Responded},
		"after silence, and a response":        {Silent, Silent, Responded},
		"after silence, and a refusal":         {Silent, Reached},
		"after a refusal, and another refusal": {Reached, Reached},
	} {
		t.Run(name, func(t *testing.T) {
			node(t, func(w *world) {
				v := w.version("good")
				asked := 0
				w.responds = func() Response {
					asked++
					return before[min(asked, len(before))-1]
				}
				if err := w.changes.Begin(key, v); err != nil {
					w.t.Fatal(err)
				}
				for asked < len(before) {
					w.pass(time.Second / 2)
				}
				w.stop()
				w.pass(10 * limit)
				w.responds = func() Response { return Responded }
				w.start()
				w.pass(time.Second)
				w.attach(v, "d")
				w.pass(limit)
				w.runs(v, "it")
				if len(w.undone) > 0 || w.changes.Unconfirmed() > 0 {
					w.t.Errorf("undone %q", w.undone)
				}
			})
		})
	}
}

// An agent that was stopped beyond the time limit doesn't believe a single request without a response.
func TestSingleSilentRequest(t *testing.T) {
	type test struct {
		silent  int
		earlier bool // the process before had requests without a response
	}
	for test, undone := range map[test]bool{{1, false}: false, {3, false}: false, {100, false}: true, {1, true}: false, {100, true}: true} {
		node(t, func(w *world) {
			v := w.version("good")
			w.attach(v, "d")
			if test.earlier {
				w.responds = func() Response { return Silent }
				w.pass(limit - 2*time.Second)
			}
			w.stop()
			w.pass(10 * limit)
			asked := 0
			w.responds = func() Response {
				if asked++; asked > test.silent {
					return Responded
				}
				return Silent
			}
			w.start()
			w.pass(time.Second / 2)
			w.attach(v, "d")
			w.pass(limit / 2)
			if got := len(w.undone) > 0; got != undone {
				w.t.Errorf("%+v: undone: %v", test, got)
			}
		})
	}
}

// A part that was attached stays unconfirmed while further attempts fail.
func TestAttemptsBeforeAResponse(t *testing.T) {
	node(t, func(w *world) {
		w.attach(w.version("good"), "d1")
		w.pass(limit)
		v := w.version("parts")
		w.attempt(v, "d2", Pass{Attached: true, Added: true})
		w.pass(limit)
		w.responds = func() Response { return Silent }
		w.attempt(v, "d2", Pass{Attached: true, Added: true})
		w.attempt(v, "d2", Pass{Attached: true})
		w.pass(2 * limit)
		w.runs(v, "the previous one")
	})
}

// After a reboot, the time since the former boot means nothing.
func TestRebootAfterARollback(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		v := w.version("bad")
		w.attach(v, "d")
		w.pass(limit + time.Second)
		w.boot("second")
		w.booted = w.booted.Add(-time.Hour)
		w.crash()
		w.pass(time.Second)
		w.responds = func() Response { return Responded }
		w.pass(limit)
		w.runs(v, "nothing", "this node doesn't try generation 1 again")
	})
}

// Nothing of a version is attached without a record on the disk, at none of its attach points.
func TestUnwritableRecord(t *testing.T) {
	node(t, func(w *world) {
		good := w.version("good")
		w.attach(good, "d1")
		w.pass(limit)
		if err := errors.Join(os.RemoveAll(w.dir), os.WriteFile(w.dir, nil, 0o600)); err != nil {
			w.t.Fatal(err)
		}
		v := w.version("bad")
		for range 2 {
			if err := w.changes.Begin(key, v); err == nil {
				w.t.Error("it is attached without a record")
			}
		}
		if is := w.changes.Confirmed(key, "uid"); is == nil || is.Generation() != good.Generation() || w.changes.Unconfirmed() > 0 {
			w.t.Errorf("%+v runs", is)
		}
		first := program.Key{Kind: key.Kind, Name: "first"}
		if err := w.changes.Begin(first, v); err == nil || len(w.changes.Keys()) != 1 {
			w.t.Errorf("records of %v after %v", w.changes.Keys(), err)
		}
		if err := errors.Join(os.Remove(w.dir), os.Mkdir(w.dir, 0o700), w.changes.Begin(key, v)); err != nil || w.changes.Unconfirmed() != 1 {
			w.t.Errorf("with a disk that works: %v", err)
		}
	})
}

// An agent that was killed after a request without a response asks again, before it rolls anything back.
func TestKilledInSilence(t *testing.T) {
	node(t, func(w *world) {
		w.responds = func() Response { return Silent }
		v := w.version("good")
		w.attach(v, "d")
		w.pass(limit - 2*time.Second)
		if w.requests == 0 {
			w.t.Fatal("it hasn't asked")
		}
		w.stop()
		w.pass(2 * limit)
		w.responds = func() Response { return Responded }
		w.start()
		w.pass(time.Second)
		w.attach(v, "d")
		w.pass(limit)
		w.runs(v, "it")
		if len(w.undone) > 0 || w.changes.Unconfirmed() > 0 {
			w.t.Errorf("undone %q", w.undone)
		}
	})
}

// A response to a request from before all of a version was attached doesn't confirm it, but ends the silence.
func TestResponseToAnEarlierRequest(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("good")
		deadline, ended := time.Now().Add(limit), false
		w.responds = func() Response {
			switch left := time.Until(deadline); {
			case ended:
			case left > again:
				return Silent
			default: // the last request in time
				w.Unlock()
				<-time.After(left / 2)
				w.Lock()
				ended = true
				if err := w.changes.End(key, v, Pass{Attached: true, Added: true, Complete: true}); err != nil {
					w.t.Error(err)
				}
			}
			return Responded
		}
		if err := w.changes.Begin(key, v); err != nil {
			w.t.Fatal(err)
		}
		w.pass(2 * limit)
		w.runs(v, "it")
		if !ended || len(w.undone) > 0 || w.changes.Unconfirmed() > 0 {
			w.t.Errorf("ended: %t, undone %q", ended, w.undone)
		}
	})
}

// If rolling back one version didn't restore the connection, and rolling back a later one did, only the later one is refused.
func TestLaterCause(t *testing.T) {
	node(t, func(w *world) {
		later := program.Key{Kind: key.Kind, Name: "later"}
		w.responds = func() Response {
			if len(w.undone) > 1 {
				return Responded
			}
			return Silent
		}
		good, bad := w.version("good"), w.version("bad")
		w.attach(good, "d1")
		w.pass(limit / 3)
		if err := errors.Join(w.changes.Begin(later, bad), w.changes.End(later, bad, Pass{Attached: true, Added: true, Complete: true})); err != nil {
			w.t.Fatal(err)
		}
		w.pass(2 * limit)
		w.runs(good, "it")
		if r := w.changes.Rollback(later, bad); r == nil || !strings.Contains(r.Message, "got one after the rollback") {
			w.t.Errorf("the later one: %+v", r)
		}
	})
}

// A version whose confirmation couldn't be written, for example to a full disk, isn't rolled back by a later reboot.
func TestConfirmedOnAFullDisk(t *testing.T) {
	node(t, func(w *world) {
		v := w.version("good")
		w.attach(v, "d")
		aside := w.dir + ".aside"
		if err := errors.Join(os.Rename(w.dir, aside), os.WriteFile(w.dir, nil, 0o600)); err != nil {
			w.t.Fatal(err)
		}
		w.pass(2 * limit)
		if w.changes.Unconfirmed() > 0 {
			w.t.Fatal("not confirmed")
		}
		if err := errors.Join(os.Remove(w.dir), os.Rename(aside, w.dir)); err != nil {
			w.t.Fatal(err)
		}
		w.pass(limit)
		w.boot("second")
		w.crash()
		w.pass(limit)
		w.runs(v, "it")
		if len(w.undone) > 0 {
			w.t.Errorf("undone %q", w.undone)
		}
	})
}

// While no version waits for a response, it is found out from time to time who responds.
func TestPrepared(t *testing.T) {
	node(t, func(w *world) {
		w.stop()
		w.pass(0)
		prepared, stays, enough := 0, false, true
		w.changes.Prepare = func(_ context.Context, unchanged func() bool) bool {
			w.Lock()
			defer w.Unlock()
			prepared++
			stays = unchanged()
			return enough
		}
		w.responds = func() Response { return Reached } // the version stays open
		w.attach(w.version("good"), "d1")
		ctx, stop := context.WithCancel(w.t.Context())
		defer stop()
		go func() { _ = w.changes.Run(ctx) }()
		w.pass(limit)
		if prepared != 0 {
			w.t.Errorf("prepared %d times while a version is tried", prepared)
		}
		w.responds = func() Response { return Responded }
		w.pass(limit)
		if prepared != 1 || !stays {
			w.t.Errorf("prepared %d times, unchanged: %v", prepared, stays)
		}
		w.pass(2 * prepareAgain)
		if prepared < 2 || prepared > 3 {
			w.t.Errorf("prepared %d times", prepared)
		}
		prepared, enough = 0, false
		w.pass(prepareAgain + 10*prepareSoon)
		if prepared < 10 || prepared > 11 {
			w.t.Errorf("prepared %d times while that finds nothing out", prepared)
		}
	})
}
