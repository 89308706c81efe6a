// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/reader"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// quiet is how long an image can be read before the reports say so. Until then, they
// don't change: most images are read within a fraction of it.
const quiet = 5 * time.Second

// loadImage has the daemon load functions from the object of the owner's image, if
// policies allow it. What the daemon loads is what was verified: a file that the reader
// has written.
func (r *Controller) loadImage(ctx context.Context, owner program.Owner, request *gobpfman.LoadRequest, g *gate) (report.Judgement, error) {
	reference := owner.Bytecode.Image.Url
	judgement := report.Judgement{Image: bytecode.Image{Reference: reference}, Policies: g.evaluation.Decide(nil)}
	if g.change.image.Reference == reference {
		judgement.Image = g.change.image
	}
	if g.evaluation.Denied() { // independently of the registry
		return judgement, refusal(judgement)
	}
	if r.RequirePolicy && !g.change.allowed && !g.evaluation.Signed() {
		return judgement, &report.PolicyError{Message: noPolicy, Final: true}
	}
	found, err := r.find(ctx, owner.Key, g, bytecode.Question{
		Image: judgement.Image, PullPolicy: owner.Bytecode.Image.ImagePullPolicy, Object: true,
	}, g.evaluation.Request())
	judgement = judge(g.evaluation, found, err)
	if err != nil && found.Path == "" {
		unfit := (*bytecode.UnfitError)(nil)
		return judgement, &report.BytecodeError{Err: err, Final: errors.As(err, &unfit) || owner.Subject.ImageError != nil}
	}
	if err := refusal(judgement); err != nil {
		return judgement, err
	}
	if err := missing(request, found); err != nil {
		return judgement, err
	}
	request.Bytecode = &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: found.Path}}
	request.Metadata[v1alpha1.MetadataImage] = reference
	request.Metadata[v1alpha1.MetadataDigest] = found.Digest
	request.Metadata[v1alpha1.MetadataManifest] = found.Manifest
	return judgement, r.refusals.try(owner, request, func() error {
		if err := r.settlePins(ctx); err != nil {
			return err
		}
		err := r.Inventory.Load(ctx, request)
		if failed := (*daemon.Error)(nil); errors.As(err, &failed) && failed.Refused() {
			return r.mendPins(ctx, owner, request, found.Object.Maps, err)
		}
		return err
	})
}

// keep reads the images of an owner's programs into the store, if an earlier version of
// bpfman loaded them without it. After a reboot, they are then loaded without a registry.
func (r *Controller) keep(ctx context.Context, owner program.Owner, g *gate) {
	if owner.Bytecode.Image == nil {
		return
	}
	for _, p := range r.Inventory.Of(owner.Key) {
		if _, kept := r.stored.Load(p.Image); kept || p.Image.Digest == "" || p.Image.Reference != owner.Bytecode.Image.Url {
			continue
		}
		found, err := r.Bytecode.Find(ctx, bytecode.Question{
			Image: p.Image, PullPolicy: owner.Bytecode.Image.ImagePullPolicy, Credentials: g.credentials, Object: true,
		}, func() {})
		if err == nil && found.Path != "" {
			r.stored.Store(p.Image, nil)
			r.forgetUnloaded()
		}
	}
}

// forgetUnloaded removes the images of programs that were unloaded from those that are known
// to be in the store.
func (r *Controller) forgetUnloaded() {
	loaded := r.Inventory.Images()
	r.stored.Range(func(image, _ any) bool {
		if !slices.Contains(loaded, image.(bytecode.Image)) { //nolint:errcheck // the only type of its keys
			r.stored.Delete(image)
		}
		return true
	})
}

// noPolicy says what to do if bpfman.toml requires signatures, which only policies can.
const noPolicy = "bpfman.toml has verify_enabled = true and allow_unsigned = false, so an image needs a BytecodePolicy in mode enforce that matches it and requires a signature (signedBy); none does"

// find asks for an image, with what policies request about it.
func (r *Controller) find(ctx context.Context, key program.Key, g *gate, q bytecode.Question, request *reader.Request) (bytecode.Bytecode, error) {
	if request != nil {
		q.Authorities, q.Attestations, q.Object = request.Authorities, request.Attestations, q.Object || request.Object
	}
	q.Credentials = g.credentials
	found, err := r.Bytecode.Find(ctx, q, func() { r.queue.Add(key) })
	if pending := (*bytecode.PendingError)(nil); errors.As(err, &pending) {
		g.wait(quiet - time.Since(pending.Since))
	}
	return found, err
}

// judge returns the verdicts of policies on what was found out about an image, or on the
// error.
func judge(e policy.Evaluation, found bytecode.Bytecode, err error) report.Judgement {
	answer := reader.Answer{Signatures: found.Signatures, Attestations: found.Attestations}
	if found.Path != "" {
		answer.Object = &found.Object
	}
	if err != nil {
		answer = reader.Answer{Error: err.Error()}
	}
	j := report.Judgement{Image: found.Image, Policies: e.Decide(&answer)}
	for _, finding := range answer.Signatures {
		if finding.Signer != "" {
			j.Signers = append(j.Signers, finding.Signer)
		}
	}
	slices.Sort(j.Signers)
	j.Signers = slices.Compact(j.Signers)
	return j
}

// missing returns an error if the object is known to lack a function. The daemon would
// store the object before it notices.
func missing(request *gobpfman.LoadRequest, found bytecode.Bytecode) error {
	var lacking, have []string
	for _, f := range found.Object.Functions {
		have = append(have, f.Name)
	}
	for _, f := range request.GetInfo() {
		if !slices.Contains(have, f.GetName()) {
			lacking = append(lacking, f.GetName())
		}
	}
	if len(lacking) == 0 || len(have) == 0 {
		return nil
	}
	return fmt.Errorf("load from image %s: it has no function %s; its functions are %s", found.Reference, strings.Join(lacking, ", "), some(have))
}

// some joins names, and cuts long lists.
func some(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// usedImages returns the images that objects on this node can use: those of the daemon's
// programs, and those of all objects, whether they select the node now or not.
func (r *Controller) usedImages() []bytecode.Image {
	used := append(r.Inventory.Images(), r.Changes.Images()...)
	for _, kind := range v1alpha1.UserKinds {
		objects, err := r.Cluster.UserObjects(kind.Name)
		if err != nil {
			continue // kinds that aren't read have no objects that the agent knows
		}
		for _, o := range objects {
			if kinds.Undecodable(o) != "" {
				continue
			}
			if image := o.GetAppCommon().ByteCode.Image; image != nil {
				used = append(used, bytecode.Image{Reference: image.Url})
			}
		}
	}
	return used
}
