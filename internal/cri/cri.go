// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package cri finds the container runtime of a node.
package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sockets are the default paths, relative to /run, of the sockets of container runtimes.
// Socket tries them in this order.
var Sockets = []string{"containerd/containerd.sock", "crio/crio.sock", "cri-dockerd.sock"}

// Socket returns the path of the socket where the node's container runtime serves CRI.
// run is the path under which the host's /run is mounted. It returns an error if no
// socket exists.
func Socket(run string) (string, error) {
	for _, s := range Sockets {
		socket := filepath.Join(run, s)
		if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
			return socket, nil
		}
	}
	return "", fmt.Errorf("no container runtime listens below %s at %s", run, strings.Join(Sockets, ", "))
}
