// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package prerequisite lets the tests of all modules skip what this machine doesn't support. A test that lacks a
// prerequisite calls Missing.
//
// A run can declare the prerequisites that its machine has. A test that lacks one of these then fails instead of
// being skipped, so a run that tests nothing doesn't pass:
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

// Environment variables.
const (
	// RequiresVariable lists the names of the prerequisites that this machine has, separated by commas.
	RequiresVariable = "TEST_REQUIRES"
	// SkippedVariable names a file. Missing adds a line to it for each test that it skips.
	SkippedVariable = "TEST_SKIPPED"
)

// Name is the name of a prerequisite. Names are case-insensitive.
type Name string

// The types of programs that the daemon can load and attach, with the names of the types of an application's
// members.
const (
	XDP        Name = "XDP"
	TC         Name = "TC"
	TCX        Name = "TCX"
	Fentry     Name = "Fentry"
	Fexit      Name = "Fexit"
	Kprobe     Name = "Kprobe"
	Tracepoint Name = "Tracepoint"
	Uprobe     Name = "Uprobe"
	LSM        Name = "LSM"
)

// Other prerequisites of tests.
const (
	Root Name = "root"
	// BPF is the permission to load programs, to create and pin maps, and to attach programs without a daemon.
	BPF Name = "bpf"
	// Tracefs is a tracefs that is mounted or can be mounted, with support for instances.
	Tracefs Name = "tracefs"
	// Tun is the kernel's driver for tunnels, at /dev/net/tun.
	Tun Name = "tun"
	// CgroupV2 is a mounted hierarchy of cgroup v2.
	CgroupV2 Name = "cgroup2"
	// BPFPreload is a kernel with CONFIG_BPF_PRELOAD.
	BPFPreload Name = "bpf-preload"
	// DetachedMounts is the ability to mount a directory of a file system that isn't mounted anywhere (Linux 6.15
	// or later).
	DetachedMounts Name = "detached-mounts"
	// SecurityModules are the names of the kernel's active security modules, in /sys/kernel/security/lsm, and the call that
	// returns their numbers (Linux 6.8).
	SecurityModules Name = "security-modules"
	// SELinux is SELinux in enforcing mode.
	SELinux Name = "selinux"
	// Bytecode is the output of `make bytecode`.
	Bytecode Name = "bytecode"
	// Headers are the header files of Linux.
	Headers Name = "headers"
	// Daemon is the bpfman daemon. UpstreamDaemon is the earlier version that tests compare it with.
	Daemon         Name = "daemon"
	UpstreamDaemon Name = "upstream-daemon"
	// OtherDaemon is a second daemon, to which a node is changed.
	OtherDaemon Name = "other-daemon"
	// Commands are the project's own commands, which a test runs as processes.
	Commands Name = "commands"
	// Emulators are QEMU's programs that run commands for other architectures.
	Emulators Name = "emulators"
	// Envtest is an API server for tests. Cluster is a cluster where bpfman is deployed.
	Envtest Name = "envtest"
	Cluster Name = "cluster"
	// MixedKernels are nodes with different kernels.
	MixedKernels Name = "mixed-kernels"
	// Registry is a registry that tests can push to.
	Registry Name = "registry"
	// NextImages are images of a second version of the components, as the target of an upgrade.
	NextImages Name = "next-images"
	// AuditLog is the audit log of a cluster's API server.
	AuditLog Name = "audit-log"
	// Corpus are the packages with eBPF objects that `make test-corpus` downloads.
	Corpus Name = "corpus"
	// Tutorials are the prerequisites of single tutorials: compilers, a registry, or a version of Linux.
	Tutorials Name = "tutorials"
	// Kyverno are the files of a release of Kyverno.
	Kyverno Name = "kyverno"
	// StorageSuite are the tests with which Kubernetes judges storage drivers.
	StorageSuite Name = "storage-suite"
	// Third-party tools, with the names of their commands. Shell is bash with the usual tools. BashCompletion is
	// the package with that name.
	BashCompletion Name = "bash-completion"
	Bpftool        Name = "bpftool"
	Busybox        Name = "busybox"
	Cosign         Name = "cosign"
	Helm           Name = "helm"
	Kubectl        Name = "kubectl"
	Promtool       Name = "promtool"
	Shell          Name = "shell"
)

// Types are the types of programs.
var Types = []Name{XDP, TC, TCX, Fentry, Fexit, Kprobe, Tracepoint, Uprobe, LSM}

var all = append([]Name{
	Root, BPF, Tracefs, Tun, CgroupV2, BPFPreload, DetachedMounts, SecurityModules, SELinux, Bytecode, Headers, Daemon, UpstreamDaemon, OtherDaemon, Commands, Emulators, Envtest, Cluster, MixedKernels, Registry, NextImages, AuditLog, Corpus, Tutorials, Kyverno, StorageSuite,
	BashCompletion, Bpftool, Busybox, Cosign, Helm, Kubectl, Promtool, Shell,
}, Types...)

// Parse parses a list of names that are separated by commas. The error lists the unknown names.
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

// OfType returns the prerequisite for a type of program. The name is case-insensitive.
func OfType(name string) (Name, error) {
	i := slices.IndexFunc(Types, func(n Name) bool { return strings.EqualFold(string(n), name) })
	if i < 0 {
		return "", fmt.Errorf("there is no type of program %q: there are %v", name, Types)
	}
	return Types[i], nil
}

// Skip describes a skipped test.
type Skip struct {
	// Test is the name of the test. Names are the prerequisites that it lacks.
	Test  string
	Names []Name
	// Reason is why the prerequisites are missing, on one line.
	Reason string
}

var skipped struct {
	sync.Mutex
	tests []Skip
}

// Skipped lists the tests of this process that Missing skipped.
func Skipped() []Skip {
	skipped.Lock()
	defer skipped.Unlock()
	return slices.Clone(skipped.tests)
}

// Missing ends the test, because the prerequisites are missing. reason contains the error, and what the reader can
// do about it. The test is skipped. If TEST_REQUIRES names one of the prerequisites, it fails instead.
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

// Require returns an error if TEST_REQUIRES names the prerequisite, which is missing. Code that runs before the
// tests uses it.
func Require(name Name, reason string) error {
	required, err := requiredOf([]Name{name})
	if err == nil && len(required) > 0 {
		err = fmt.Errorf("%s requires %v, which is missing: %s", RequiresVariable, required, reason)
	}
	return err
}

// NeedsRoot skips the test unless it runs as root.
func NeedsRoot(tb testing.TB, why string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Missing(tb, "not root: "+why, Root)
	}
}

// requiredOf returns those of the names that the environment lists.
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
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // whoever runs the tests chooses it
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
