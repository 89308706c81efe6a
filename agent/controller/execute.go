// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// execute executes the steps from the daemon's current programs to the plan. If a step
// fails, only the steps that depend on it are skipped. It returns an error only if ctx
// ends. Other errors are in the outcome.
func (r *Reconciler) execute(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, g *gate, judgements map[int]report.Judgement) (report.Outcome, error) {
	outcome := report.Outcome{Loads: map[int]error{}, Attaches: map[report.Attach]error{}, Judgements: judgements}
	for _, step := range want.Diff(r.Inventory.Of(key)) {
		r.take(ctx, key, owner, want, step, g, &outcome)
		if ctx.Err() != nil {
			return outcome, fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
	}
	return outcome, nil
}

// take executes one step, and stores its error in the outcome.
func (r *Reconciler) take(ctx context.Context, key program.Key, owner *program.Owner, want plan.Plan, step plan.Step, g *gate, outcome *report.Outcome) {
	switch step.Op {
	case plan.OpLoad:
		judgement, err := r.load(ctx, *owner, want, step.Load, g)
		outcome.Judgements[step.Load] = judgement
		if err != nil {
			outcome.Loads[step.Load] = err
		}
	case plan.OpAttach:
		loaded, there := want.Present(step.Load, r.Inventory.Of(key))[step.Function]
		if !there || want.Evicted[loaded.ID] {
			return // its Load failed, which is reported
		}
		if err := r.attach(ctx, loaded.ID, step.Point); err != nil {
			outcome.Attaches[report.Attach{Load: step.Load, Function: step.Function, Link: plan.LinkOf(step.Point)}] = err
		}
	case plan.OpDetach:
		if err := r.Inventory.Detach(ctx, step.ProgramID, step.LinkID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	case plan.OpUnload:
		if step.Replaced && len(outcome.Loads) > 0 {
			return // it stays until its successor is loaded
		}
		if err := r.Inventory.Unload(ctx, step.ProgramID); err != nil {
			outcome.Removals = append(outcome.Removals, err)
		}
	}
}

// attach attaches a program to an attach point, unless that is missing. A missing one
// isn't left to the daemon, which might find it a moment before the agent does: the
// link would have the digest of a missing attach point.
func (r *Reconciler) attach(ctx context.Context, id uint32, point program.AttachPoint) error {
	if point.Lack != "" {
		return fmt.Errorf("attach to %s: %s", point.Name, point.Lack)
	}
	return r.Inventory.Attach(ctx, id, point)
}

// load executes the n-th Load of the plan, if policies allow it. Credentials are only
// read for a Load, so that deleting a Secret doesn't affect running programs.
func (r *Reconciler) load(ctx context.Context, owner program.Owner, want plan.Plan, n int, g *gate) (report.Judgement, error) {
	var judgement report.Judgement
	request, err := want.Loads[n].Request(owner)
	if err != nil {
		return judgement, &report.BytecodeError{Err: err}
	}
	if g.unread != nil {
		return judgement, &report.PolicyError{Message: g.unread.Error()}
	}
	permit := func(image bytecode.Image) error {
		judgement = r.judge(ctx, owner.Key, g, g.evaluation, image)
		return refusal(judgement)
	}
	image := request.GetBytecode().GetImage()
	if image == nil || g.evaluation.Denied() { // independently of the registry
		if err := permit(bytecode.Image{Reference: report.BytecodeName(owner.Bytecode)}); err != nil {
			return judgement, err
		}
	}
	if image != nil {
		credentials, unreadable := g.credentials()
		if unreadable != nil {
			return judgement, &report.BytecodeError{Err: unreadable}
		}
		authenticate(image, credentials)
		err = r.loadImage(ctx, request, owner.Bytecode.Image.Url, credentials, permit)
		if failed := (*daemon.Error)(nil); errors.As(err, &failed) && failed.Refused() {
			err = r.mendPins(ctx, owner, request, credentials, err)
		}
	} else {
		err = r.Inventory.Load(ctx, request)
	}
	if err != nil {
		return judgement, err
	}
	return judgement, r.checkSharing(ctx, want.Loads[n].MapOwner, want.Present(n, r.Inventory.Of(owner.Key)))
}

// checkSharing unloads programs that should use another program's maps, but have their
// own. bpfman v0.6.0 reports the other program's maps in that case too, so that users
// would read maps without data. It doesn't pass map_owner_id to the loader: programs
// only share maps that the bytecode pins by name.
func (r *Reconciler) checkSharing(ctx context.Context, mapOwner *uint32, loaded map[string]daemon.Program) error {
	if mapOwner == nil {
		return nil
	}
	shared := r.Inventory.MapIDs(*mapOwner)
	own := true
	for _, p := range loaded {
		own = own && len(p.MapIDs) > 0 && !slices.ContainsFunc(p.MapIDs, func(id uint32) bool { return slices.Contains(shared, id) })
	}
	if !own || len(shared) == 0 {
		return nil
	}
	var errs []error
	for _, p := range loaded {
		errs = append(errs, r.Inventory.Unload(ctx, p.ID))
	}
	return errors.Join(append([]error{fmt.Errorf(
		"the maps of program %d are not shared: bpfman v0.6 only shares maps that the bytecode pins by name (LIBBPF_PIN_BY_NAME)", *mapOwner)}, errs...)...)
}

// loadImage loads an image by the digest of its manifest, so that the daemon loads the
// same image that the agent inspected and policies allowed, even if the tag changes.
func (r *Reconciler) loadImage(ctx context.Context, request *gobpfman.LoadRequest, reference string, c bytecode.Credentials, permit func(bytecode.Image) error) error {
	policy := request.GetBytecode().GetImage().GetImagePullPolicy()
	refused, loaded, err := r.loadKnown(ctx, request, reference, permit)
	switch {
	case loaded || err != nil:
		return err
	case policy == plan.PullNever && refused != nil:
		return refused
	case policy == plan.PullNever:
		return r.loadPresent(ctx, request, reference, permit)
	}
	source, err := r.registries.Open(ctx, reference, c)
	if err != nil {
		return r.loadWithout(ctx, request, reference, permit, refused, err)
	}
	defer source.Close()
	if err := permit(source.Image); err != nil {
		return err
	}
	if unfit := source.Unfit(ctx); unfit != nil {
		return &report.BytecodeError{Err: unfit}
	}
	return r.loadResolved(ctx, request, source.Image, policy)
}

// loadKnown loads the image on the node that a reference was last resolved to, without
// a request to the registry, if the pull policy allows it. Refused is the error of
// policies that don't allow it, or nil.
func (r *Reconciler) loadKnown(ctx context.Context, request *gobpfman.LoadRequest, reference string, permit func(bytecode.Image) error) (refused error, loaded bool, err error) {
	policy := request.GetBytecode().GetImage().GetImagePullPolicy()
	present, known := r.resolved(reference)
	if policy == plan.PullAlways || !known {
		return nil, false, nil
	}
	if refused := permit(present); refused != nil {
		return refused, false, nil
	}
	err = r.loadResolved(ctx, request, present, plan.PullNever)
	if policy == plan.PullIfNotPresent && daemon.ImageAbsent(err) {
		return nil, false, nil
	}
	return nil, err == nil, err
}

// loadWithout loads an image that the daemon might have, after the registry failed to
// resolve its reference.
func (r *Reconciler) loadWithout(ctx context.Context, request *gobpfman.LoadRequest, reference string, permit func(bytecode.Image) error, refused, unresolved error) error {
	policy := request.GetBytecode().GetImage().GetImagePullPolicy()
	if refused == nil {
		refused = permit(bytecode.Image{Reference: reference})
	}
	switch {
	case refused != nil:
		return &report.PolicyError{Message: refused.Error() + "; " + unresolved.Error()}
	case policy == plan.PullAlways || bytecode.IsUnfit(unresolved):
		return &report.BytecodeError{Err: unresolved}
	}
	if err := r.loadPresent(ctx, request, reference, permit); err != nil {
		return &report.BytecodeError{Err: fmt.Errorf("%w; fall back to the image on the node: %w", unresolved, err)}
	}
	return nil
}

// loadResolved loads a resolved image, and remembers what its reference was resolved
// to.
func (r *Reconciler) loadResolved(ctx context.Context, request *gobpfman.LoadRequest, image bytecode.Image, policy int32) error {
	location := request.GetBytecode().GetImage()
	location.Url, location.ImagePullPolicy = image.Pinned(), policy
	request.Metadata[v1alpha1.MetadataImage] = image.Reference
	request.Metadata[v1alpha1.MetadataDigest] = image.Digest
	request.Metadata[v1alpha1.MetadataManifest] = image.Manifest
	err := r.Inventory.Load(ctx, request)
	if err == nil {
		r.images.keep(image)
	}
	return err
}

// loadPresent loads the image that the daemon has under the unresolved reference,
// because an earlier version of the agent pulled it.
func (r *Reconciler) loadPresent(ctx context.Context, request *gobpfman.LoadRequest, reference string, permit func(bytecode.Image) error) error {
	image := bytecode.Image{Reference: reference}
	if digest, ok := bytecode.DigestOf(reference); ok {
		image.Digest, image.Manifest = digest, digest
	}
	if err := permit(image); err != nil {
		return err
	}
	if image.Digest != "" {
		return r.loadResolved(ctx, request, image, plan.PullNever)
	}
	location := request.GetBytecode().GetImage()
	location.Url, location.ImagePullPolicy = reference, plan.PullNever
	for _, key := range []string{v1alpha1.MetadataImage, v1alpha1.MetadataDigest, v1alpha1.MetadataManifest} {
		delete(request.GetMetadata(), key)
	}
	return r.Inventory.Load(ctx, request)
}

// resolved returns the image that a reference was resolved to when it was last loaded
// on this node.
func (r *Reconciler) resolved(reference string) (bytecode.Image, bool) {
	if image, known := r.images.of(reference); known {
		return image, true
	}
	return r.Inventory.Resolved(reference)
}

// images stores the images that references were resolved to, so that an image can be
// loaded without its registry after all of its programs have been unloaded. The zero
// value is ready to use.
type images struct {
	once sync.Once
	kept *lru.Cache // maps reference to bytecode.Image
}

// maxImages is the maximum number of stored references.
const maxImages = 256

func (i *images) keep(image bytecode.Image) {
	i.once.Do(func() { i.kept = lru.New(maxImages) })
	i.kept.Add(image.Reference, image)
}

func (i *images) of(reference string) (bytecode.Image, bool) {
	i.once.Do(func() { i.kept = lru.New(maxImages) })
	found, known := i.kept.Get(reference)
	image, _ := found.(bytecode.Image)
	return image, known
}

func authenticate(image *gobpfman.BytecodeImage, c bytecode.Credentials) {
	if c != (bytecode.Credentials{}) {
		image.Username, image.Password = &c.Username, &c.Password
	}
}
