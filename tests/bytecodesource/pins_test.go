// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// TestPinnedMapOfAnotherShape updates bytecode. The map in the new bytecode has larger values than the map that is
// pinned by name. The condition reports that. With the annotation, the pin is replaced when no other program uses
// the map.
func TestPinnedMapOfAnotherShape(t *testing.T) {
	n := start(t)
	n.Push("test/pinned:v1", build(t, "pinned"))
	n.Push("test/pinned:v2", build(t, "pinned_wider"))
	pinned := func(name string) *v1alpha1.TcxProgram {
		o := n.program(name, n.image("test/pinned:v1", v1alpha1.PullIfNotPresent))
		o.Spec.BpfFunctionName = "pinned"
		return o
	}
	upgraded, other := pinned("pinned-upgraded"), pinned("pinned-other")
	n.create(upgraded)
	n.create(other)
	old := n.loaded(upgraded)
	n.loaded(other)
	foreign, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := foreign.Pin(n.Path("/sys/fs/bpf/foreign")); err != nil {
		t.Fatal(err)
	}

	n.change(upgraded, func() { upgraded.Spec.ByteCode = n.image("test/pinned:v2", v1alpha1.PullIfNotPresent) })
	n.fails(upgraded, v1alpha1.BpfProgCondNotLoaded,
		"the pinned map /sys/fs/bpf/pinned_flows has type Hash, 4-byte keys, and 96-byte values, but the bytecode declares type Hash, 4-byte keys, and 104-byte values",
		"bpfman.io/replace-pinned-maps", fmt.Sprintf("(the previously loaded program %d keeps running)", old))

	n.change(upgraded, func() { upgraded.Annotations = map[string]string{v1alpha1.AnnotationReplacePinnedMaps: "true"} })
	n.fails(upgraded, v1alpha1.BpfProgCondNotLoaded, "the pin is kept because other programs use the map", "keeps running")

	n.delete(other)
	n.loaded(upgraded)
	n.eventually("the Event", func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := n.client.List(ctx, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.UID == upgraded.UID && e.Reason == "PinsRemoved" && strings.Contains(e.Note, "/sys/fs/bpf/pinned_flows") {
				return nil
			}
		}
		return errors.New("none")
	})
	for pin, size := range map[string]uint32{"pinned_flows": 104, "foreign": 4} {
		m, err := ebpf.LoadPinnedMap(n.Path("/sys/fs/bpf/"+pin), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.ValueSize() != size {
			t.Errorf("%s has values of %d bytes, want %d", pin, m.ValueSize(), size)
		}
		_ = m.Close()
	}
}
