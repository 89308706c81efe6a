// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/bpfman/bpfman-operator/agent/pins"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// maxAside is the maximum length of the daemon's error after a known cause, in bytes.
const maxAside = 256

// pinError is the failure of a Load with the pins that can be its cause.
type pinError struct {
	reason  problem.Reason
	text    string
	failure error
}

func (e *pinError) Error() string { return e.text }

func (e *pinError) Unwrap() error { return e.failure }

// Problem implements the method of errors that name their problem.
func (e *pinError) Problem() problem.Reason { return e.reason }

// mendPins checks whether a Load failed because pinned maps differ from the maps that
// the bytecode declares. If the owner has the annotation for it, mendPins loads the
// bytecode with new maps. The version that is loaded keeps running with its maps until
// then, and if the bytecode still can't be loaded. Without the annotation, the error
// explains what to do.
func (l *Loader) mendPins(ctx context.Context, owner program.Owner, request *gobpfman.LoadRequest, declared []reader.Map, failure error) error {
	misfits := l.misfits(ctx, declared)
	if len(misfits) == 0 {
		return failure
	}
	words := make([]string, len(misfits))
	for n, m := range misfits {
		words[n] = m.String()
	}
	cause := strings.Join(words, "; ")
	explain := func(reason problem.Reason, what string, err error) error {
		return &pinError{reason, fmt.Sprintf("%s: %s; the daemon reports: %s", cause, what, shorten.Middle(err.Error(), maxAside)), err}
	}
	if !owner.ReplacePinnedMaps {
		return explain(problem.PinnedMapDiffers, "to replace the map, whose entries are then lost, set the annotation "+v1alpha1.AnnotationReplacePinnedMaps, failure)
	}
	l.replacing.Lock()
	defer l.replacing.Unlock()
	if err := l.setAside(ctx, owner.Key, misfits); err != nil {
		return fmt.Errorf("%s: %w", cause, errors.Join(err, l.settle(ctx)))
	}
	err := l.request(ctx, owner.Key, request)
	if settled := l.settle(ctx); settled != nil {
		logr.FromContextOrDiscard(ctx).Error(settled, "Failed to remove replaced pins, or to put them back; retrying at the next load")
	}
	if err != nil {
		return explain(problem.PinNotTheCause, "the bytecode can't be loaded with a new map either, so the pinned map stays", err)
	}
	l.Replaced(owner.Key, cause)
	return nil
}

// settlePins ends replacements that were interrupted, for example by a restart of the agent.
func (l *Loader) settlePins(ctx context.Context) error {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	return l.settle(ctx)
}

// comparesPins reports whether the maps in PinsDir are those that the daemon uses.
func (l *Loader) comparesPins() bool { return l.PinsDir != "" && l.Inventory.PinsInSysfs() }

func (l *Loader) settle(ctx context.Context) error {
	if !l.comparesPins() {
		return nil
	}
	replaced, err := pins.Replaced(l.PinsDir)
	if err != nil || len(replaced) == 0 {
		return err
	}
	users, err := l.Inventory.UsersOfMaps(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range replaced {
		errs = append(errs, pins.Settle(l.PinsDir, name, func(id uint32) bool { return len(users[id]) > 0 }))
	}
	return errors.Join(errs...)
}

// misfits returns the declared maps that don't fit their pins. It returns nil if it can't
// compare them.
func (l *Loader) misfits(ctx context.Context, declared []reader.Map) []pins.Misfit {
	if !l.comparesPins() {
		return nil
	}
	misfits, err := pins.Misfits(l.PinsDir, declared)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to compare pinned maps with the image")
	}
	return misfits
}

// setAside sets aside the pins of maps that only the owner's programs use.
func (l *Loader) setAside(ctx context.Context, key program.Key, misfits []pins.Misfit) error {
	users, err := l.Inventory.UsersOfMaps(ctx)
	if err != nil {
		return err
	}
	var own []uint32
	for _, p := range l.Inventory.Of(key) {
		own = append(own, p.ID)
	}
	for _, m := range misfits {
		others := slices.DeleteFunc(slices.Clone(users[m.ID]), func(id uint32) bool { return slices.Contains(own, id) })
		if len(others) > 0 {
			return problem.Errorf(problem.PinInUse, "the pin is kept because other programs use the map: %d", others)
		}
	}
	for _, m := range misfits {
		if err := m.SetAside(); err != nil {
			return err
		}
	}
	return nil
}
