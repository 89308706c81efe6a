// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/agent/program"
)

// While the API server doesn't respond, programs are attached to new interfaces immediately. Once it responds, the reports say so.
func TestPlansDoNotWaitForReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var names []string
		for n := range 20 {
			names = append(names, fmt.Sprint("net-", n))
		}
		server := &apiServer{lists: map[string]string{"tcxprograms": discovering(names...)}}
		h, stop := startController(t, server, nil)
		defer stop()
		within(t, time.Minute, "attached to eth0, and reported", func() bool { return h.links() == 20 && h.reportsAgree(server) })
		server.drop(true)
		for n := 1; n <= 5; n++ {
			name := fmt.Sprint("eth", n)
			h.appears(t.Context(), name)
			within(t, time.Second, "attached to "+name, func() bool { return h.links() == 20*(n+1) })
			<-time.After(20 * time.Second)
		}
		server.drop(false)
		within(t, time.Minute, "reported", func() bool { return h.reportsAgree(server) })
	})
}

// While a node fills, the links of an object are reported once a second, and the last ones too.
func TestLinksAreReportedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net")}}
		h, stop := startController(t, server, nil)
		defer stop()
		within(t, time.Minute, "attached to eth0, and reported", func() bool { return h.links() == 1 && h.reportsAgree(server) })
		<-time.After(time.Minute)
		before := server.written()
		h.appears(t.Context(), "first")
		within(t, 200*time.Millisecond, "the first one is reported immediately", func() bool { return h.reportsAgree(server) })
		for n := range 99 {
			h.appears(t.Context(), fmt.Sprint("eth", n+1))
			<-time.After(100 * time.Millisecond)
		}
		within(t, 2*time.Second, "attached, and reported", func() bool { return h.links() == 101 && h.reportsAgree(server) })
		if writes := server.written() - before; writes > 12 {
			t.Errorf("%d writes for 100 links in ten seconds", writes)
		}
	})
}

// An agent that stops while a node fills reports the last links: the next agent doesn't attach them again.
func TestLastLinksAreReportedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net")}}
		h, stop := startController(t, server, nil)
		within(t, time.Minute, "attached to eth0, and reported", func() bool { return h.links() == 1 && h.reportsAgree(server) })
		<-time.After(time.Minute)
		for n := range 3 {
			h.appears(t.Context(), fmt.Sprint("eth", n+1))
			within(t, time.Second/4, "attached", func() bool { return h.links() == n+2 })
			synctest.Wait() // the agent has noticed it
		}
		if h.reportsAgree(server) {
			t.Fatal("the last links are reported already")
		}
		stop()
		if !h.reportsAgree(server) {
			t.Error("the last links aren't reported")
		}
	})
}

// If the outcome of an Attach is unknown, only the object's report on the API server can say whose the daemon's new link is.
// Until it can be read, the link stays, and nothing is attached in its place. Other programs aren't affected.
func TestUnrecordedLinksStayUntilReportsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net")}}
		h, stop := startController(t, server, nil)
		defer stop()
		within(t, time.Minute, "attached to eth0, and reported", func() bool { return h.links() == 1 && h.reportsAgree(server) })
		server.drop(true)
		h.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
			if call == "Attach" && done {
				return status.Error(codes.Unavailable, "the connection was closed")
			}
			return nil
		})
		h.appears(t.Context(), "eth1")
		within(t, time.Second, "attached to eth1", func() bool { return h.links() == 2 })
		h.daemon.SetFault(nil)
		h.appears(t.Context(), "eth2")
		<-time.After(time.Minute)
		if calls := h.daemon.Calls(); h.links() != 2 || slices.Contains(calls, "Detach") {
			t.Errorf("%d links after %q", h.links(), calls)
		}
		server.drop(false)
		within(t, time.Minute, "attached to each interface, and reported", func() bool { return h.links() == 3 && h.reportsAgree(server) })
	})
}

// While the container runtime doesn't respond, objects that select containers don't delay those that don't.
func TestASilentRuntimeDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes []string
		for n := range 100 {
			probes = append(probes, fmt.Sprintf(`{"metadata":{"name":"probe-%d","uid":"uid-probe-%d"},"spec":{"bpffunctionname":"f","target":"/bin/x","func_name":"g",
				"containers":{"namespace":"default","pods":{}},"bytecode":{"path":"/object.o"},"nodeselector":{}}}`, n, n))
		}
		server := &apiServer{lists: map[string]string{"tcxprograms": discovering("net"), "uprobeprograms": strings.Join(probes, ",")}}
		lane := make(chan struct{}, 1) // as the mutex of the client of the runtime
		h, stop := startController(t, server, func(o *Options) {
			o.Containers = func(ctx context.Context, _ []corev1.Pod) ([]program.Container, error) {
				lane <- struct{}{}
				defer func() { <-lane }()
				<-ctx.Done()
				return nil, status.FromContextError(ctx.Err()).Err()
			}
		})
		defer stop()
		within(t, time.Minute, "attached to eth0", func() bool { return h.links() == 1 })
		for n := 1; n <= 5; n++ {
			<-time.After(time.Minute)
			h.appears(t.Context(), fmt.Sprint("eth", n))
			h.enqueueAll(t.Context())
			within(t, runtimeDeadline, "attached to the next interface", func() bool { return h.links() == n+1 })
		}
	})
}
