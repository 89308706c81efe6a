// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package inspect

import (
	"context"

	"github.com/bpfman/bpfman-operator/inspector/pods"
	"github.com/bpfman/bpfman-operator/inspector/report"
	"github.com/bpfman/bpfman-operator/internal/kubelet"
)

// names contains the names of the node's pods. It asks for them when it finds a
// container, or a pod's volume, that it doesn't know.
type names struct {
	// run is the path where the host's /run is mounted.
	run string

	answer pods.Names
	// err is the reason if some couldn't be read.
	err error
	// strangers are containers that don't belong to the kubelet, and UIDs of pods that
	// aren't running.
	strangers map[string]bool
}

// want asks for the names if the facts contain unknown containers or pods. With again, it
// also asks for those that were unknown before.
func (n *names) want(ctx context.Context, facts *report.Facts, again bool) {
	if again {
		n.strangers = nil
	}
	unknown := map[string]bool{}
	meet := func(id string, names map[string]pods.Name) {
		if _, known := names[id]; id != "" && !known && !n.strangers[id] {
			unknown[id] = true
		}
	}
	for _, p := range facts.Processes {
		meet(p.Container, n.answer.ByContainer)
	}
	for _, pin := range facts.Pins {
		meet(pin.Place.Container, n.answer.ByContainer)
		if pin.Place.Container == "" { // others could have any path in their container
			meet(kubelet.PodOf(pin.Path), n.answer.ByPod)
		}
	}
	for _, namespace := range facts.NetNS {
		meet(namespace.Container, n.answer.ByContainer)
	}
	if len(unknown) == 0 {
		n.err = nil // nothing is unknown
		return
	}
	answer, err := pods.List(ctx, n.run)
	if n.err = err; err != nil {
		return
	}
	n.answer = answer
	if n.strangers == nil {
		n.strangers = map[string]bool{}
	}
	for id := range unknown {
		_, container := answer.ByContainer[id]
		if _, pod := answer.ByPod[id]; !container && !pod {
			n.strangers[id] = true
		}
	}
}
