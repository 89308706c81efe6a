// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
)

const (
	// policyRetry is the interval of evaluations for a running program with an unknown
	// verdict.
	policyRetry = time.Minute
	// How long the material of authorities is cached after reading it succeeded or failed.
	// Changes that the operator reports in a policy's status invalidate it.
	materialHolds, materialLacks = 10 * time.Minute, 10 * time.Second
	// materialDeadline is the timeout of reading a policy's material.
	materialDeadline = 10 * time.Second
	// unreadWait is the time after the agent's start in which it waits for the first list
	// of policies without reporting that.
	unreadWait = 10 * time.Second
)

// gate contains the policies for an owner on this node. It is checked before a program is
// loaded or attached.
type gate struct {
	policies    []*policy.Policy
	evaluation  policy.Evaluation
	credentials func() (bytecode.Credentials, error)
	change      change
	// unread is the reason why policies aren't known, or nil. If it is set, nothing is
	// loaded.
	unread error
	// unknown means that the verdict for a running program is unknown.
	unknown bool
	// waits is how long to wait for images before reports change, or 0.
	waits time.Duration
}

// wait delays reports, because an image is being read. It does nothing if left isn't
// positive.
func (g *gate) wait(left time.Duration) { g.waits = max(g.waits, left) }

// gateFor evaluates the policies for an owner. It returns an error if they haven't been
// read yet, shortly after the agent's start.
func (r *Controller) gateFor(ctx context.Context, owner *program.Owner) (*gate, error) {
	all, err := r.policies.compiled(ctx, r)
	g := &gate{policies: all, credentials: sync.OnceValues(func() (bytecode.Credentials, error) {
		return bytecode.CredentialsFor(ctx, r.Cluster.Secret, owner.Namespace, owner.Bytecode.Image)
	})}
	unread := (*kinds.UnreadError)(nil)
	switch {
	case errors.As(err, &unread) && unread.Err == nil && r.policies.young():
		return nil, err
	case err != nil:
		g.unread = fmt.Errorf("nothing is loaded until the policies are known: %w", err)
	default:
		g.evaluation = policy.Evaluate(all, owner.Subject)
	}
	return g, nil
}

// again returns the time until the next reconciliation if nothing failed, or 0 for none.
func (g *gate) again() time.Duration {
	switch {
	case g.unread != nil:
		return unreadRetry
	case g.unknown:
		return wait.Jitter(policyRetry, 1)
	}
	return 0
}

// judgeRunning returns the verdicts of policies on the image of a loaded program.
func (r *Controller) judgeRunning(ctx context.Context, key program.Key, g *gate, e policy.Evaluation, image bytecode.Image) report.Judgement {
	request := e.Request()
	switch {
	case request == nil || e.Denied():
		return report.Judgement{Image: image, Policies: e.Decide(nil)}
	case image.Digest == "":
		return judge(e, bytecode.Bytecode{Image: image}, errors.New("the image's digest is unknown on this node, because an earlier version of bpfman pulled it"))
	}
	found, err := r.find(ctx, key, g, bytecode.Question{Image: image}, request)
	return judge(e, found, err)
}

// refusal returns a PolicyError if the verdicts don't allow a Load, or nil.
func refusal(j report.Judgement) error {
	if verdict, message := policy.Sum(j.Policies); !policy.Loads(verdict) {
		return &report.PolicyError{Message: message, Final: verdict == v1alpha1.VerdictDenied}
	}
	return nil
}

// inspect evaluates the policies for an owner's loaded programs, and updates the plan: it
// evicts programs, and closes attach points. A program that violates a policy, but isn't
// evicted, keeps its links and gets no new ones.
func (r *Controller) inspect(ctx context.Context, owner *program.Owner, g *gate, want *plan.Plan) map[int]report.Judgement {
	judgements := map[int]report.Judgement{}
	if len(g.policies) == 0 {
		return judgements
	}
	actual := r.Inventory.Of(owner.Key)
	evict := func(e policy.Evaluation, j report.Judgement, programs ...daemon.Program) {
		if !e.Unloads(j.Policies) {
			return
		}
		for _, p := range programs {
			if want.Evicted == nil {
				want.Evicted = map[uint32]bool{}
			}
			want.Evicted[p.ID] = true
		}
	}
	wanted := map[uint32]bool{}
	for n := range want.Loads {
		load := &want.Loads[n]
		g.limit(load)
		present := want.Present(n, actual)
		if present == nil {
			continue
		}
		var image bytecode.Image
		for _, p := range present {
			image, wanted[p.ID] = p.Image, true
		}
		image.Reference = cmp.Or(image.Reference, report.BytecodeName(owner.Bytecode))
		j := r.judgeRunning(ctx, owner.Key, g, g.evaluation, image)
		judgements[n] = j
		verdict, message := policy.Sum(j.Policies)
		g.unknown = g.unknown || verdict == v1alpha1.VerdictUnknown
		if verdict == v1alpha1.VerdictDenied {
			closePoints(load, message)
			evict(g.evaluation, j, slices.Collect(maps.Values(present))...)
		}
	}
	// Programs that still run in place of ones that aren't loaded, or that are about to be
	// replaced.
	for _, p := range actual {
		if wanted[p.ID] || p.Image.Reference == "" || p.OwnerUID != string(owner.UID) {
			continue
		}
		subject := owner.Subject
		subject.Image, subject.ImageError = policy.ParseImage(v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: p.Image.Reference}})
		e := policy.Evaluate(g.policies, subject)
		evict(e, r.judgeRunning(ctx, owner.Key, g, e, p.Image), p)
	}
	return judgements
}

