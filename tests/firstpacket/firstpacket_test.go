// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package firstpacket

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/bpfman/bpfman-operator/tests/must"
)

// packets is how many each pod sends.
const packets = 16

// missing returns which numbers of a pod's packets the map lacks.
func missing(t testing.TB, numbers *ebpf.Map, pod int) []uint32 {
	t.Helper()
	var lacks []uint32
	for i := range packets {
		number := uint32(pod*packets + i)
		var count uint64
		must.Succeed(t, numbers.Lookup(number, &count))
		if count != 1 {
			lacks = append(lacks, number)
		}
	}
	return lacks
}

// send has an init container of a new pod send its packets.
func (n *node) send(pod *pod, number int) error {
	if err := pod.run(n.t.Context()); err != nil {
		return err
	}
	id, err := pod.start(n.t.Context(), "init", "send", fmt.Sprint(number*packets), fmt.Sprint(packets))
	if err != nil {
		return err
	}
	return pod.ended(n.t.Context(), id)
}

// Packets that an init container sends first thing are counted, from the first one on.
func TestFirstPacket(t *testing.T) {
	n := startNode(t)
	n.create(counter(t, "first", selector("web", "")))
	n.startAgent() // it finds kinds that have objects
	n.loaded("first")
	for number := range 5 {
		web := n.newPod("default", fmt.Sprint("web-", number), fmt.Sprint("uid-", number), map[string]string{"app": "web"})
		must.Succeed(t, n.send(web, number))
		if lacks := missing(t, n.numbers("first"), number); len(lacks) > 0 {
			t.Errorf("pod %d: packets %d weren't counted once", number, lacks)
		}
	}
}
