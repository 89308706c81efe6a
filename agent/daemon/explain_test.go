// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/uprobe"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// failing is a client whose Attach fails. If reason isn't empty, the daemon's helper left it.
type failing struct {
	gobpfman.BpfmanClient

	code        codes.Code
	dir, reason string
}

func (f failing) Attach(context.Context, *gobpfman.AttachRequest, ...grpc.CallOption) (*gobpfman.AttachResponse, error) {
	if f.reason != "" {
		if err := uprobe.Leave(f.dir, errors.New(f.reason)); err != nil {
			return nil, err
		}
	}
	return nil, status.Error(f.code, "Unable to attach uprobe in container with pid 7")
}

func TestReasonsOfTheHelper(t *testing.T) {
	dir := t.TempDir()
	inContainer := &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{UprobeAttachInfo: &gobpfman.UprobeAttachInfo{ContainerPid: new(int32(7))}}}
	onNode := &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{UprobeAttachInfo: &gobpfman.UprobeAttachInfo{}}}
	const daemons = "Unable to attach uprobe in container with pid 7"
	of := &program.Process{PID: 7, Of: "c1", Namespace: "acme"}
	for name, c := range map[string]struct {
		reason string
		code   codes.Code
		attach *gobpfman.AttachInfo
		want   string
	}{
		"a reason":           {"function strlen is indirect", codes.Aborted, inContainer, daemons + ": function strlen is indirect"},
		"none":               {"", codes.Aborted, inContainer, daemons},
		"not in a container": {"function strlen is indirect", codes.Aborted, onNode, daemons},
		"the daemon is down": {"function strlen is indirect", codes.Unavailable, inContainer, daemons},
	} {
		if err := uprobe.Leave(dir, errors.New("an earlier reason")); err != nil {
			t.Fatal(err)
		}
		_, err := Explained(failing{code: c.code, dir: dir, reason: c.reason}, dir).Attach(withProcess(t.Context(), of), &gobpfman.AttachRequest{Attach: c.attach})
		if s := status.Convert(err); s.Code() != c.code || s.Message() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if in := uprobe.Announced(dir); c.attach == inContainer && in != (uprobe.Container{Namespace: "acme", ID: "c1"}) {
			t.Errorf("%s: the helper is told %v", name, in)
		}
	}
}