// closePoints prevents new links for a Load.
func closePoints(load *plan.Load, why string) {
	for i := range load.Programs {
		for j := range load.Programs[i].Points {
			load.Programs[i].Points[j].Lack = errors.New(why)
		}
	}
}

// limit closes the attach points of a Load that policies deny. Decide handles the attach
// points that are named in the object. limit is for those that are discovered on the node.
func (g *gate) limit(load *plan.Load) {
	for i := range load.Programs {
		p := &load.Programs[i]
		for j := range p.Points {
			point := &p.Points[j]
			said := g.evaluation.Hook(program.HookOf(point.Info))
			for _, s := range said {
				if !slices.ContainsFunc(p.Policies, func(o v1alpha1.BpfProgramPolicy) bool { return o.Name == s.Name && o.Verdict == s.Verdict }) {
					p.Policies = append(p.Policies, s)
				}
			}
			if verdict, message := policy.Sum(said); verdict == v1alpha1.VerdictDenied {
				point.Lack = errors.New(message)
				point.Withdrawn = point.Withdrawn || g.evaluation.Unloads(said)
			}
		}
	}
}

// policyCache caches compiled policies, including the material of their authorities.
type policyCache struct {
	once    sync.Once
	started time.Time
	mu      sync.Mutex
	known   map[types.UID]compiledPolicy
}

type compiledPolicy struct {
	*policy.Policy
	version string
	until   time.Time // zero if it doesn't expire
}

// young reports whether the agent has just started.
func (c *policyCache) young() bool {
	c.once.Do(func() { c.started = time.Now() })
	return time.Since(c.started) < unreadWait
}

// compiled returns all policies. If the CRD of BytecodePolicy isn't installed, there are
// none.
func (c *policyCache) compiled(ctx context.Context, r *Controller) ([]*policy.Policy, error) {
	c.young() // starts the clock
	objects, err := r.Cluster.Policies()
	if unread := (*kinds.UnreadError)(nil); errors.As(err, &unread) && apierrors.IsNotFound(unread.Err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list BytecodePolicies: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.known
	c.known = map[types.UID]compiledPolicy{}
	var all []*policy.Policy
	for _, object := range objects {
		have, ok := old[object.UID]
		if version := versionOf(object); !ok || have.version != version || !have.until.IsZero() && time.Now().After(have.until) {
			have = r.compile(ctx, object)
			have.version = version
		}
		c.known[object.UID] = have
		all = append(all, have.Policy)
	}
	return all, nil
}

// compile reads the material of a policy's authorities, and compiles the policy.
func (r *Controller) compile(ctx context.Context, object *v1alpha1.BytecodePolicy) compiledPolicy {
	ctx, cancel := context.WithTimeout(ctx, materialDeadline)
	defer cancel()
	material := policy.ReadMaterial(object, r.material(ctx))
	compiled := compiledPolicy{Policy: policy.Compile(object, material)}
	if secrets, configMaps := policy.References(object); len(secrets)+len(configMaps) == 0 {
		return compiled
	}
	compiled.until = time.Now().Add(materialHolds)
	for _, m := range material {
		if m.Err != nil {
			compiled.until = time.Now().Add(materialLacks)
		}
	}
	return compiled
}

// material returns a Reader of the Secrets and ConfigMaps in the agent's namespace that the
// authorities of policies refer to.
func (r *Controller) material(ctx context.Context) policy.Reader {
	return policy.Reader{
		Secret: func(name string) (map[string][]byte, error) {
			secret, err := r.Cluster.Secret(ctx, r.Namespace, name)
			return secret.Data, err
		},
		ConfigMap: func(name string) (map[string]string, error) {
			configMap, err := r.Cluster.ConfigMap(ctx, r.Namespace, name)
			return configMap.Data, err
		},
	}
}

// versionOf returns a version that changes with a policy's spec, and with the digests of
// its authorities' material in the status, which the operator sets.
func versionOf(p *v1alpha1.BytecodePolicy) string {
	words := []string{fmt.Sprint(p.Generation)}
	for _, a := range p.Status.Authorities {
		words = append(words, a.Name+"="+a.Digest)
	}
	return strings.Join(words, " ")
}

// onPolicy enqueues all owners if a policy or its material has changed.
func (r *Controller) onPolicy(ctx context.Context) toolscache.ResourceEventHandler {
	all := func() { r.enqueue(ctx, func(program.Needs) bool { return true }) }
	return handler[*v1alpha1.BytecodePolicy]{
		added: func(*v1alpha1.BytecodePolicy, bool) { all() },
		updated: func(before, now *v1alpha1.BytecodePolicy) {
			if before.UID != now.UID || versionOf(before) != versionOf(now) {
				all()
			}
		},
		deleted: func(*v1alpha1.BytecodePolicy) { all() },
	}
}
