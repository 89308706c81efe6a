// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command pause holds a pod's namespaces, and reaps its orphans. It is the cluster's
// sandbox image, because the published one can't be pulled everywhere.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
				break
			}
		}
	}
}
