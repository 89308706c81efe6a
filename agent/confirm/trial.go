// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package confirm rolls back changes after which the node can't reach the API server.
//
// Before the agent attaches network programs of a new version of an object, it records the version on the node's disk.
// The version is confirmed by a response of the API server over a new connection. Without one within a time limit, the
// version that was confirmed before runs again, or nothing if there was none. If that restores the connection, the new
// version is refused on this node. If it doesn't, the version wasn't the cause, and is tried again when the API server
// responds.
package confirm

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// Version is what a user object requests, and the facts of the node that are needed to run it without the API server.
type Version struct {
	Kind string `json:"kind"`
	// Object has the part of the user object that affects its programs.
	Object rollout.Revision `json:"object"`
	// Image is what the reference in the object was resolved to. It is empty until the bytecode is loaded.
	Image bytecode.Image `json:"image"`
	// Addresses are the internal IP addresses of the node, which determine its primary interface.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Places are where the version was confirmed, sorted.
	Places []program.Place `json:"places,omitempty"`
	// Unattached means that the version ran, but that there was no place yet where it could cut off the node. A confirmed
	// version that has no places, and isn't unattached, was confirmed completely.
	Unattached bool `json:"unattached,omitempty"`
}

// Confined reports whether the version was confirmed only at its places, of which there can be none.
func (v *Version) Confined() bool { return v.Unattached || len(v.Places) > 0 }

// mostPlaces bounds the places in a record. It is several times the number of interfaces that a program discovers.
const mostPlaces = 4096

// confirmedAt returns the places where a version is confirmed after a response, at which it was attached to some. Those where
// it is no longer attached stay confirmed, unless there are too many, for example because of interfaces of pods.
func (v *Version) confirmedAt(attached []program.Place) []program.Place {
	all := slices.Concat(v.Places, attached)
	slices.SortFunc(all, program.Place.Compare)
	if all = slices.Compact(all); len(all) > mostPlaces {
		all = attached
	}
	return all[:min(len(all), mostPlaces)]
}

// has reports whether the version was confirmed at one of several places.
func (v *Version) has(at []program.Place) bool {
	return slices.ContainsFunc(at, func(p program.Place) bool { return slices.Contains(v.Places, p) })
}

// VersionOf returns the version of a user object of a kind.
func VersionOf(kind string, o v1alpha1.UserObject) (Version, error) {
	revision, err := rollout.RevisionOf(o)
	return Version{Kind: kind, Object: revision}, err
}

// UserObject returns the object as it was in this version.
func (v *Version) UserObject() (v1alpha1.UserObject, error) { return v.Object.Object(v.Kind) }

// Owner returns the owner of the version's programs. Policies see no labels of the node.
func (v *Version) Owner() (*program.Owner, error) {
	object, err := v.UserObject()
	if err != nil {
		return nil, err
	}
	owner := program.OwnerOf(v.Kind, object)
	owner.Subject = policy.SubjectOf(v.Kind, object)
	return &owner, nil
}

// Generation returns the generation of the object.
func (v *Version) Generation() int64 { return v.Object.Metadata.Generation }

// id identifies the revision of the object.
func (v *Version) id() string { return v.Object.Hash() }

// state is the state of a version that isn't confirmed.
type state string

const (
	// trying means that the version is attached, or is about to be.
	trying state = "Trying"
	// partial means that what is attached of the version was confirmed, and that a part of it couldn't be attached yet. When
	// it is about to be attached elsewhere, the rest is tried.
	partial state = "Partial"
	// undoing means that the previous version is about to be attached instead. If the version has places, that is the version
	// itself, at these places.
	undoing state = "Undoing"
	// undone means that this was done, and that it isn't known whether that restores the connection.
	undone state = "Undone"
	// refused means that undoing the version restored the connection, or that the node restarted before the version was
	// confirmed.
	refused state = "Refused"
	// unproven means that undoing the version didn't restore the connection.
	unproven state = "Unproven"
)

// trial is a version that isn't confirmed.
type trial struct {
	Version Version `json:"version"`
	State   state   `json:"state"`
	// Boot is the ID of the node's boot in which the version was attached.
	Boot string `json:"boot"`
	// Due is when a state ends without a response, as the node's uptime: trying and undone. Only the next process of the agent
	// uses it. 0 is from a version of bpfman that stored a time.
	Due time.Duration `json:"due,omitempty"`
	// Limit is the time limit that was exceeded, for the message.
	Limit time.Duration `json:"limit"`
	// Restarted means that the node restarted before the version was confirmed.
	Restarted bool `json:"restarted,omitempty"`
	// Silent means that the last request had no response. Then only a response moves the deadline. Without it, nothing is
	// undone: the agent or the node can have been stopped until the deadline.
	Silent bool `json:"silent,omitempty"`
	// Part means that a part of the version was confirmed before. Without places in the version, it isn't known which one: an
	// earlier version of bpfman recorded it, or programs of the previous version still ran beside it.
	Part bool `json:"part,omitempty"`

	// unheard means that this process has had a request without a response since the last one with a response.
	unheard bool
	// deadline is Due in this process.
	deadline time.Time
	// since is when the state began. It is zero until the version is attached, which can take longer than the time limit. A
	// response to an earlier request doesn't count: more can have been attached since then.
	since time.Time
	// attached means that network programs of the version are known to be attached. An attempt that failed can have
	// attached them too. complete means that nothing failed. added means that a pass of this trial may have attached some.
	attached, complete, added bool
	// places are where they are known to be attached, unless programs of another version run beside them.
	places []program.Place
}

