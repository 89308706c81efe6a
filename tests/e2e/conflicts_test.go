// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/node"
)

// noticed is the maximum time until the inspector reports a conflict. Once a minute, it reads what can change
// without a change of the kernel's ids, and it writes at most every 10 seconds.
const noticed = 90 * time.Second

// conflictsOf returns the messages of a node's conflicts with a type, without those of other tests.
func conflictsOf(ctx context.Context, name, kind, word string) (messages []string, told bool, err error) {
	object := &v1alpha1.BpfNode{}
	if err := under.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return nil, false, fmt.Errorf("get BpfNode %s: %w", name, err)
	}
	for _, c := range object.Status.Conflicts {
		if c.Type == kind && strings.Contains(c.Message, word) {
			messages = append(messages, c.Message)
		}
	}
	return messages, meta.IsStatusConditionTrue(object.Status.Conditions, kind), nil
}

// awaitConflict waits until a node's BpfNode has a conflict with these words, or has none.
func awaitConflict(ctx context.Context, t *testing.T, name, kind, word, message string) {
	t.Helper()
	awaitFor(ctx, t, noticed, fmt.Sprintf("BpfNode %s has %s %q", name, kind, message), func(ctx context.Context) (bool, string) {
		messages, told, err := conflictsOf(ctx, name, kind, word)
		found := slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, message) })
		return err == nil && ((message == "" && len(messages) == 0) || (message != "" && found && told)), fmt.Sprintf("%q, condition %v, %v", messages, told, err)
	})
}

// hold attaches programs on a node like software that doesn't know bpfman, until end is called.
func hold(ctx context.Context, t *testing.T, name, as, what, where string, many int) (end func()) {
	t.Helper()
	stop := inBackground[any](ctx, t, name, []string{"hold", as, what, where, fmt.Sprint(many)}, "end-hold", as)
	return func() { stop() }
}

// TestConflicts attaches programs of other software that conflict with objects. The BpfNode describes the conflict
// and the holder, and the object has an Event. Both are updated when the conflict ends.
func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, conflict := range []step{
		{"a TCX program before ours", func(ctx context.Context, s *testing.T) {
			requireType(s, "TCX")
			name, iface := under.nodes()[0], "e2econflict"
			addInterface(ctx, s, iface)
			o := tcx("e2e-conflict-tcx", iface)
			create(ctx, s, o)
			awaitSuccess(ctx, s, o) // the daemon attaches it before the existing program
			end := hold(ctx, s, name, "tcx", "tcx", iface, 1)
			const words = "and can end the chain; it is held by process node-probe of pod "
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeEarlierInChain, iface, words)
			awaitEvent(ctx, s, o, corev1.EventTypeWarning, v1alpha1.BpfNodeEarlierInChain+": On node "+name+": program held_tcx ", "runs before TcxProgram "+o.Name, words)
			saysWhy(ctx, s, o, nil, "Conflict "+v1alpha1.BpfNodeEarlierInChain+": program held_tcx ", "To do: compare what your program counts")
			end()
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeEarlierInChain, iface, "")
		}},
		{"a tracepoint near its limit", func(ctx context.Context, s *testing.T) {
			requireType(s, "Tracepoint")
			const event = "sys_enter_swapoff"
			name := under.nodes()[0]
			o := tracepoint("e2e-conflict-tracepoint")
			o.Spec.Names = []string{"syscalls/" + event}
			create(ctx, s, o)
			end := hold(ctx, s, name, "events", "tracepoint", event, 60)
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeEventNearLimit, event, "has at least 56 of the 64 programs")
			awaitEvent(ctx, s, o, corev1.EventTypeWarning, v1alpha1.BpfNodeEventNearLimit, event+" has at least 56 of the 64 programs")
			end()
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeEventNearLimit, event, "")
		}},
		{"a program that the daemon loaded for somebody else", func(ctx context.Context, s *testing.T) {
			requireType(s, "TCX")
			name, iface := under.nodes()[0], "e2estray"
			addInterface(ctx, s, iface)
			request, err := json.Marshal(node.ByHand{Type: "TCX", Image: image("tcx_test").Image.Url, Function: "tcx_next", Interface: iface, Direction: "ingress"})
			if err != nil {
				s.Fatal(err)
			}
			stray, err := ask[node.Program](ctx, name, "by-hand", string(request))
			if err != nil {
				s.Fatal(err)
			}
			unload := sync.OnceFunc(func() {
				if _, err := ask[any](context.WithoutCancel(ctx), name, "unload", fmt.Sprint(stray.ID)); err != nil {
					s.Error(err)
				}
			})
			s.Cleanup(unload)
			message := fmt.Sprintf("bpfman loaded program tcx_next (%d), but no object owns it", stray.ID)
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeUnownedProgram, fmt.Sprintf("(%d)", stray.ID), message)
			unload()
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeUnownedProgram, fmt.Sprintf("(%d)", stray.ID), "")
		}},
		{"an XDP program where ours is to be", func(ctx context.Context, s *testing.T) {
			requireType(s, "XDP")
			name, iface := under.nodes()[0], "e2exdp"
			addInterface(ctx, s, iface)
			end := hold(ctx, s, name, "xdp", "xdp", iface, 1)
			o := xdpObject("e2e-conflict-xdp", iface)
			create(ctx, s, o)
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeForeignXDP, iface, "can't be attached to interface "+iface+", because XDP program held_xdp ")
			awaitEvent(ctx, s, o, corev1.EventTypeWarning, v1alpha1.BpfNodeForeignXDP, "because XDP program held_xdp ", "held by process node-probe")
			end()
			awaitConflict(ctx, s, name, v1alpha1.BpfNodeForeignXDP, iface, "")
		}},
	} {
		t.Run(strings.ReplaceAll(conflict.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			feature(t, conflict)
		})
	}
}

func xdpObject(name, iface string) *v1alpha1.XdpProgram {
	return &v1alpha1.XdpProgram{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.XdpProgramSpec{
			XdpProgramInfo: v1alpha1.XdpProgramInfo{BpfProgramCommon: functionOf("pass"), InterfaceSelector: on(iface)},
			BpfAppCommon:   of("xdp_pass"),
		},
	}
}
