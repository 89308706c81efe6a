// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspect

import (
	"context"

	"github.com/bpfman/bpfman-operator/agent/inspector/pods"
	"github.com/bpfman/bpfman-operator/agent/inspector/report"
)

// names contains the names of the node's pods. It asks for them when it finds a
// container that it doesn't know.
type names struct {
	// run is the path where the host's /run is mounted.
	run string

	answer pods.Names
	// err is the reason if some couldn't be read.
	err error
	// strangers are containers that don't belong to the kubelet.
	strangers map[string]bool
}

// want asks for the names if the facts contain unknown containers. With again, it also
// asks for containers that were unknown before.
func (n *names) want(ctx context.Context, facts *report.Facts, again bool) {
	if again {
		n.strangers = nil
	}
	unknown := map[string]bool{}
	meet := func(container string) {
		if _, known := n.answer.ByContainer[container]; container != "" && !known && !n.strangers[container] {
			unknown[container] = true
		}
	}
	for _, p := range facts.Processes {
		meet(p.Container)
	}
	for _, pin := range facts.Pins {
		meet(pin.Place.Container)
	}
	for _, namespace := range facts.NetNS {
		meet(namespace.Container)
	}
	if len(unknown) == 0 {
		n.err = nil // no container is unknown
		return
	}
	answer, err := pods.List(ctx, n.run)
	if n.err = err; err != nil {
		return
	}
	n.answer, n.strangers = answer, map[string]bool{}
	for container := range unknown {
		if _, known := answer.ByContainer[container]; !known {
			n.strangers[container] = true
		}
	}
}
