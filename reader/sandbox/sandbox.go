// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package sandbox takes from this process what reading images doesn't need, so that a bug
// in a parser leads neither to the files and sockets of the host, nor to other processes.
package sandbox

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// The files and directories for name resolution and certificate authorities.
var (
	files       = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/dev/null"}
	directories = []string{"/etc/ssl", "/etc/pki", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/run/systemd/resolve"}
)

// Enter restricts this process, as far as the kernel supports it. It can still read these
// files, and what name resolution and certificate authorities need. It can't be undone.
// Open files stay open. Without support, the process still has no capabilities in the
// agent's container, and the limits of its resources.
func Enter(reads ...string) {
	// Landlock restricts all threads. The second call isn't for a path, so it has its own
	// rules in the kernel.
	_ = landlock.V9.BestEffort().RestrictPaths(rules(reads)...) // see above
	_ = landlock.V9.BestEffort().RestrictScoped()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The kernel sets it for the other threads together with the filter.
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil {
		install(filter(os.Getpid()))
	}
}

// rules allows reading these and the other files and directories that exist.
func rules(reads []string) []landlock.Rule {
	reads = append(reads, files...)
	within := append([]string{}, directories...)
	if path := os.Getenv("SSL_CERT_FILE"); path != "" {
		reads = append(reads, path)
	}
	within = append(within, filepath.SplitList(os.Getenv("SSL_CERT_DIR"))...)
	allowed := []landlock.Rule{landlock.ROFiles(reads...).IgnoreIfMissing()}
	for _, directory := range within {
		// A path of another type would make the kernel refuse all rules.
		if info, err := os.Stat(directory); err == nil && info.IsDir() { //nolint:gosec // the agent sets the variable
			allowed = append(allowed, landlock.RODirs(directory))
		}
	}
	return allowed
}
