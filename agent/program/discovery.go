// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package program

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// mostDiscovered is how many discovered interfaces a program is attached to on a
// node: some times what a node's pods make, and few enough for the report of them
// all to fit into one object.
const mostDiscovered = 1024

// ExcessError tells that more interfaces were discovered than a program is
// attached to. What is beyond them isn't wanted.
type ExcessError struct{ Found int }

func (e *ExcessError) Error() string {
	return fmt.Sprintf("interfacesdiscoveryconfig selects %d interfaces: attached to the first %d by name", e.Found, mostDiscovered)
}

// discovery decides which interfaces are selected.
type discovery struct {
	allowed, excluded []matcher
}

// matcher is one entry of a list of interfaces: a name, or a pattern.
type matcher struct {
	name    string
	pattern *regexp.Regexp
}

// discoveryOf reads the API's configuration. It is nil where discovery is off.
func discoveryOf(c *v1alpha1.InterfaceDiscovery) (*discovery, error) {
	if c == nil || c.InterfaceAutoDiscovery == nil || !*c.InterfaceAutoDiscovery {
		return nil, nil
	}
	allowed, err := matchers("allowedinterfaces", c.AllowedInterfaces)
	if err != nil {
		return nil, err
	}
	excluded, err := matchers("excludeinterfaces", c.ExcludeInterfaces)
	return &discovery{allowed, excluded}, err
}

// matchers reads a list. A name can't have a slash in it (kernel,
// dev_valid_name), so that what stands between two is a pattern.
func matchers(field string, entries []string) ([]matcher, error) {
	out := make([]matcher, 0, len(entries))
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if len(entry) < len("//") || !strings.HasPrefix(entry, "/") || !strings.HasSuffix(entry, "/") {
			out = append(out, matcher{name: entry})
			continue
		}
		compiled, err := regexp.Compile(entry[1 : len(entry)-1])
		if err != nil {
			return nil, fmt.Errorf("interfacesdiscoveryconfig.%s: %s: %w", field, entry, err)
		}
		out = append(out, matcher{pattern: compiled})
	}
	return out, nil
}

// of returns the selected ones of these interfaces, in order of their names.
func (d *discovery) of(names []string) []string {
	selected := slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(name string) bool {
		return len(d.allowed) > 0 && !matches(d.allowed, name) || matches(d.excluded, name)
	})
	return slices.Compact(selected)
}

func matches(list []matcher, name string) bool {
	return slices.ContainsFunc(list, func(m matcher) bool {
		return m.pattern != nil && m.pattern.MatchString(name) || m.pattern == nil && m.name == name
	})
}
