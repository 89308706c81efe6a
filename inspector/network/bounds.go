// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package network

import (
	"errors"
	"slices"
)

// Limits, because a container could otherwise keep the inspector reading forever. In a user namespace of its own, any process
// can create network namespaces, and interfaces, queueing disciplines, and filters there.
const (
	// maxOfContainer is the maximum number of namespaces that only processes of one container keep, and maxNamespaces that of
	// all containers together.
	maxOfContainer, maxNamespaces = 64, 1024
	// maxOfPod is the maximum number of interfaces, of queueing disciplines, and of filters in one namespace that isn't the
	// host's.
	maxOfPod = 2048
	// maxOfPods is the number of all of these in all such namespaces, after which minOfPod of each are read in the others.
	maxOfPods, minOfPod = 64 << 10, 32
)

// ErrManyNamespaces means that a namespace isn't read, because containers have too many.
var ErrManyNamespaces = errors.New("some network namespaces of containers aren't read, because they have too many")

var errCrowded = errors.New("it has more interfaces, queueing disciplines, or filters than are read")

// admit returns the namespaces to read: the host's first, and of each container as many as of the others. others are the rest.
func admit(namespaces []Namespace) (admitted, others []Namespace) {
	var ranks [maxOfContainer][]Namespace
	count := map[string]int{}
	for _, namespace := range namespaces {
		rank := count[namespace.Container]
		switch {
		case namespace.Container == "":
			admitted = append(admitted, namespace)
		case rank == maxOfContainer:
			others = append(others, namespace)
		default:
			ranks[rank] = append(ranks[rank], namespace)
			count[namespace.Container]++
		}
	}
	of := slices.Concat(ranks[:]...)
	most := min(len(of), maxNamespaces)
	return append(admitted, of[:most]...), append(others, of[most:]...)
}
