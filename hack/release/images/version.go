// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package images

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// IsLatest reports whether a version is the highest of the tags that isn't a prerelease. A patch of an older minor
// version isn't.
func IsLatest(version string, tags []string) bool {
	version = "v" + version
	return semver.Prerelease(version) == "" && !slices.ContainsFunc(tags, func(tag string) bool {
		return semver.Prerelease(tag) == "" && semver.Compare(tag, version) > 0
	})
}

var (
	heading = regexp.MustCompile(`(?m)^## .*$`)
	// relative matches the start of a link to a file of the repository.
	relative = regexp.MustCompile(`\]\((docs/|[A-Z]+\.md)`)
)

// Notes returns the section of the version in the changelog. If there is none, a prerelease has the section Unreleased,
// as any version has if unreleased is set. Links to files lead to the repository.
func (r Release) Notes(changelog string, unreleased bool) (string, error) {
	sections := map[string]string{}
	at := heading.FindAllStringIndex(changelog, -1)
	for i, start := range at {
		end := len(changelog)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name := strings.Trim(strings.Fields(changelog[start[0]+2:start[1]] + " -")[0], "[]v")
		sections[name] = strings.TrimSpace(changelog[start[1]:end]) + "\n"
	}
	section := sections[r.Version]
	if section == "" && (unreleased || semver.Prerelease("v"+r.Version) != "") {
		section = sections["Unreleased"]
	}
	if section == "" {
		return "", fmt.Errorf("the changelog has no section %s: rename the section Unreleased, with the date", r.Version)
	}
	return relative.ReplaceAllString(section, "]("+r.Source+"/blob/v"+r.Version+"/$1"), nil
}

// Provenance returns the predicate of the SLSA provenance, version 1: what was built from what, and by what. The
// environment is that of a GitHub workflow, or of a person.
func Provenance(r Release, environment func(string) string) map[string]any {
	type object = map[string]any
	server, repository := environment("GITHUB_SERVER_URL"), environment("GITHUB_REPOSITORY")
	builder, invocation := r.Source+"/blob/main/docs/releasing.md", ""
	if workflow := environment("GITHUB_WORKFLOW_REF"); workflow != "" {
		builder = server + "/" + workflow
		invocation = server + "/" + repository + "/actions/runs/" + environment("GITHUB_RUN_ID") + "/attempts/" + cmp.Or(environment("GITHUB_RUN_ATTEMPT"), "1")
	}
	return object{
		"buildDefinition": object{
			"buildType":          r.Source + "/blob/main/docs/releasing.md",
			"externalParameters": object{"version": r.Version, "registry": r.Registry},
			"resolvedDependencies": []object{{
				"uri": "git+" + r.Source + "@refs/tags/v" + r.Version, "digest": object{"gitCommit": r.Revision},
			}},
		},
		"runDetails": object{"builder": object{"id": builder}, "metadata": object{"invocationId": invocation}},
	}
}
