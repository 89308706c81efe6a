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

// Sockets are where container runtimes listen by default, below /run, in the order in
// which they are looked for.
var Sockets = []string{"containerd/containerd.sock", "crio/crio.sock", "cri-dockerd.sock"}

// Socket returns the path of the socket where the node's container runtime serves CRI.
// The host's /run is seen at run. It is an error if there is none.
func Socket(run string) (string, error) {
	for _, s := range Sockets {
		socket := filepath.Join(run, s)
		if info, err := os.Stat(socket); err == nil && info.Mode()&os.ModeSocket != 0 {
			return socket, nil
		}
	}
	return "", fmt.Errorf("no container runtime listens below %s at %s", run, strings.Join(Sockets, ", "))
}
