// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command mutate tests tests: it changes one place of a package's code at random, such as a condition or a
// constant, and runs the tests with that change. A change that no test notices, it prints. Its arguments are
// packages, for example ./agent/plan. Run it in the directory of the workspace. It doesn't change the sources.
//
// A change that makes no difference that anybody could notice is listed in equivalent.txt, with the reason.
//
// With -reverts, it takes back the fixes of faults instead, which a file lists, and searches with the simulation for each.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.IntVar(&o.count, "count", 40, "How many changes of each package to test; 0 tests all.")
	flag.Uint64Var(&o.seed, "seed", 1, "The seed that selects the changes.")
	flag.IntVar(&o.parallel, "parallel", 2, "How many changes to test at the same time.")
	flag.DurationVar(&o.limit, "timeout", time.Minute, "How long the tests of a package can take before the change counts as noticed.")
	flag.StringVar(&o.also, "also", "", "Packages whose tests judge the changes that the package's own tests don't notice, separated by commas.")
	flag.StringVar(&o.args, "args", "", "More arguments of go test, separated by spaces, for example -short.")
	flag.StringVar(&o.at, "at", "", "Files whose changes to test, separated by commas, each with or without a line, for example agent/plan/diff.go:63.")
	flag.StringVar(&o.equivalent, "equivalent", "hack/mutate/equivalent.txt", "The file that lists the changes that make no difference.")
	flag.StringVar(&o.reverts, "reverts", "", "A file with fixes to take back; -at selects some of them by name, and -timeout is the time for each search.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, flag.Args()); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	count, parallel int
	seed            uint64
	limit           time.Duration
	also, args      string
	at, equivalent  string
	reverts         string
}

// A target is a package whose code is changed.
type target struct {
	importPath string
	files      []string // below the workspace
}

func run(ctx context.Context, o options, packages []string) error {
	if o.reverts != "" {
		return search(ctx, o)
	}
	known, err := readEquivalents(o.equivalent)
	if err != nil {
		return err
	}
	targets, err := list(ctx, packages)
	if err != nil {
		return err
	}
	var all figures
	for _, t := range targets {
		one, err := o.target(ctx, t, known)
		if err != nil {
			return err
		}
		fmt.Println(one.line(t.importPath))
		all.add(one)
	}
	if len(targets) > 1 {
		fmt.Println(all.line("all"))
	}
	return nil
}

// list resolves patterns of packages.
func list(ctx context.Context, patterns []string) ([]target, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("specify the packages to change, for example ./agent/plan")
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-f", `{{.ImportPath}} {{.Dir}} {{join .GoFiles " "}}`}, patterns...)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), err)
	}
	var targets []target
	for line := range bytes.Lines(output) {
		words := strings.Fields(string(line))
		t := target{importPath: words[0]}
		for _, name := range words[2:] {
			file, err := filepath.Rel(here, filepath.Join(words[1], name))
			if err != nil {
				return nil, err
			}
			t.files = append(t.files, file)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// target tests changes of one package, and prints those that no test notices.
func (o options) target(ctx context.Context, t target, known equivalents) (figures, error) {
	mutants, sources, err := t.mutants()
	if err != nil {
		return figures{}, err
	}
	for _, e := range known.stale(mutants, sources) {
		return figures{}, fmt.Errorf("%s: this change isn't possible anymore; remove it:\n%s", o.equivalent, e)
	}
	if o.at != "" {
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !m.isAt(strings.Split(o.at, ",")) })
	}
	tests := trial{own: t.importPath, args: strings.Fields(o.args), limit: o.limit}
	if o.also != "" {
		tests.also = strings.Split(o.also, ",")
	}
	executed, err := tests.covered(ctx)
	if err != nil {
		return figures{}, err
	}
	random := rand.New(rand.NewPCG(o.seed, 0)) //nolint:gosec // the seed reproduces the selection
	random.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	j := &job{target: t, tests: tests, sources: sources, known: known, executed: executed, most: o.count, left: mutants}
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() { j.work(ctx) })
	}
	workers.Wait()
	return j.figures, j.failed
}

// A job tests changes of one package. Several goroutines can work on it.
type job struct {
	target   target
	tests    trial
	sources  map[string][]byte
	known    equivalents
	executed coverage
	most     int // 0 means all

	mu      sync.Mutex
	left    []mutant
	figures figures
	failed  error
}

// work tests changes until there are enough.
func (j *job) work(ctx context.Context) {
	for m := j.next(); m != nil; m = j.next() {
		v, err := j.judge(ctx, m)
		j.end(m, v, err)
	}
}

// next returns the next change to test, or nil.
func (j *job) next() *mutant {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil || len(j.left) == 0 || j.most > 0 && j.figures.judged()+j.figures.running >= j.most {
		return nil
	}
	m := j.left[0]
	j.left = j.left[1:]
	j.figures.running++
	return &m
}

// end counts a change, and prints it if no test noticed it.
func (j *job) end(m *mutant, v verdict, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.figures.running--
	if err != nil {
		j.failed = err
		return
	}
	j.figures.count(v)
	if v == survived || v == unexecuted {
		fmt.Println(describe(m, j.sources[m.file], v))
	}
}

// judge says what the tests notice of a change.
func (j *job) judge(ctx context.Context, m *mutant) (verdict, error) {
	source := j.sources[m.file]
	if j.known.has(m, source) {
		return equivalent, nil
	}
	v, err := j.tests.run(ctx, m)
	if v == survived && j.executed.skips(j.target.importPath+"/"+filepath.Base(m.file), m.line, column(source, m.start)) {
		v = unexecuted // not in this process: tests of crashes execute it in another one
	}
	return v, err
}

// mutants returns all changes of a package, and its sources by file.
func (t target) mutants() ([]mutant, map[string][]byte, error) {
	var all []mutant
	sources := map[string][]byte{}
	for _, file := range t.files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		found, err := mutantsOf(file, source)
		if err != nil {
			return nil, nil, err
		}
		sources[file] = source
		all = append(all, found...)
	}
	return all, sources, nil
}

// column returns the column of an offset, from 1.
func column(source []byte, offset int) int {
	return offset - bytes.LastIndexByte(source[:offset], '\n')
}
