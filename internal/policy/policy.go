// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package policy evaluates BytecodePolicies for a user object. It has no side effects:
// the caller reads the policies, their Secrets and ConfigMaps, and verifies the image
// (see package verification).
//
//	compiled := policy.Compile(object, policy.ReadMaterial(object, reader))
//	evaluation := policy.Evaluate(all, policy.SubjectOf(kind, user).On(nodeLabels))
//	request := evaluation.Request()    // what to find out, if anything
//	verdicts := evaluation.Decide(answer)
//	verdict, message := policy.Sum(verdicts)
package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/undecodable"
)

// Policy is a compiled BytecodePolicy.
type Policy struct {
	// Name and Generation are the name and metadata.generation of the object.
	Name       string
	Generation int64

	warn, unload bool
	problems     []error

	kinds       []string
	namespaces  names // nil selects all namespaces, and cluster-scoped objects
	node        labels.Selector
	rules       []rule
	unmatched   bool // deny images that no rule matches
	authorities map[string]reader.Authority
}

type rule struct {
	name         string
	images       []imagePattern
	deny, digest bool
	signedBy     []string
	attestations []v1alpha1.BytecodeAttestation
	limits       limits
}

// Compile compiles a policy. It never fails: an invalid policy denies everything that it
// matches, and an invalid part of its match selects everything. material is what its
// authorities refer to, by the names of the authorities.
func Compile(object *v1alpha1.BytecodePolicy, material map[string]Material) *Policy {
	spec := &object.Spec
	p := &Policy{
		Name: object.Name, Generation: object.Generation,
		// For values that the API server shouldn't have admitted, the stricter meaning
		// applies.
		warn:        spec.Mode == v1alpha1.PolicyWarn,
		unload:      spec.OnViolation == v1alpha1.OnViolationUnload,
		unmatched:   spec.UnmatchedImages == v1alpha1.UnmatchedDeny,
		kinds:       spec.Match.Kinds,
		node:        labels.Everything(),
		authorities: map[string]reader.Authority{},
	}
	if reason := undecodable.Reason(object); reason != "" {
		p.problems = append(p.problems, unreadable(reason)) // and what it matches isn't known
	}
	if len(spec.Match.Namespaces) > 0 {
		p.namespaces = compileNames(spec.Match.Namespaces)
	}
	if spec.Match.NodeSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(spec.Match.NodeSelector)
		if err != nil {
			p.problem(problem.PolicySelectorInvalid, "match.nodeSelector: %v", err)
		} else {
			p.node = selector
		}
	}
	for i := range spec.Authorities {
		p.addAuthority(&spec.Authorities[i], material)
	}
	for i := range spec.Rules {
		p.addRule(&spec.Rules[i])
	}
	return p
}

// unreadable is what is wrong with a policy that can't be decoded.
func unreadable(reason string) error {
	return problem.Errorf(problem.PolicyUnreadable, "the policy can't be read: %s", reason)
}

func (p *Policy) problem(reason problem.Reason, format string, args ...any) {
	p.problems = append(p.problems, problem.Errorf(reason, format, args...))
}

func (p *Policy) addAuthority(a *v1alpha1.BytecodeAuthority, material map[string]Material) {
	m, found := material[a.Name]
	if !found {
		p.problem(problem.AuthorityNotRead, "authority %q: its keys and trusted root haven't been read", a.Name)
		return
	}
	if m.Err != nil {
		p.problem(problem.Of(m.Err), "authority %q: %v", a.Name, m.Err)
		return
	}
	out := reader.Authority{Name: p.Name + "/" + a.Name, Keys: m.Keys, TrustedRoot: m.TrustedRoot}
	if a.Keyless != nil {
		for i, identity := range a.Keyless.Identities {
			out.Identities = append(out.Identities, reader.Identity{
				Issuer: identity.Issuer, IssuerPattern: p.anchored(a.Name, i, "issuerPattern", identity.IssuerPattern),
				Subject: identity.Subject, SubjectPattern: p.anchored(a.Name, i, "subjectPattern", identity.SubjectPattern),
			})
			if identity.Issuer == "" && identity.IssuerPattern == "" || identity.Subject == "" && identity.SubjectPattern == "" {
				p.problem(problem.AuthorityIncomplete, "authority %q: identities[%d] lacks an issuer or a subject", a.Name, i)
			}
		}
	}
	if len(out.Keys) == 0 && len(out.Identities) == 0 {
		p.problem(problem.AuthorityIncomplete, "authority %q has neither a key nor an identity", a.Name)
	}
	p.authorities[a.Name] = out
}

