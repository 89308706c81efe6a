// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package gate decides which bytecode is loaded and attached on this node, by the cluster's policies. It is between a plan
// and its execution.
package gate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	// UnreadRetry is the interval of retries for an owner that depends on a kind that the API
	// server doesn't let the agent read.
	UnreadRetry = 5 * time.Second
	// policyRetry is the interval of evaluations for a running program with an unknown
	// verdict.
	policyRetry = time.Minute
	// quiet is how long an image can be read before the reports say so. Until then, they
	// don't change: most images are read within a fraction of it.
	quiet = 5 * time.Second
)

// errNoPolicy says what to do if bpfman.toml requires signatures, which only policies can.
var errNoPolicy = problem.Errorf(problem.SignatureRequired, "bpfman.toml has verify_enabled = true and allow_unsigned = false, so an image needs a BytecodePolicy in mode enforce that matches it and requires a signature (signedBy); none does")

// Earlier is what is known of a version that ran on this node before.
type Earlier struct {
	// Image is what the version's reference was resolved to. It is loaded from the node's store.
	Image bytecode.Image
	// Allowed means that policies allowed the version then.
	Allowed bool
	// Running, if not nil, returns what policies see of the version that runs until another one is loaded, or nil if that isn't
	// known. It decodes that version, so it is only called if a program of it runs.
	Running func() *policy.Subject
}

// Gate has the policies for an owner at one time. It is for one worker.
type Gate struct {
	from        *Policies
	owner       *program.Owner
	policies    []*policy.Policy
	evaluation  policy.Evaluation
	earlier     Earlier
	credentials func() (reader.Credentials, error)
	// unread is the reason why policies aren't known, or nil. If it is set, nothing is
	// loaded or attached.
	unread error
	// unknown means that the verdict for a running program is unknown.
	unknown bool
	// waits is how long to wait for images before reports change, or 0.
	waits time.Duration
}

// Again returns the time until the next reconciliation if nothing failed, or 0 for none.
func (g *Gate) Again() time.Duration {
	switch {
	case g.unread != nil:
		return UnreadRetry
	case g.unknown:
		return wait.Jitter(policyRetry, 1)
	}
	return 0
}

// Waits returns how long reports wait, because an image is being read, or 0.
func (g *Gate) Waits() time.Duration { return g.waits }

// Credentials returns the credentials for the registry of the owner's image.
func (g *Gate) Credentials() (reader.Credentials, error) { return g.credentials() }

// Admit returns the verdicts of policies on the owner's bytecode, and an error unless it may be loaded. For an image, it
// returns what is in it, which is in the node's store.
func (g *Gate) Admit(ctx context.Context) (report.Judgement, bytecode.Bytecode, error) {
	if g.unread != nil {
		return report.Judgement{}, bytecode.Bytecode{}, &report.PolicyError{Err: g.unread}
	}
	judgement := report.Judgement{Image: bytecode.Image{Reference: report.BytecodeName(g.owner.Bytecode)}, Policies: g.evaluation.Decide(nil)}
	image := g.owner.Bytecode.Image
	if image == nil {
		return judgement, bytecode.Bytecode{}, refusal(judgement)
	}
	if g.earlier.Image.Reference == image.Url {
		judgement.Image = g.earlier.Image
	}
	if g.evaluation.Denied() { // independently of the registry
		return judgement, bytecode.Bytecode{}, refusal(judgement)
	}
	if g.from.RequireSignature && !g.earlier.Allowed && !g.evaluation.Signed() {
		return judgement, bytecode.Bytecode{}, &report.PolicyError{Err: errNoPolicy, Final: true}
	}
	found, err := g.find(ctx, bytecode.Question{Image: judgement.Image, PullPolicy: image.ImagePullPolicy, Object: true}, g.evaluation.Request())
	judgement = judge(g.evaluation, found, err)
	refused := refusal(judgement)
	pending := (*bytecode.PendingError)(nil)
	if err != nil && (found.Path == "" || refused != nil && errors.As(err, &pending)) {
		unfit := (*bytecode.UnfitError)(nil)
		return judgement, found, &report.BytecodeError{Err: err, Final: errors.As(err, &unfit) || g.owner.Subject.ImageError != nil}
	}
	return judgement, found, refused
}

