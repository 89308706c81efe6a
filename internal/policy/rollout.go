// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/undecodable"
)

// Rollout is a compiled RolloutPolicy.
type Rollout struct {
	Name string
	Spec *v1alpha1.RolloutPolicySpec
	// Undecodable is the reason why the policy can't be decoded, or "". Then its steps aren't known.
	Undecodable string

	objects    labels.Selector
	namespaces names // nil selects all namespaces, and cluster-scoped objects
	images     []imagePattern
	problems   []error
}

// CompileRollout compiles a policy. It never fails: an invalid part of its match selects everything, because it is safer
// to change fewer nodes. So does a policy that can't be decoded, and no node changes: see [Rollout.Undecodable].
func CompileRollout(object *v1alpha1.RolloutPolicy) *Rollout {
	match := &object.Spec.Match
	p := &Rollout{Name: object.Name, Spec: &object.Spec, objects: labels.Everything()}
	if p.Undecodable = undecodable.Reason(object); p.Undecodable != "" {
		p.problems = append(p.problems, unreadable(p.Undecodable))
	}
	if match.ObjectSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(match.ObjectSelector)
		if err != nil {
			p.problems = append(p.problems, problem.Errorf(problem.PolicySelectorInvalid, "match.objectSelector: %w", err))
		} else {
			p.objects = selector
		}
	}
	if object.Spec.Canaries != nil {
		if _, err := metav1.LabelSelectorAsSelector(object.Spec.Canaries); err != nil {
			p.problems = append(p.problems, problem.Errorf(problem.PolicySelectorInvalid, "canaries: %w", err))
		}
	}
	if len(match.Namespaces) > 0 {
		p.namespaces = compileNames(match.Namespaces)
	}
	for _, pattern := range match.Images {
		p.images = append(p.images, compileImage(pattern))
	}
	return p
}

// Problems returns what is wrong with the policy, if anything.
func (p *Rollout) Problems() []error { return p.problems }

// Matches reports whether the policy applies to an object of a kind.
func (p *Rollout) Matches(kind string, o v1alpha1.UserObject) bool {
	match, s := &p.Spec.Match, SubjectOf(kind, o)
	return (len(match.Kinds) == 0 || slices.Contains(match.Kinds, kind)) &&
		(p.namespaces == nil || s.Namespace != "" && p.namespaces.match(s.Namespace)) &&
		p.objects.Matches(labels.Set(o.GetLabels())) &&
		(len(p.images) == 0 || s.ImageError != nil || slices.ContainsFunc(p.images, func(i imagePattern) bool { return i.match(s.Image) })) &&
		(len(match.ProgramTypes) == 0 || slices.ContainsFunc(s.Programs, func(program Program) bool { return slices.Contains(match.ProgramTypes, program.Type) }))
}
