// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// loadCounter counts Loads by object name.
type loadCounter struct {
	gobpfman.BpfmanClient
	node *node
}

func (c *loadCounter) Load(ctx context.Context, in *gobpfman.LoadRequest, options ...grpc.CallOption) (*gobpfman.LoadResponse, error) {
	c.node.mu.Lock()
	c.node.loads[in.GetMetadata()[v1alpha1.MetadataProgramName]]++
	if c.node.earlier {
		location := &gobpfman.BytecodeImage{Url: c.node.Address + "/" + earlierImage, ImagePullPolicy: 1}
		in.Bytecode = &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_Image{Image: location}}
	}
	c.node.mu.Unlock()
	return c.BpfmanClient.Load(ctx, in, options...)
}

// TestAFailureThatRepeatsIsToldOnce causes failures whose errors from the real daemon differ at each attempt: in
// addresses and times, and in which global is named. The daemon is called less and less.
func TestAFailureThatRepeatsIsToldOnce(t *testing.T) {
	const loads = 4
	n := start(t)
	for _, name := range []string{"tcx_test", "rejected_late", "pinned", "pinned_wider"} {
		n.Push("test/"+name+":v1", build(t, name))
	}
	failing := func(name, image, function string) *v1alpha1.TcxProgram {
		o := n.program(name, n.image("test/"+image+":v1", v1alpha1.PullIfNotPresent))
		o.Spec.BpfFunctionName = function
		return o
	}
	globals := failing("repeat-globals", "tcx_test", "tcx_next")
	globals.Spec.GlobalData = map[string][]byte{"A": {1}, "B": {1}, "C": {1}}
	first := failing("repeat-first", "pinned", "pinned")
	n.create(first)
	n.loaded(first)
	for _, o := range []*v1alpha1.TcxProgram{
		globals,
		failing("repeat-verdict", "rejected_late", "rejected_late"),
		failing("repeat-pin", "pinned_wider", "pinned"),
	} {
		n.create(o)
		n.eventually("retries of "+o.Name, func(context.Context) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.loads[o.Name] < loads {
				return fmt.Errorf("%d loads", n.loads[o.Name])
			}
			return nil
		})
		var events eventsv1.EventList
		must.Succeed(t, n.client.List(t.Context(), &events))
		var notes []string
		for _, e := range events.Items {
			if e.Regarding.UID == o.UID {
				notes = append(notes, e.Note)
			}
		}
		if len(notes) != 1 {
			t.Errorf("%s is told of by %d Events: %q", o.Name, len(notes), notes)
		}
	}
}
