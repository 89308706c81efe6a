// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package uprobe

import (
	"path/filepath"
	"strings"
)

// Container is the container in which a uprobe is to be attached.
type Container struct {
	// Namespace is that of its pod.
	Namespace string
	// ID is the runtime's.
	ID string
}

// String returns a word from which ParseContainer makes the container again.
func (c Container) String() string { return c.Namespace + "/" + c.ID }

// ParseContainer is the inverse of [Container.String].
func ParseContainer(word string) Container {
	namespace, id, _ := strings.Cut(word, "/")
	return Container{namespace, id}
}

func announced(dir string) string { return filepath.Join(dir, "bpfman-ns.container") }

// Announce tells the helper in which container the agent has the daemon attach next.
func Announce(dir string, c Container) error { return write(announced(dir), c.String()) }

// Announced returns the container of the last Announce.
func Announced(dir string) Container { return ParseContainer(read(announced(dir))) }