// resumed returns the trial of an earlier process of the agent. The wall clock can have been set since then.
func (t trial) resumed(now time.Time, uptime time.Duration, boot string, limit time.Duration) *trial {
	left := limit
	if t.Due > 0 && t.Boot == boot {
		left = min(t.Due-uptime, limit)
	}
	t.deadline, t.added = now.Add(left), true
	switch {
	case t.State == trying && t.Boot != boot: // it can be what crashed the node, so it isn't attached again
		t.State, t.Restarted = undoing, true
	case t.State == undone || t.State == unproven:
		t.since = now
	}
	return &t
}

// begun returns the trial when network programs of its version are about to be attached, or an error if it is undone.
func (t trial) begun(now time.Time, boot string, limit time.Duration) (*trial, error) {
	switch t.State {
	case trying:
	case partial:
		t.State, t.Part, t.Boot, t.Silent, t.added, t.deadline = trying, true, boot, false, false, now.Add(limit)
	default:
		return nil, fmt.Errorf("generation %d is rolled back", t.Version.Generation())
	}
	t.since = time.Time{}
	return &t, nil
}

// ended returns the trial after a pass over the object.
func (t trial) ended(now time.Time, v Version, pass Pass, limit time.Duration) *trial {
	if t.since.IsZero() || t.attached != pass.Attached {
		t.since = now
		if !t.Silent {
			t.deadline = now.Add(limit)
		}
	}
	v.Places, v.Unattached = t.Version.Places, t.Version.Unattached
	t.Version, t.attached, t.complete, t.added, t.places = v, pass.Attached, pass.Complete, t.added || pass.Added, pass.Places
	if t.Part && !t.complete && !t.added {
		t.State = partial
	}
	return &t
}

// record is what the node knows about the versions of an object.
type record struct {
	// Confirmed is the version that ran when the API server responded. It is nil if there was none.
	Confirmed *Version `json:"confirmed,omitempty"`
	// Tried is a version that isn't confirmed, or nil.
	Tried *trial `json:"tried,omitempty"`
}

// heard returns the record after the API server responded to a request that was sent at a time.
func (r record) heard(sent time.Time) record {
	t := r.Tried
	if t == nil || !sent.After(t.since) {
		return r
	}
	next := *t
	switch t.State {
	case trying:
		switch {
		case !t.attached && len(t.Version.Places) == 0:
			return record{Confirmed: r.Confirmed}
		case !t.attached, !t.complete:
			next.State, next.Version.Places, next.Version.Unattached = partial, t.Version.confirmedAt(t.places), false
			return record{r.Confirmed, &next}
		}
		next.Version.Places, next.Version.Unattached = nil, false
		return record{Confirmed: &next.Version}
	case undone:
		next.State = refused
		return record{r.Confirmed, &next}
	case unproven:
		if len(t.Version.Places) == 0 {
			return record{Confirmed: r.Confirmed}
		}
		next.State = partial
		return record{r.Confirmed, &next}
	case partial, undoing, refused:
	}
	return r
}

// unheard returns the record after a request without a response. A single one undoes nothing: if the deadline has passed, for
// example because the agent or the node was stopped, there is time for others.
func (r record) unheard(now time.Time, limit time.Duration) record {
	if r.Tried == nil || r.Tried.State != trying || r.Tried.Silent && r.Tried.unheard {
		return r
	}
	next := *r.Tried
	next.Silent, next.unheard = true, true
	if least := now.Add(min(limit/3, 2*patience)); next.deadline.Before(least) { //nolint:mnd // the first request is in the first 60% of the limit
		next.deadline = least
	}
	return record{r.Confirmed, &next}
}

// passed returns the record at a time.
func (r record) passed(now time.Time, limit time.Duration) record {
	t := r.Tried
	if t == nil {
		return r
	}
	next := *t
	switch {
	case t.State == trying && t.Silent && now.After(t.deadline):
		next.State, next.Limit = undoing, limit
	case t.State == undone && now.After(t.deadline):
		return r.cleared()
	default:
		return r
	}
	return record{r.Confirmed, &next}
}

// cleared returns the record after undoing the version didn't restore the connection.
func (r record) cleared() record {
	next := *r.Tried
	next.State = unproven
	return record{r.Confirmed, &next}
}

// restored returns the record after the previous version was attached instead of the tried one.
func (r record) restored(now time.Time, limit time.Duration) record {
	next := *r.Tried
	next.State, next.since, next.deadline = undone, now, now.Add(limit)
	if next.Restarted {
		next.State = refused
	}
	return record{r.Confirmed, &next}
}

