// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// mostReasons is the maximum number of reasons in a message.
const mostReasons = 8

// Decide returns the verdict of each policy, in the order of the policies' names. answer
// is the answer to Request. It is nil if there was no request, or no answer yet.
func (e Evaluation) Decide(answer *reader.Answer) []v1alpha1.BpfProgramPolicy {
	out := make([]v1alpha1.BpfProgramPolicy, 0, len(e.parts))
	for _, p := range e.parts {
		violations, unknown := p.violations, error(nil)
		if !e.subject.Image.IsFile() {
			for _, r := range p.rules {
				found, untold := r.verified(p.Policy, e.subject.Image, answer)
				violations = slices.Concat(violations, found)
				if unknown == nil {
					unknown = untold
				}
			}
		}
		out = append(out, p.verdict(violations, unknown))
	}
	return out
}

func (p part) verdict(violations []error, unknown error) v1alpha1.BpfProgramPolicy {
	v := v1alpha1.BpfProgramPolicy{Name: p.Name, Generation: p.Generation, Verdict: v1alpha1.VerdictAllowed}
	why := violations
	if len(why) == 0 && unknown != nil {
		why = []error{unknown}
	}
	if len(why) == 0 {
		return v
	}
	v.Message, v.Problem = list(why), string(problem.Of(why[0]))
	switch {
	case p.warn:
		v.Verdict = v1alpha1.VerdictWarned
	case len(violations) > 0:
		v.Verdict = v1alpha1.VerdictDenied
	default:
		v.Verdict = v1alpha1.VerdictUnknown
	}
	return v
}

// verified returns the violations that the answer shows. If the answer doesn't show
// whether there are any, unknown is the reason.
func (r *rule) verified(p *Policy, image Image, answer *reader.Answer) (violations []error, unknown error) {
	if len(r.signedBy)+len(r.attestations) == 0 && !r.limits.bytecode() {
		return nil, nil
	}
	switch {
	case answer == nil:
		return nil, r.says(problem.NotVerifiedYet, "image %s hasn't been verified yet", image)
	case answer.Error != "":
		return nil, r.says(answer.Problem, "image %s can't be verified: %s", image, answer.Error)
	}
	need := func(what string, authorities []string, findings []reader.Finding, predicateType string) {
		var reasons []error
		var untold error
		for _, authority := range authorities {
			i := slices.IndexFunc(findings, func(f reader.Finding) bool {
				return f.Authority == p.Name+"/"+authority && f.PredicateType == predicateType
			})
			switch {
			case i < 0:
				untold = r.says(problem.NotVerifiedYet, "image %s: there is no result for authority %s", image, authority)
			case findings[i].Signer != "":
				return
			default:
				f := findings[i]
				reasons = append(reasons, problem.Errorf(f.Problem, "%s: %s", authority, cmp.Or(f.Reason, "no signature")))
			}
		}
		if untold != nil {
			unknown = untold
		} else if len(authorities) > 0 {
			violation := r.says(problem.NotSigned, "image %s has no %s (%s)", image, what, list(reasons))
			if named := problem.Of(reasons[0]); named != "" { // with which the list begins
				violation = &problem.Error{Reason: named, Err: violation}
			}
			violations = append(violations, violation)
		}
	}
	need("signature of "+strings.Join(r.signedBy, " or "), r.signedBy, answer.Signatures, "")
	for _, a := range r.attestations {
		need(fmt.Sprintf("attestation %s of %s", a.PredicateType, strings.Join(a.SignedBy, " or ")), a.SignedBy, answer.Attestations, a.PredicateType)
	}
	for _, violation := range r.limits.uses(answer) {
		violations = append(violations, r.says(problem.Of(violation), "%w", violation))
	}
	return violations, unknown
}

// Hook returns the verdicts of policies on a hook that only the node knows, such as an
// interface that was discovered. They are Denied if nothing must be attached to the
// hook, and Warned if mode enforce would deny it. Decide already covers the hooks that
// the object names.
func (e Evaluation) Hook(h Hook) []v1alpha1.BpfProgramPolicy {
	var out []v1alpha1.BpfProgramPolicy
	for _, p := range e.parts {
		var violations []error
		for _, r := range p.rules {
			for _, violation := range r.limits.hook(h) {
				violations = append(violations, r.says(problem.Of(violation), "%w", violation))
			}
		}
		if len(violations) > 0 {
			out = append(out, p.verdict(violations, nil))
		}
	}
	return out
}

// Unloads reports whether the verdicts require that a running program is unloaded: if a
// policy with onViolation: unload denies it. An invalid policy only prevents loading,
// because what it requires isn't known.
func (e Evaluation) Unloads(verdicts []v1alpha1.BpfProgramPolicy) bool {
	return slices.ContainsFunc(e.parts, func(p part) bool {
		return p.unload && len(p.problems) == 0 && slices.ContainsFunc(verdicts, func(v v1alpha1.BpfProgramPolicy) bool {
			return v.Name == p.Name && v.Verdict == v1alpha1.VerdictDenied
		})
	})
}

// severity orders verdicts, from the mildest to the most severe.
var severity = []v1alpha1.PolicyVerdict{v1alpha1.VerdictAllowed, v1alpha1.VerdictWarned, v1alpha1.VerdictUnknown, v1alpha1.VerdictDenied}

// Sum combines the verdicts of several policies. It returns the most severe verdict, and
// the reasons with the policies' names, which are nil for Allowed. Without policies, the verdict is Allowed.
func Sum(verdicts []v1alpha1.BpfProgramPolicy) (v1alpha1.PolicyVerdict, error) {
	worst := v1alpha1.VerdictAllowed
	for _, v := range verdicts {
		if slices.Index(severity, v.Verdict) > slices.Index(severity, worst) {
			worst = v.Verdict
		}
	}
	if worst == v1alpha1.VerdictAllowed {
		return worst, nil
	}
	var reasons []error
	for _, v := range verdicts {
		if v.Verdict == worst {
			reasons = append(reasons, problem.Errorf(problem.Reason(v.Problem), "policy %s: %s", v.Name, v.Message))
		}
	}
	return worst, problem.Errorf(problem.Of(reasons[0]), "%s", list(reasons))
}

// Loads reports whether bytecode with this verdict is loaded.
func Loads(v v1alpha1.PolicyVerdict) bool {
	return v == v1alpha1.VerdictAllowed || v == v1alpha1.VerdictWarned
}

// list joins the first reasons, and counts the others.
func list(reasons []error) string {
	var texts []string
	for _, reason := range reasons[:min(len(reasons), mostReasons)] {
		texts = append(texts, reason.Error())
	}
	if more := len(reasons) - mostReasons; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