// Apply evaluates the policies for an owner's loaded programs. It returns what they allow of a plan, and the verdicts by the index
// of the Load: it has programs evicted, and closes attach points. A program that violates a policy, but isn't evicted, keeps its
// links and gets no new ones.
func (g *Gate) Apply(ctx context.Context, want plan.Plan, actual []daemon.Program) (plan.Plan, map[int]report.Judgement) {
	judgements := map[int]report.Judgement{}
	if g.unread != nil {
		return want.With(func(_ int, wanted plan.Program) plan.Program { return closed(wanted, g.unread) }), judgements
	}
	if len(g.policies) == 0 {
		return want, judgements
	}
	var evicted []daemon.Program
	evict := func(e policy.Evaluation, j report.Judgement, programs ...daemon.Program) {
		if e.Unloads(j.Policies) {
			evicted = append(evicted, programs...)
		}
	}
	wanted, denied := map[uint32]bool{}, map[int]error{}
	for n := range want.Loads {
		present := want.Present(n, actual)
		if present == nil {
			continue
		}
		var image bytecode.Image
		for _, p := range present {
			image, wanted[p.ID] = p.Image, true
		}
		image.Reference = cmp.Or(image.Reference, report.BytecodeName(g.owner.Bytecode))
		j := g.judgeRunning(ctx, g.evaluation, image)
		judgements[n] = j
		verdict, why := policy.Sum(j.Policies)
		g.unknown = g.unknown || verdict == v1alpha1.VerdictUnknown
		if verdict == v1alpha1.VerdictDenied {
			denied[n] = why
			evict(g.evaluation, j, slices.Collect(maps.Values(present))...)
		}
	}
	// Programs that still run in place of ones that aren't loaded, or that are about to be
	// replaced.
	for _, p := range actual {
		if wanted[p.ID] || p.OwnerUID != string(g.owner.UID) {
			continue
		}
		subject, known := g.running(p)
		if !known {
			continue
		}
		e := policy.Evaluate(g.policies, subject)
		evict(e, g.judgeRunning(ctx, e, p.Image), p)
	}
	return want.WithEvicted(evicted...).With(func(n int, wanted plan.Program) plan.Program {
		wanted = limited(g.evaluation, wanted)
		if why, is := denied[n]; is {
			wanted = closed(wanted, why)
		}
		return wanted
	}), judgements
}

// running returns what policies see of a program that isn't wanted anymore. Without a record of its version, its hooks aren't known:
// those of the wanted version stand for them.
func (g *Gate) running(p daemon.Program) (policy.Subject, bool) {
	subject, recorded := g.owner.Subject, false
	if g.earlier.Running != nil {
		if running := g.earlier.Running(); running != nil {
			subject, recorded = *running, true
		}
	}
	if p.Image.Reference == "" {
		return subject, recorded && subject.Image.IsFile()
	}
	subject.Image, subject.ImageError = policy.ParseImage(v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: p.Image.Reference}})
	return subject, true
}

// judgeRunning returns the verdicts of policies on the image of a loaded program.
func (g *Gate) judgeRunning(ctx context.Context, e policy.Evaluation, image bytecode.Image) report.Judgement {
	request := e.Request()
	switch {
	case request == nil || e.Denied():
		return report.Judgement{Image: image, Policies: e.Decide(nil)}
	case image.Digest == "":
		return judge(e, bytecode.Bytecode{Image: image}, problem.Errorf(problem.DigestUnknown, "the image's digest is unknown on this node, because an earlier version of bpfman pulled it"))
	}
	found, err := g.find(ctx, bytecode.Question{Image: image}, request)
	return judge(e, found, err)
}

// find asks for an image, with what policies request about it.
func (g *Gate) find(ctx context.Context, q bytecode.Question, request *reader.Request) (bytecode.Bytecode, error) {
	if request != nil {
		q.Authorities, q.Attestations, q.Object = request.Authorities, request.Attestations, q.Object || request.Object
	}
	q.Owner, q.Credentials = g.owner.Key, g.credentials
	id := reading{g.owner.Key, g.owner.UID, g.owner.Generation, q.Image, q.Object}
	found, err := g.from.failures.try(id, func() (bytecode.Bytecode, error) {
		return g.from.Bytecode.Find(ctx, q, func() { g.from.Read(g.owner.Key) })
	})
	if pending := (*bytecode.PendingError)(nil); errors.As(err, &pending) {
		g.waits = max(g.waits, quiet-time.Since(pending.Since))
	}
	return found, err
}
