// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	// How long the material of authorities is cached after reading it succeeded or failed.
	// Changes that the operator reports in a policy's status invalidate it.
	materialHolds, materialLacks = 10 * time.Minute, 10 * time.Second
	// materialDeadline is the timeout of reading the material of all policies. Others wait for it, so it isn't one for
	// each: while the API server doesn't respond, that would never end.
	materialDeadline = 10 * time.Second
	// firstList is the time after the agent's start in which it waits for the first list
	// of policies without reporting that.
	firstList = 10 * time.Second
)

// Cluster reads what policies consist of. The first function reads from a cache.
type Cluster interface {
	Policies() ([]*v1alpha1.BytecodePolicy, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// Policies are the cluster's BytecodePolicies on this node. It caches them compiled, including the material of their
// authorities. Its methods can be called concurrently.
type Policies struct {
	Cluster Cluster
	// Namespace is the agent's namespace, with the Secrets and ConfigMaps that policies refer to.
	Namespace string
	// Bytecode answers what is in an image, and who signed it.
	Bytecode *bytecode.Library
	// Read is called with an owner when an image was read that its gate waited for.
	Read func(program.Key)
	// RequireSignature refuses images for which no policy in mode enforce requires a
	// signature.
	RequireSignature bool

	once     sync.Once
	started  time.Time
	failures *failures
	mu       sync.Mutex
	known    map[types.UID]compiledPolicy
}

// For evaluates the policies for an owner. It returns an error if they haven't been
// read yet, shortly after the agent's start.
func (p *Policies) For(ctx context.Context, owner *program.Owner, earlier Earlier) (*Gate, error) {
	all, err := p.compiled(ctx)
	g := &Gate{from: p, owner: owner, policies: all, earlier: earlier, credentials: sync.OnceValues(func() (reader.Credentials, error) {
		return bytecode.CredentialsFor(ctx, p.Cluster.Secret, owner.Namespace, owner.Bytecode.Image)
	})}
	unread := (*kinds.UnreadError)(nil)
	switch {
	case errors.As(err, &unread) && unread.Err == nil && p.starting():
		return nil, err
	case err != nil:
		g.unread = problem.Errorf(problem.PoliciesUnknown, "nothing is loaded or attached until the policies are known: %w", err)
	default:
		g.evaluation = policy.Evaluate(all, owner.Subject)
	}
	return g, nil
}

// Offline returns a gate for a version that policies allowed earlier. It reads nothing from the API server.
func (p *Policies) Offline(owner *program.Owner, image bytecode.Image) *Gate {
	p.starting()
	return &Gate{from: p, owner: owner, earlier: Earlier{Image: image, Allowed: true}, credentials: func() (reader.Credentials, error) {
		return reader.Credentials{}, errors.New("the API server can't be reached")
	}}
}

type compiledPolicy struct {
	*policy.Policy
	material map[string]policy.Material
	version  string
	until    time.Time // zero if it doesn't expire
}

// starting reports whether the agent has just started.
func (p *Policies) starting() bool {
	p.once.Do(func() { p.started, p.failures = time.Now(), newFailures() })
	return time.Since(p.started) < firstList
}

// compiled returns all policies. If the CRD of BytecodePolicy isn't installed, there are
// none.
func (p *Policies) compiled(ctx context.Context) ([]*policy.Policy, error) {
	p.starting() // starts the clock
	objects, err := p.Cluster.Policies()
	if unread := (*kinds.UnreadError)(nil); errors.As(err, &unread) && apierrors.IsNotFound(unread.Err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list BytecodePolicies: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, materialDeadline)
	defer cancel()
	old := p.known
	p.known = map[types.UID]compiledPolicy{}
	var all []*policy.Policy
	for _, object := range objects {
		have := old[object.UID]
		if version := VersionOf(object); have.version != version || !have.until.IsZero() && time.Now().After(have.until) {
			var known map[string]policy.Material
			if have.version == version { // what was read last is still the best that is known
				known = have.material
			}
			have = p.compile(ctx, object, known)
			have.version = version
		}
		p.known[object.UID] = have
		all = append(all, have.Policy)
	}
	return all, nil
}

// compile reads the material of a policy's authorities, and compiles the policy. For what the API server doesn't return, it
// uses what is known.
func (p *Policies) compile(ctx context.Context, object *v1alpha1.BytecodePolicy, known map[string]policy.Material) compiledPolicy {
	compiled := compiledPolicy{material: policy.ReadMaterial(object, p.material(ctx))}
	if secrets, configMaps := policy.References(object); len(secrets)+len(configMaps) > 0 {
		compiled.until = time.Now().Add(materialHolds)
		for _, m := range compiled.material {
			if m.Err != nil {
				compiled.until = time.Now().Add(materialLacks)
			}
		}
	}
	policy.Keep(compiled.material, known)
	compiled.Policy = policy.Compile(object, compiled.material)
	return compiled
}

// material returns a Reader of the Secrets and ConfigMaps in the agent's namespace that the
// authorities of policies refer to.
func (p *Policies) material(ctx context.Context) policy.Reader {
	return policy.Reader{
		Secret: func(name string) (map[string][]byte, error) {
			secret, err := p.Cluster.Secret(ctx, p.Namespace, name)
			return secret.Data, err
		},
		ConfigMap: func(name string) (map[string]string, error) {
			configMap, err := p.Cluster.ConfigMap(ctx, p.Namespace, name)
			return configMap.Data, err
		},
	}
}

// VersionOf returns a version that changes with a policy's spec, and with the digests of
// its authorities' material in the status, which the operator sets.
func VersionOf(p *v1alpha1.BytecodePolicy) string {
	words := []string{fmt.Sprint(p.Generation)}
	for _, a := range p.Status.Authorities {
		words = append(words, a.Name+"="+a.Digest)
	}
	return strings.Join(words, " ")
}
