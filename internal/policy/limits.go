// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// limits are the limits of a rule. A nil field limits nothing.
type limits struct {
	types    []v1alpha1.EBPFProgType
	hooks    map[HookType]names
	priority *v1alpha1.PriorityRange
	helpers  *nameLimits
	mapTypes *nameLimits
}

type nameLimits struct{ allow, deny names }

func compileLimits(l *v1alpha1.BytecodeLimits) limits {
	out := limits{
		types: l.ProgramTypes, priority: l.Priority, hooks: map[HookType]names{},
		helpers: compileNameLimits(l.Helpers), mapTypes: compileNameLimits(l.MapTypes),
	}
	for t, patterns := range map[HookType]names{
		Interface: compileNames(l.Interfaces), Tracepoint: compileNames(l.Tracepoints),
		Function: compileFunctions(l.Functions), Target: compileNames(l.Targets),
	} {
		if len(patterns) > 0 {
			out.hooks[t] = patterns
		}
	}
	return out
}

func compileNameLimits(l *v1alpha1.NameLimits) *nameLimits {
	if l == nil {
		return nil
	}
	return &nameLimits{compileNames(l.Allow), compileNames(l.Deny)}
}

// bytecode reports whether there are limits on the instructions or maps of the bytecode.
func (l limits) bytecode() bool { return l.helpers != nil || l.mapTypes != nil }

// violations returns the limits that the object's own description of a program violates.
func (l limits) violations(p Program) []error {
	var out []error
	if len(l.types) > 0 && !slices.Contains(l.types, p.Type) {
		out = append(out, problem.Errorf(problem.LimitExceeded, "programs of type %s aren't allowed", p.Type))
	}
	for _, h := range p.Hooks {
		out = append(out, l.hook(h)...)
	}
	if r := l.priority; r != nil && p.Priority != nil {
		if r.Min != nil && *p.Priority < *r.Min {
			out = append(out, problem.Errorf(problem.LimitExceeded, "priority %d is lower than %d", *p.Priority, *r.Min))
		}
		if r.Max != nil && *p.Priority > *r.Max {
			out = append(out, problem.Errorf(problem.LimitExceeded, "priority %d is higher than %d", *p.Priority, *r.Max))
		}
	}
	return out
}

// hook returns the reasons why a hook isn't allowed, or nothing if it is allowed.
func (l limits) hook(h Hook) []error {
	patterns, limited := l.hooks[h.Type]
	if !limited {
		return nil
	}
	var out []error
	if why := h.Problem(); why != "" {
		out = append(out, problem.Errorf(problem.LimitExceeded, "%s %q isn't allowed, because %s", h.Type, h.Name, why))
	} else if !patterns.match(h.Name) {
		out = append(out, problem.Errorf(problem.LimitExceeded, "%s %q isn't allowed", h.Type, h.Name))
	}
	if h.Type == Function && h.Offset {
		out = append(out, problem.Errorf(problem.LimitExceeded, "an offset from function %q isn't allowed, because it can lead into another function", h.Name))
	}
	// A path with such parts can match a pattern by its beginning, and lead elsewhere.
	if h.Type == Target && wanders(h.Name) {
		out = append(out, problem.Errorf(problem.LimitExceeded, "target %q isn't allowed, because its path has empty parts, . or ..", h.Name))
	}
	return out
}

// unallowed returns the names that aren't allowed.
func (l *nameLimits) unallowed(found []string) []string {
	if l == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(found), func(name string) bool {
		return !l.deny.match(name) && (len(l.allow) == 0 || l.allow.match(name))
	})
}

// uses returns the limits that the helpers and map types of the bytecode violate.
func (l limits) uses(answer *reader.Answer) []error {
	if !l.bytecode() {
		return nil
	}
	object := cmp.Or(answer.Object, &reader.Object{Unknown: "it hasn't been read"})
	if object.Unknown != "" {
		return []error{problem.Errorf(problem.LimitsNotCheckable, "the helpers and map types of the bytecode can't be determined: %s", object.Unknown)}
	}
	var out []error
	if names := l.helpers.unallowed(object.Helpers); len(names) > 0 {
		out = append(out, problem.Errorf(problem.LimitExceeded, "the bytecode calls helpers that aren't allowed: %s", strings.Join(names, ", ")))
	}
	if names := l.mapTypes.unallowed(object.MapTypes); len(names) > 0 {
		out = append(out, problem.Errorf(problem.LimitExceeded, "the bytecode has maps of types that aren't allowed: %s", strings.Join(names, ", ")))
	}
	return out
}
