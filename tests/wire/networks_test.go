// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package wire

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// TestNumberOfAnEndedNetwork attaches a program in a network namespace that gets the number of one that has ended. The daemon
// takes both for the same, and can't attach it as long as it has a link in the first one. So the agent detaches links when a
// pod's sandbox ends, before the next pod starts.
func TestNumberOfAnEndedNetwork(t *testing.T) {
	c := start(t)
	id := answer(c, c.load, &gobpfman.LoadRequest{
		Bytecode: c.object("tcx_test"), GlobalData: map[string][]byte{"GLOBAL_u8": {1}, "GLOBAL_u32": {13, 0, 0xfe, 10}}, Info: []*gobpfman.LoadInfo{tcx("tcx_next")},
	}).GetPrograms()[0].GetKernelInfo().GetId()
	in := func(network string) *gobpfman.AttachRequest {
		request := onLoopback(id, "ingress")
		request.GetAttach().GetTcxAttachInfo().Netns = &network
		return request
	}
	first, number, end := network(t)
	link := answer(c, c.attach, in(first)).GetLinkId()
	end()
	var second string
	must.Succeed(t, eventually.Succeeds(t.Context(), time.Minute, 100*time.Millisecond, func(context.Context) error {
		path, another, end := network(t) //nolint:contextcheck // it has the test's context
		if another != number {
			end()
			return fmt.Errorf("the number is %s, and not %s", another, number)
		}
		second = path
		return nil
	}))
	if _, err := call(c, c.attach, in(second)); err == nil {
		t.Error("the daemon distinguishes the networks: the agent doesn't have to detach at the end of a sandbox")
	}
	answer(c, c.detach, link)
	answer(c, c.attach, in(second))
}

// network starts a process in a network namespace of its own, and returns the namespace's path, its number, and what ends both.
func network(t *testing.T) (path, number string, end func()) {
	t.Helper()
	process := exec.CommandContext(t.Context(), "sleep", "infinity")
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	must.Succeed(t, process.Start())
	path = fmt.Sprintf("/proc/%d/ns/net", process.Process.Pid)
	number, err := os.Readlink(path)
	must.Succeed(t, err)
	return path, number, func() {
		_ = process.Process.Kill() // an error means that it has ended
		_ = process.Wait()
	}
}
