// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// mostDiscovered is the maximum number of discovered interfaces that a program is
// attached to on a node. It is several times the number of a node's pods, and
// small enough for all links to fit into one report.
const mostDiscovered = 1024

// ExcessError means that more interfaces were discovered than a program can be
// attached to. The others aren't attach points.
type ExcessError struct{ Found int }

func (e *ExcessError) Error() string { return e.Unwrap().Error() }

func (e *ExcessError) Unwrap() error {
	return problem.Errorf(problem.DiscoveryTruncated, "the discovery selects %d interfaces: attached to %d, the first ones by name in each network", e.Found, mostDiscovered)
}

// discovery selects interfaces by their names.
type discovery struct {
	allowed, excluded []*regexp.Regexp
}

// discoveryOf converts the API's configuration. It returns nil if discovery is
// off.
func discoveryOf(c *v1alpha1.InterfaceDiscovery) (*discovery, error) {
	if c == nil || c.InterfaceAutoDiscovery == nil || !*c.InterfaceAutoDiscovery {
		return nil, nil
	}
	allowed, err := matchers("allowed", c.AllowedInterfaces)
	if err != nil {
		return nil, err
	}
	excluded, err := matchers("excluded", c.ExcludeInterfaces)
	return &discovery{allowed, excluded}, err
}

// matchers converts a list. Entries between two slashes are patterns, because the
// name of an interface can't contain a slash (kernel, dev_valid_name). The others are
// names.
func matchers(what string, entries []string) ([]*regexp.Regexp, error) {
	out := make([]*regexp.Regexp, 0, len(entries))
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		pattern := "^" + regexp.QuoteMeta(entry) + "$"
		if len(entry) >= len("//") && strings.HasPrefix(entry, "/") && strings.HasSuffix(entry, "/") {
			pattern = entry[1 : len(entry)-1]
		}
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, problem.Errorf(problem.DiscoveryInvalid, "pattern of %s interfaces %s: %w", what, entry, err)
		}
		out = append(out, compiled)
	}
	return out, nil
}

// of returns the selected interfaces, sorted by name.
func (d *discovery) of(names []string) []string {
	selected := slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(name string) bool {
		return len(d.allowed) > 0 && !matches(d.allowed, name) || matches(d.excluded, name)
	})
	return slices.Compact(selected)
}

func matches(list []*regexp.Regexp, name string) bool {
	return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}