// postponed returns the record after a response that shows that the network works, but can't confirm a version: the API
// server's host refused the connection, TLS failed, or the version is being attached.
func (r record) postponed(now time.Time, limit time.Duration) record {
	if r.Tried == nil || r.Tried.State != trying && r.Tried.State != undone {
		return r
	}
	next := *r.Tried
	next.deadline, next.Silent, next.unheard = now.Add(limit), false, false
	return record{r.Confirmed, &next}
}

// open reports whether the record waits for a response of the API server.
func (r record) open() bool {
	return r.Tried != nil && r.Tried.State != refused && r.Tried.State != partial
}

// running returns the version that was confirmed and runs, or nil.
func (r record) running() *Version {
	switch {
	case r.Tried == nil:
		return r.Confirmed
	case r.Tried.State == partial, r.Tried.State != trying && r.rest():
		return &r.Tried.Version
	}
	return nil
}

// rest reports whether only the rest of the tried version isn't confirmed.
func (r record) rest() bool { return r.Tried != nil && r.Tried.Version.Confined() }

// before returns the version that runs if what is tried is undone, or nil.
func (r record) before() *Version {
	if r.rest() {
		return &r.Tried.Version
	}
	return r.Confirmed
}

// known returns the version that runs if a later one is undone, or nil. A part of which no place is known, because programs of another
// version run beside it, isn't run instead of that one. If that wasn't confirmed either, the part is attached nowhere.
func (r record) known() *Version {
	if before := r.before(); before != nil || r.running() == nil {
		return before
	}
	part := *r.running()
	part.Unattached = true
	return &part
}

// replaced returns the record after a pass over a version while another one is in the record as tried, and whether that is decided.
// Otherwise, it is as if none were tried.
func (r record) replaced(now time.Time, v Version, pass Pass, limit time.Duration) (next record, decided bool) {
	known := r.Confirmed != nil && r.Confirmed.id() == v.id()
	attached := r.Tried.State == trying || r.Tried.State == undoing // its links can be
	switch {
	case !pass.Complete && !pass.Replaced: // something of the tried version can still be attached
		return r, true
	case known && (!r.Confirmed.Confined() || !attached): // the object went back to it
		v.Places, v.Unattached = r.Confirmed.Places, r.Confirmed.Unattached
		return record{Confirmed: &v}, !pass.Complete
	case !attached:
		return r, !pass.Complete
	case !pass.Attached: // a response wouldn't be about the tried version anymore
		return record{Confirmed: r.before()}, !pass.Complete
	}
	// The versions can have the same links, of which nothing is confirmed by the change from one to the other.
	trial := *r.Tried
	trial.State, trial.Version, trial.Part, trial.added = trying, Version{}, known, true
	if known {
		trial.Version = *r.Confirmed
	}
	return record{r.before(), trial.ended(now, v, pass, limit)}, true
}

// ran returns a version after a pass that attached nothing new where it can cut off the node. Where it was confirmed before stays
// known. Otherwise, that is where it is attached now.
func (r record) ran(v Version, pass Pass) Version {
	v.Places, v.Unattached = pass.Places[:min(len(pass.Places), mostPlaces)], !pass.Attached
	for _, known := range []*Version{r.Confirmed, r.before()} {
		if known != nil && known.id() == v.id() {
			v.Places, v.Unattached = known.Places, known.Unattached
		}
	}
	return v
}

// permits reports whether a version was confirmed at one of several places.
func (r record) permits(id string, at []program.Place) bool {
	if v := r.Confirmed; v != nil && v.id() == id && (!v.Confined() || v.has(at)) {
		return true
	}
	return r.rest() && r.Tried.Version.id() == id && r.Tried.Version.has(at)
}

// attaching reports whether a part of the tried version may not be attached yet.
func (r record) attaching() bool {
	return r.Tried != nil && r.Tried.State == trying && r.Tried.since.IsZero()
}

// attachedSince reports whether a part of the tried version may not have been attached yet when a request was sent.
func (r record) attachedSince(sent time.Time) bool {
	return r.attaching() || r.Tried != nil && r.Tried.State == trying && !sent.After(r.Tried.since)
}

// interval returns the time from a request with a response to the next one, or 0 if the record waits for none.
func (r record) interval(response Response, limit time.Duration) time.Duration {
	switch {
	case !r.open():
		return 0
	case r.Tried.State == unproven:
		return later
	case r.attaching() && response != Silent:
		return limit / 2 //nolint:mnd // the next one is in time for the deadline
	default:
		return again
	}
}

// confirmed returns the versions that were confirmed, a part of the tried one included.
func (r record) confirmed() []*Version {
	var all []*Version
	for _, v := range []*Version{r.Confirmed, r.running(), r.before()} {
		if v != nil && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// versions returns the versions in the record.
func (r record) versions() []*Version {
	var all []*Version
	if r.Confirmed != nil {
		all = append(all, r.Confirmed)
	}
	if r.Tried != nil {
		all = append(all, &r.Tried.Version)
	}
	return all
}
