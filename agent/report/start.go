// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package report

import (
	"errors"
	"fmt"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// Late is a program that isn't attached before the start of a container or pod, although it should be.
type Late struct {
	Function string
	// Required means that the container or pod doesn't start without it.
	Required bool
	Err      error
}

// errNotLoaded is the error of a program that the daemon doesn't have, without a failure.
var errNotLoaded = problem.Errorf(problem.StartedBeforeAttached, "the program isn't loaded")

// LateFor returns the programs of a plan that aren't attached for a container or pod, although they should be before its
// start.
func LateFor(of program.Container, p plan.Plan, actual []daemon.Program, o Outcome) []Late {
	var late []Late
	for _, blocked := range p.Blocked {
		if precedes, required := blocked.Precedes(of); precedes {
			late = append(late, Late{blocked.LoadInfo().GetName(), required, blocked.Err})
		}
	}
	for n, load := range p.Loads {
		loaded := p.Present(n, actual)
		for _, wanted := range load.Programs {
			precedes, required := wanted.Precedes(of)
			if !precedes {
				continue
			}
			if err := o.lateness(of, n, wanted, loaded); err != nil {
				late = append(late, Late{wanted.Function(), required, err})
			}
		}
	}
	return late
}

// lateness returns why a program isn't attached at all its attach points in a container or pod, or nil.
func (o Outcome) lateness(of program.Container, n int, wanted plan.Program, loaded map[string]daemon.Program) error {
	actual, there := loaded[wanted.Function()]
	switch {
	case !there && o.Loads[n] != nil:
		return fmt.Errorf("%w: %w", errNotLoaded, o.Loads[n])
	case !there:
		return errNotLoaded
	}
	links := map[daemon.Link]bool{}
	for _, link := range actual.Links {
		links[link] = true
	}
	found := false
	for _, point := range wanted.Points {
		if point.In == "" || point.In != of.ID && point.In != of.Sandbox {
			continue
		}
		found = true
		link := plan.LinkOf(point)
		if links[link] && !point.Withdrawn {
			continue
		}
		if err := o.Attaches[Attach{n, wanted.Function(), link}]; err != nil {
			return err
		}
		return problem.Errorf(problem.StartedBeforeAttached, "the program isn't attached to %s", point.Name)
	}
	switch {
	case found:
		return nil
	case wanted.Unseen && errors.Is(of.InterfacesErr, program.ErrUnseen):
		return problem.Errorf(problem.StartedBeforeAttached, "the program isn't attached to %s, whose interfaces aren't known before it has a process: list them by name", of.Subject())
	case wanted.Problem == nil && wanted.PointInEach():
		return problem.Errorf(problem.StartedBeforeAttached, "the program isn't attached to %s", of.Subject())
	}
	return wanted.Problem // without attach points, there is nothing to attach, unless they are unknown
}
