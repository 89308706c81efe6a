// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// rust is the daemon of v0.6.0. It refuses each call with code Aborted, so only the text says why.
type rust struct{}

func (rust) list(ctx context.Context, rpc gobpfman.BpfmanClient, _ []uint32) (*gobpfman.ListResponse, error) {
	return rpc.List(ctx, &gobpfman.ListRequest{BpfmanProgramsOnly: new(true)}) //nolint:wrapcheck // the caller adds context
}

// load refuses LSM programs, which the daemon doesn't know.
func (rust) load(ctx context.Context, rpc gobpfman.BpfmanClient, request *gobpfman.LoadRequest) (*gobpfman.LoadResponse, error) {
	for _, f := range request.GetInfo() {
		if f.GetProgramType() == gobpfman.BpfmanProgramType_LSM {
			return nil, refuse(problem.OtherDaemonNeeded, codes.FailedPrecondition, "function %s is an LSM program, which this node's bpfman daemon can't load: "+
				"it needs the daemon in Go; set bpfman.image in the ConfigMap bpfman-config", f.GetName())
		}
	}
	return rpc.Load(ctx, request) //nolint:wrapcheck // the caller adds context
}

func (rust) attach(ctx context.Context, rpc gobpfman.BpfmanClient, request *gobpfman.AttachRequest) (*gobpfman.AttachResponse, error) {
	return rpc.Attach(ctx, request) //nolint:wrapcheck // the caller adds context
}

func (rust) detach(ctx context.Context, rpc gobpfman.BpfmanClient, link uint32) error {
	_, err := rpc.Detach(ctx, &gobpfman.DetachRequest{LinkId: link})
	return err //nolint:wrapcheck // the caller adds context
}

// pinsBeforeItLists is false, because each call, and the daemon's own command line, locks the database.
func (rust) pinsBeforeItLists() bool { return false }

// database is a file that sled writes once, when it creates the database.
func (rust) database() string { return databaseDir + "/conf" }

// admits everything: bpfman-ns, which opens targets in containers for the daemon, opens only regular files.
func (rust) admits(program.Key, *gobpfman.AttachInfo) error { return nil }

func (rust) loadedTogether(a, b string) bool { return a == b }

func (rust) sharesVariables() bool { return true }

func (rust) pinsInSysfs() bool { return true }

// wrapped matches the errors of the daemon of v0.6.0. They are the debug format of
// a status, of which only the message is useful for users.
var wrapped = regexp.MustCompile(`^status: \w+, message: ("(?:[^"\\]|\\.)*"), details: `)

// permanent matches the errors of the daemon of v0.6.0 about a Load that fails until the
// object, the kernel, or the daemon changes: the kernel's verifier refuses a program, or
// the kernel doesn't support what it uses (with the number of the error) or one of its
// maps, the bytecode can't be parsed or relocated, or a function or a global variable
// isn't in it.
var permanent = regexp.MustCompile(strings.Join([]string{
	`LoadError \{ io_error: Os \{ code: (1|7|13|22|95|524),`,
	`UnexpectedProgramType`,
	`failed to create map`,
	`error relocating (function|section)`,
	`error parsing BPF object`,
	`BpfFunctionNameNotValid`,
	`not found in the symbols table`,
	"but provided data is of size",
}, "|"))

func (rust) refusal(err error) error {
	s := status.Convert(err)
	if s.Code() != codes.Aborted { // from the connection
		return err
	}
	message := s.Message()
	if match := wrapped.FindStringSubmatch(message); match != nil {
		if inner, err := strconv.Unquote(match[1]); err == nil {
			message = inner
		}
	}
	code := codes.Aborted
	if permanent.MatchString(message) {
		code = codes.FailedPrecondition
	}
	return status.Error(code, quiet(message))
}

// The messages about a program or link that no longer exists. There are similar ones about other objects.
var gones = map[object]string{
	aProgram: "Program %d does not exist",
	aLink:    `does not exist in tree "link_%d"`,
}

func (d rust) gone(err error, what object, id uint32) bool {
	return strings.Contains(status.Convert(d.refusal(err)).Message(), fmt.Sprintf(gones[what], id))
}