// anchored makes a pattern match whole values. It first compiles the pattern alone,
// because a pattern with an extra closing parenthesis could end the group that anchors
// it.
func (p *Policy) anchored(authority string, identity int, field, pattern string) string {
	if pattern == "" {
		return ""
	}
	if _, err := regexp.Compile(pattern); err != nil {
		p.problem(problem.IdentityInvalid, "authority %q: identities[%d].%s: %v", authority, identity, field, err)
	}
	return `\A(?:` + pattern + `)\z`
}

func (p *Policy) addRule(r *v1alpha1.BytecodeRule) {
	out := rule{name: r.Name, deny: r.Deny, digest: r.DigestOnly, signedBy: r.SignedBy, attestations: r.Attestations}
	for _, pattern := range r.Images {
		out.images = append(out.images, compileImage(pattern))
	}
	if r.Limits != nil {
		out.limits = compileLimits(r.Limits)
	}
	if len(r.Images) == 0 {
		p.problem(problem.RuleIncomplete, "rule %s: images is empty", r.Name)
	}
	named := slices.Clone(r.SignedBy)
	for _, a := range r.Attestations {
		if len(a.SignedBy) == 0 {
			p.problem(problem.RuleIncomplete, "rule %s: signedBy of attestation %s is empty", r.Name, a.PredicateType)
		}
		named = append(named, a.SignedBy...)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named))) {
		known := slices.ContainsFunc(p.problems, func(known error) bool { return strings.HasPrefix(known.Error(), fmt.Sprintf("authority %q", name)) })
		if _, found := p.authorities[name]; !found && !known {
			p.problem(problem.NoSuchAuthority, "rule %s: authority %q doesn't exist", r.Name, name)
		}
	}
	p.rules = append(p.rules, out)
}

// Problems returns what is wrong with the policy, if anything.
func (p *Policy) Problems() []error { return p.problems }

// Matches reports whether the policy applies to a subject. Even so, it can have no rule
// that matches the image.
func (p *Policy) Matches(s Subject) bool {
	return (len(p.kinds) == 0 || slices.Contains(p.kinds, s.Kind)) &&
		(p.namespaces == nil || s.Namespace != "" && p.namespaces.match(s.Namespace)) &&
		(s.NodeLabels == nil || p.node.Matches(s.NodeLabels))
}

// On returns the subject on a node with these labels.
func (s Subject) On(nodeLabels map[string]string) Subject {
	s.NodeLabels = labels.Set(nodeLabels)
	return s
}

// Evaluation is the result of evaluating the policies that match a subject.
type Evaluation struct {
	subject Subject
	parts   []part
}

// part is the result of one policy.
type part struct {
	*Policy
	rules      []*rule // the rules that match the image
	violations []error
}

// Evaluate finds the policies that match a subject, in the order of their names, and the
// violations that are visible in the object itself.
func Evaluate(policies []*Policy, s Subject) Evaluation {
	e := Evaluation{subject: s}
	for _, p := range policies {
		if p.Matches(s) {
			e.parts = append(e.parts, p.evaluate(s))
		}
	}
	slices.SortFunc(e.parts, func(a, b part) int { return cmp.Compare(a.Name, b.Name) })
	return e
}

