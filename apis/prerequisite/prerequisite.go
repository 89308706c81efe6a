// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package prerequisite is how the tests of all modules skip what this machine can't do: a test that finds a prerequisite
// missing calls Missing.
//
// A run can say which prerequisites its machine has. A test that lacks one of those fails instead of being skipped, so
// that a run which tested nothing isn't green:
//
//	TEST_REQUIRES=root,TCX,Tracepoint,Uprobe make test
package prerequisite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Variables of the environment.
const (
	// RequiresVariable lists the names of the prerequisites that this machine has, with commas.
	RequiresVariable = "TEST_REQUIRES"
	// SkippedVariable names a file to which a line is added for each test that Missing skips.
	SkippedVariable = "TEST_SKIPPED"
)

// Name is the name of a prerequisite. Upper and lower case are the same.
type Name string

// The types of program that the daemon can load and attach, as members of an application are named.
const (
	XDP        Name = "XDP"
	TC         Name = "TC"
	TCX        Name = "TCX"
	Fentry     Name = "Fentry"
	Fexit      Name = "Fexit"
	Kprobe     Name = "Kprobe"
	Tracepoint Name = "Tracepoint"
	Uprobe     Name = "Uprobe"
)

// What else tests take.
const (
	Root Name = "root"
	// BPF is to load programs and make maps, pin them, and attach those that no daemon attaches.
	BPF Name = "bpf"
	// Tracefs is a tracefs that is mounted or can be, with instances.
	Tracefs Name = "tracefs"
	// CgroupV2 is a mounted hierarchy of cgroups of version 2.
	CgroupV2 Name = "cgroup2"
	// BPFPreload is a kernel with CONFIG_BPF_PRELOAD.
	BPFPreload Name = "bpf-preload"
	// DetachedMounts is to mount a directory of a file system that is mounted nowhere, as Linux can since 6.15.
	DetachedMounts Name = "detached-mounts"
	// SELinux is one that is enforced.
	SELinux Name = "selinux"
	// Bytecode is what `make bytecode` compiles.
	Bytecode Name = "bytecode"
	// Headers are the header files of Linux.
	Headers Name = "headers"
	// Daemon is the bpfman daemon, UpstreamDaemon the earlier one that it is compared with.
	Daemon         Name = "daemon"
	UpstreamDaemon Name = "upstream-daemon"
	// Commands are the project's own, which a test runs as processes.
	Commands Name = "commands"
	// Envtest is an API server for tests, Cluster a cluster where bpfman is deployed.
	Envtest Name = "envtest"
	Cluster Name = "cluster"
	// Registry is one that tests may push to.
	Registry Name = "registry"
	// NextImages are second images of the components, to upgrade to.
	NextImages Name = "next-images"
	// AuditLog is the API server's of a cluster.
	AuditLog Name = "audit-log"
	// Tutorials is what single tutorials of the documentation take: compilers, a registry, a version of Linux.
	Tutorials Name = "tutorials"
	// Tools of others, by the name of their command; Shell is bash and what comes with it, BashCompletion the package of
	// that name.
	BashCompletion Name = "bash-completion"
	Bpftool        Name = "bpftool"
	Busybox        Name = "busybox"
	Cosign         Name = "cosign"
	Helm           Name = "helm"
	Kubectl        Name = "kubectl"
	Shell          Name = "shell"
)

// Types are the types of program.
var Types = []Name{XDP, TC, TCX, Fentry, Fexit, Kprobe, Tracepoint, Uprobe}

var all = append([]Name{
	Root, BPF, Tracefs, CgroupV2, BPFPreload, DetachedMounts, SELinux, Bytecode, Headers, Daemon, UpstreamDaemon, Commands, Envtest, Cluster, Registry, NextImages, AuditLog, Tutorials,
	BashCompletion, Bpftool, Busybox, Cosign, Helm, Kubectl, Shell,
}, Types...)

// Parse reads a list of names, with commas. The error lists the names that don't exist.
func Parse(list string) ([]Name, error) {
	var names []Name
	var errs []error
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		i := slices.IndexFunc(all, func(n Name) bool { return strings.EqualFold(string(n), word) })
		if i < 0 {
			errs = append(errs, fmt.Errorf("there is no prerequisite %q: there are %v", word, all))
			continue
		}
		names = append(names, all[i])
	}
	return names, errors.Join(errs...)
}

// OfType is the prerequisite of a type of program, whatever the case of its name.
func OfType(name string) (Name, error) {
	i := slices.IndexFunc(Types, func(n Name) bool { return strings.EqualFold(string(n), name) })
	if i < 0 {
		return "", fmt.Errorf("there is no type of program %q: there are %v", name, Types)
	}
	return Types[i], nil
}

// Skip is a test that was skipped.
type Skip struct {
	// Test is the test's name, and Names what it lacks.
	Test  string
	Names []Name
	// Reason is what stands in the way, on one line.
	Reason string
}

var skipped struct {
	sync.Mutex
	tests []Skip
}

// Skipped lists the tests of this process that Missing has skipped.
func Skipped() []Skip {
	skipped.Lock()
	defer skipped.Unlock()
	return slices.Clone(skipped.tests)
}

// Missing ends the test, which lacks the prerequisites. The reason is what stands in the way: the error, and what can be
// done. The test is skipped, or fails where TEST_REQUIRES names one of the prerequisites.
func Missing(tb testing.TB, reason string, names ...Name) {
	tb.Helper()
	required, err := requiredOf(names)
	if err != nil {
		tb.Fatal(err)
	}
	if len(required) > 0 {
		tb.Fatalf("%s requires %v, and this test lacks it: %s", RequiresVariable, required, reason)
	}
	if err := record(Skip{Test: tb.Name(), Names: names, Reason: oneLine(reason)}); err != nil {
		tb.Fatal(err)
	}
	tb.Skipf("no %v: %s", names, reason)
}

// Require is nil unless TEST_REQUIRES names the prerequisite, which is missing. It is for what runs before any test does.
func Require(name Name, reason string) error {
	required, err := requiredOf([]Name{name})
	if err == nil && len(required) > 0 {
		err = fmt.Errorf("%s requires %v, which is missing: %s", RequiresVariable, required, reason)
	}
	return err
}

// NeedsRoot skips the test where this isn't root.
func NeedsRoot(tb testing.TB, why string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Missing(tb, "not root: "+why, Root)
	}
}

// requiredOf are those of the names that the environment lists.
func requiredOf(names []Name) ([]Name, error) {
	listed, err := Parse(os.Getenv(RequiresVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RequiresVariable, err)
	}
	var required []Name
	for _, name := range names {
		if slices.Contains(listed, name) {
			required = append(required, name)
		}
	}
	return required, nil
}

func record(s Skip) (err error) {
	skipped.Lock()
	defer skipped.Unlock()
	skipped.tests = append(skipped.tests, s)
	path := os.Getenv(SkippedVariable)
	if path == "" {
		return nil
	}
	// A test runs in the directory of its package.
	directory, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the test's directory: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // Who runs the tests chooses it.
	if err != nil {
		return fmt.Errorf("record a skipped test: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := fmt.Fprintf(file, "%v\t%s %s\t%s\n", s.Names, filepath.Base(directory), s.Test, s.Reason); err != nil {
		return fmt.Errorf("record a skipped test: %w", err)
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
