// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent/pins"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/event"
	"github.com/bpfman/bpfman-operator/apis/reader"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// maxAside is the maximum length of the daemon's error after a known cause, in bytes.
const maxAside = 256

// mendPins checks whether a Load failed because pinned maps differ from the maps that
// the bytecode declares. If the owner has the annotation for it, mendPins removes pins
// that no other program uses, and loads the bytecode again. Otherwise, the error
// explains what to do.
func (r *Reconciler) mendPins(ctx context.Context, owner program.Owner, request *gobpfman.LoadRequest, declared []reader.Map, failure error) error {
	misfits := r.misfits(ctx, declared)
	if len(misfits) == 0 {
		return failure
	}
	words := make([]string, len(misfits))
	for n, m := range misfits {
		words[n] = m.String()
	}
	cause := strings.Join(words, "; ")
	if !owner.ReplacePinnedMaps {
		return fmt.Errorf("%s: remove the pin once no program uses the map, or set the annotation %s; the daemon reports: %s",
			cause, v1alpha1.AnnotationReplacePinnedMaps, shorten.Middle(failure.Error(), maxAside))
	}
	if err := r.replacePins(ctx, owner.Key, misfits); err != nil {
		return fmt.Errorf("%s: %w", cause, err)
	}
	if object, err := r.Cluster.UserObject(owner.Kind, owner.Namespace, owner.Name); err == nil {
		event.Emit(r.Cluster.Events, object, corev1.EventTypeNormal, "PinsRemoved", "Load", fmt.Sprintf("Removed pins on node %s: %s", r.NodeName, cause))
	}
	return r.Inventory.Load(ctx, request)
}

// misfits returns the declared maps that don't fit their pins. It returns nil if it can't
// compare them.
func (r *Reconciler) misfits(ctx context.Context, declared []reader.Map) []pins.Misfit {
	if r.PinsDir == "" {
		return nil
	}
	misfits, err := pins.Misfits(r.PinsDir, declared)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("Failed to compare pinned maps with the image", "reason", err.Error())
	}
	return misfits
}

// replacePins removes the pins of maps that only the owner's programs use, after it has
// unloaded these programs.
func (r *Reconciler) replacePins(ctx context.Context, key program.Key, misfits []pins.Misfit) error {
	users, err := r.Inventory.UsersOfMaps(ctx)
	if err != nil {
		return err
	}
	var own []uint32
	for _, p := range r.Inventory.Of(key) {
		own = append(own, p.ID)
	}
	for _, m := range misfits {
		others := slices.DeleteFunc(slices.Clone(users[m.ID]), func(id uint32) bool { return slices.Contains(own, id) })
		if len(others) > 0 {
			return fmt.Errorf("the pin is kept because other programs use the map: %d", others)
		}
	}
	unloaded := map[uint32]bool{}
	for _, m := range misfits {
		for _, id := range users[m.ID] {
			if unloaded[id] {
				continue
			}
			if err := r.Inventory.Unload(ctx, id); err != nil {
				return err
			}
			unloaded[id] = true
		}
	}
	if users, err = r.Inventory.UsersOfMaps(ctx); err != nil {
		return err
	}
	for _, m := range misfits {
		if still := users[m.ID]; len(still) > 0 {
			return fmt.Errorf("the pin is kept because programs still use the map: %d", still)
		}
	}
	var errs []error
	for _, m := range misfits {
		errs = append(errs, m.Remove())
	}
	return errors.Join(errs...)
}