func (p *Policy) evaluate(s Subject) part {
	out := part{Policy: p}
	if len(p.problems) > 0 {
		out.violations = []error{problem.Errorf(problem.Of(p.problems[0]), "the policy is invalid, and denies everything that it matches: %s", list(p.problems))}
		return out
	}
	if s.ImageError != nil {
		// It isn't known which rules match the image.
		if len(p.rules) > 0 || p.unmatched {
			out.violations = []error{s.ImageError}
		}
		return out
	}
	for i := range p.rules {
		r := &p.rules[i]
		if slices.ContainsFunc(r.images, func(pattern imagePattern) bool { return pattern.match(s.Image) }) {
			out.rules = append(out.rules, r)
			out.violations = append(out.violations, r.violations(s)...)
		}
	}
	if len(out.rules) == 0 && p.unmatched {
		out.violations = []error{problem.Errorf(problem.NoRuleMatches, "no rule matches image %s, and unmatchedImages is deny", s.Image)}
	}
	return out
}

// violations returns the violations that are visible in the object itself.
func (r *rule) violations(s Subject) []error {
	if r.deny {
		return []error{r.says(problem.ImageDenied, "image %s is denied", s.Image)}
	}
	var out []error
	if r.digest && s.Image.Digest == "" {
		out = append(out, r.says(problem.NotByDigest, "image %s isn't referenced by digest", s.Image))
	}
	if s.Image.IsFile() {
		if len(r.signedBy)+len(r.attestations) > 0 {
			out = append(out, r.says(problem.FileNotSigned, "%s is a file, and files aren't signed", s.Image))
		}
		if r.limits.bytecode() {
			out = append(out, r.says(problem.FileNotSigned, "helpers and map types of %s can't be checked, because it is a file", s.Image))
		}
	}
	for _, p := range s.Programs {
		for _, violation := range r.limits.violations(p) {
			out = append(out, r.says(problem.Of(violation), "program %s: %w", p.Name, violation))
		}
	}
	return out
}

func (r *rule) says(reason problem.Reason, format string, args ...any) error {
	return problem.Errorf(reason, "rule %s: %w", r.name, fmt.Errorf(format, args...))
}

// Policies returns the names of the policies that match.
func (e Evaluation) Policies() []string {
	out := make([]string, 0, len(e.parts))
	for _, p := range e.parts {
		out = append(out, p.Name)
	}
	return out
}

// Denied reports whether the object itself violates a policy in mode enforce. In this
// case, nobody needs to verify the image.
func (e Evaluation) Denied() bool {
	return slices.ContainsFunc(e.parts, func(p part) bool { return len(p.violations) > 0 && !p.warn })
}

// Signed reports whether a policy in mode enforce requires a signature of the image, or
// denies it.
func (e Evaluation) Signed() bool {
	return slices.ContainsFunc(e.parts, func(p part) bool {
		signed := slices.ContainsFunc(p.rules, func(r *rule) bool { return len(r.signedBy)+len(r.attestations) > 0 })
		return !p.warn && (signed || len(p.violations) > 0)
	})
}

// Request returns what has to be found out about the image, or nil if nothing has to.
// The caller fills in the image and the credentials. Equal policies and material result
// in equal requests, so a caller can use a request as the key of a cache.
func (e Evaluation) Request() *reader.Request {
	var out reader.Request
	authorities := map[string]reader.Authority{}
	attestations := map[string][]string{}
	for _, p := range e.parts {
		if e.subject.Image.IsFile() {
			continue
		}
		name := func(authority string) string {
			a := p.authorities[authority]
			authorities[a.Name] = a
			return a.Name
		}
		for _, r := range p.rules {
			for _, authority := range r.signedBy {
				name(authority)
			}
			for _, a := range r.attestations {
				for _, authority := range a.SignedBy {
					attestations[a.PredicateType] = append(attestations[a.PredicateType], name(authority))
				}
			}
			out.Object = out.Object || r.limits.bytecode()
		}
	}
	for _, name := range sortedKeys(authorities) {
		out.Authorities = append(out.Authorities, authorities[name])
	}
	for _, predicate := range sortedKeys(attestations) {
		of := slices.Compact(slices.Sorted(slices.Values(attestations[predicate])))
		out.Attestations = append(out.Attestations, reader.Attestation{PredicateType: predicate, Authorities: of})
	}
	if len(out.Authorities) == 0 && !out.Object {
		return nil
	}
	return &out
}
