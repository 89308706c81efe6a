// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A revert takes back the fix of a fault. In contrast to a mutant, somebody wrote it.
type revert struct {
	name, fault string
	hunks       []hunk
}

// A hunk replaces lines of a file that occur there once.
type hunk struct {
	file          string // below the workspace
	before, after string
}

// readReverts reads a file of paragraphs: a name and the fault, then for each place a file, the lines before, and the lines
// after the change. Paragraphs that begin with # are comments.
func readReverts(path string) ([]revert, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []revert
	for paragraph := range strings.SplitSeq(string(content), "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		if paragraph == "" || strings.HasPrefix(paragraph, "#") {
			continue
		}
		title, changes, _ := strings.Cut(paragraph, "\n")
		r := revert{}
		r.name, r.fault, _ = strings.Cut(title, " ")
		for line := range strings.SplitSeq(changes, "\n") {
			switch last := len(r.hunks) - 1; {
			case last >= 0 && strings.HasPrefix(line, "-"):
				r.hunks[last].before += line[1:] + "\n"
			case last >= 0 && strings.HasPrefix(line, "+"):
				r.hunks[last].after += line[1:] + "\n"
			case strings.HasSuffix(line, ".go"):
				r.hunks = append(r.hunks, hunk{file: line})
			default:
				return nil, fmt.Errorf("%s: %s: a file, or lines with - or +, are required: %s", path, r.name, line)
			}
		}
		if slices.ContainsFunc(r.hunks, func(h hunk) bool { return h.before == "" }) || len(r.hunks) == 0 {
			return nil, fmt.Errorf("%s: %s: each file needs lines with -", path, r.name)
		}
		all = append(all, r)
	}
	return all, nil
}

// apply returns the content of the files that the revert changes. root is the directory of the workspace.
func (r revert) apply(root string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, h := range r.hunks {
		path := filepath.Join(root, h.file)
		source, known := changed[path]
		if !known {
			var err error
			if source, err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(string(source), h.before); n != 1 {
			return nil, fmt.Errorf("%s: these lines occur %d times in %s instead of once; update the entry:\n%s", r.name, n, h.file, h.before)
		}
		changed[path] = []byte(strings.Replace(string(source), h.before, h.after, 1))
	}
	return changed, nil
}

// overlay writes changed files to a directory, and returns the argument that has the compiler read them instead.
func overlay(directory string, changed map[string][]byte) (string, error) {
	replace := map[string]string{}
	for path, content := range changed {
		replace[path] = filepath.Join(directory, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(replace[path], content, 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(directory, "overlay.json")
	return "-overlay=" + file, os.WriteFile(file, list, 0o600)
}

// seen matches what the search says first about a history that breaks an invariant.
var seen = regexp.MustCompile(`(?m)^.*: (seed (\d+): .*)$`)

// search has the simulation search for the faults that reverts bring back, and prints which it has found, after how long.
func search(ctx context.Context, o options) error {
	reverts, err := readReverts(o.reverts)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "reverts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	fixed, err := build(ctx, root, directory, nil)
	if err != nil {
		return err
	}
	found, all := 0, 0
	for _, r := range reverts {
		if o.at != "" && !slices.Contains(strings.Split(o.at, ","), r.name) {
			continue
		}
		changed, err := r.apply(root)
		if err != nil {
			return err
		}
		broken, err := build(ctx, root, directory, changed)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		begin := time.Now()
		what, others, err := find(ctx, broken, fixed, o.limit)
		took := time.Since(begin).Round(time.Second)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if what != "" {
			found++
			fmt.Printf("%s found after %s: %s\n    %s\n", r.name, took, r.fault, what)
		} else {
			fmt.Printf("%s not found in %s: %s\n", r.name, took, r.fault)
		}
		for _, other := range others {
			fmt.Printf("    breaks with the fix, too: %s\n", other)
		}
		all++
	}
	fmt.Printf("%d of %d faults found\n", found, all)
	return nil
}

// find plays random histories without a fix, until one breaks an invariant that it doesn't break with the fix. It returns what is
// broken, or "" if nothing was within the limit, and what the histories say that break an invariant in both.
func find(ctx context.Context, broken, fixed simulation, limit time.Duration) (what string, others []string, err error) {
	next := uint64(0) // the time
	for begin := time.Now(); time.Since(begin) < limit; {
		what, seed, err := broken.search(ctx, limit-time.Since(begin), "-seed="+strconv.FormatUint(next, 10))
		if err != nil || what == "" {
			return "", others, err
		}
		other, _, err := fixed.search(ctx, oneHistory, "-seed="+seed, "-test.parallel=1")
		if err != nil || other == "" {
			return what, others, err
		}
		others = append(others, other)
		if next, err = strconv.ParseUint(seed, 10, 64); err != nil {
			return "", others, fmt.Errorf("read a seed: %w", err)
		}
		next++
	}
	return "", others, nil
}

// oneHistory is how long to search for a single history, if histories aren't played in parallel.
const oneHistory = time.Millisecond

// A simulation is a test binary of tests/simulation/history, and the directory that it runs in.
type simulation struct{ binary, directory string }

// build builds the simulation with changed files.
func build(ctx context.Context, root, directory string, changed map[string][]byte) (simulation, error) {
	argument, err := overlay(directory, changed)
	if err != nil {
		return simulation{}, err
	}
	s := simulation{filepath.Join(directory, "fixed.test"), filepath.Join(root, "tests", "simulation", "history")}
	if len(changed) > 0 {
		s.binary = filepath.Join(directory, "broken.test")
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", argument, "-o", s.binary, "./tests/simulation/history")
	if output, err := command.CombinedOutput(); err != nil {
		return s, fmt.Errorf("build the simulation: %w\n%s", err, output)
	}
	return s, nil
}

// search plays random histories. It returns what the first broken invariant says, and the seed of the history, or "" if none
// broke within the limit.
func (s simulation) search(ctx context.Context, limit time.Duration, arguments ...string) (what, seed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Minute) // a history in progress ends
	defer cancel()
	command := exec.CommandContext(ctx, s.binary, append([]string{"-test.run=^TestSearch$", "-test.timeout=0", "-shorten=false", "-search=" + limit.String()}, arguments...)...)
	command.Dir = s.directory
	output, err := command.CombinedOutput()
	if failed := (*exec.ExitError)(nil); err == nil || !errors.As(err, &failed) {
		return "", "", err
	}
	if found := seen.FindSubmatch(output); found != nil {
		return string(found[1]), string(found[2]), nil
	}
	return "", "", fmt.Errorf("the search failed, and found nothing: %w\n%s", err, output[max(0, len(output)-4096):])
}
