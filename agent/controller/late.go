// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// lateStart is a program that wasn't attached before the start of the container or pod with an ID.
type lateStart struct{ function, in string }

// lateText is what is said about the start of a container or pod.
type lateText struct {
	of   program.Container
	text string
}

// remember records that a pod or container started without some of an owner's programs.
func (s *starts) remember(key program.Key, of program.Container, late []report.Late) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late[key] == nil {
		s.late[key] = map[lateStart]lateText{}
	}
	for _, l := range late {
		text := problem.Notef(problem.StartedBeforeAttached, "%s started before the program was attached: %s", of.Subject(), shorten.Middle(l.Err.Error(), maxStartCause)).Text
		for _, in := range []string{of.Sandbox, of.ID} { // the attach points are in one of them
			if in != "" {
				s.late[key][lateStart{l.Function, in}] = lateText{of, text}
			}
		}
	}
}

// withdraw forgets the starts of pods and containers that don't exist anymore.
func (s *starts) withdraw(gone func(program.Container) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.late {
		s.keep(key, func(_ lateStart, said lateText) bool { return !gone(said.of) })
	}
}

// keep forgets the starts of an owner's pods and containers for which still is false. The caller holds mu.
func (s *starts) keep(key program.Key, still func(lateStart, lateText) bool) {
	maps.DeleteFunc(s.late[key], func(l lateStart, said lateText) bool { return !still(l, said) })
	if len(s.late[key]) == 0 {
		delete(s.late, key)
	}
}

// noted returns an owner's plan with what users should know about the starts of pods and containers.
func (s *starts) noted(key program.Key, want plan.Plan) plan.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	there, known := map[string]bool{}, true
	want = want.With(func(_ int, wanted plan.Program) plan.Program {
		wanted.Starts = nil
		if !wanted.PrecedesAny() {
			return wanted
		}
		if s.lacking != nil {
			wanted.Starts = append(wanted.Starts, problem.Notef(problem.StartsNotReported, "attached after pods start, although attachment is BeforeStart: %v", s.lacking))
		}
		for _, late := range s.lateOf(key, wanted) {
			wanted.Starts = append(wanted.Starts, problem.Note{Reason: problem.StartedBeforeAttached, Text: late})
		}
		for _, point := range wanted.Points {
			there[point.In] = true
		}
		known = known && wanted.Problem == nil && !wanted.Unseen
		return wanted
	})
	for _, blocked := range want.Blocked { // it has no attach points until it is loaded
		known = known && !blocked.PrecedesAny()
	}
	s.keep(key, func(l lateStart, _ lateText) bool { return !known || there[l.in] })
	return want
}

// lateOf returns what is said about the pods and containers that have started without a program.
func (s *starts) lateOf(key program.Key, wanted plan.Program) []string {
	var late []string
	for _, point := range wanted.Points {
		if said, is := s.late[key][lateStart{wanted.Function(), point.In}]; is && !slices.Contains(late, said.text) {
			late = append(late, said.text)
		}
	}
	return few(late)
}

// few returns the first texts, and how many there are more.
func few(texts []string) []string {
	const most = 3
	slices.Sort(texts)
	if len(texts) <= most {
		return texts
	}
	return append(texts[:most:most], fmt.Sprintf("and %d more started before", len(texts)-most))
}
