// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Literal messages of the daemon of v0.6.0, and the text for the user.
func TestErrorText(t *testing.T) {
	for name, c := range map[string]struct{ cause, want string }{
		"its words": {
			"An error occurred. Program 7 does not exist or was not created by bpfman",
			"attach to lo: Program 7 does not exist or was not created by bpfman",
		},
		"of a list": {
			`one or more programs failed to load: [BpfFunctionNameNotValid("absent")]`,
			`attach to lo: the object has no function absent`,
		},
		"a status in a status": {
			`status: Aborted, message: "failed to parse proceed_on", details: [], metadata: MetadataMap { headers: {} }`,
			"attach to lo: failed to parse proceed_on",
		},
		"quotes and lines within": {
			`status: Aborted, message: "failed to list programs: Database entry id does not exist in tree \"program_7\": \n\\o/", details: [], metadata: MetadataMap { headers: {} }`,
			"attach to lo: failed to list programs: Database entry id does not exist in tree \"program_7\": \n\\o/",
		},
		"Rust's own escapes stay whole": {
			`status: Aborted, message: "\u{1b}[31m", details: [], metadata: MetadataMap { headers: {} }`,
			`attach to lo: status: Aborted, message: "\u{1b}[31m", details: [], metadata: MetadataMap { headers: {} }`,
		},
		"a like text of another's": {
			`the verifier said status: Aborted, message: "x", details: []`,
			`attach to lo: the verifier said status: Aborted, message: "x", details: []`,
		},
		"nothing": {"", "attach to lo: "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Error{Op: "attach to lo", Cause: (rust{}).refusal(status.Error(codes.Aborted, c.cause))}).Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}

	for code, want := range map[codes.Code]string{
		codes.Unavailable:      "list programs: the bpfman daemon can't be reached: socket is gone",
		codes.DeadlineExceeded: "list programs: the bpfman daemon didn't answer in time",
		codes.Internal:         "list programs: socket is gone",
	} {
		cause := status.Error(code, "socket is gone")
		err := error(&Error{Op: "list programs", Cause: cause})
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%s: %v, want %s", code, err, want)
		}
	}
}

// The daemon reports for many objects that they don't exist. Only for the
// object to be removed does this mean that there is nothing to do.
func TestGone(t *testing.T) {
	for text, want := range map[string]struct{ program, link bool }{
		"An error occurred. Program 7 does not exist or was not created by bpfman":                                         {program: true},
		"An error occurred. Program 77 does not exist or was not created by bpfman":                                        {},
		`Database entry type does not exist in tree "link_7": `:                                                            {link: true},
		`Database entry type does not exist in tree "link_77": `:                                                           {},
		`status: Aborted, message: "Database entry type does not exist in tree \"link_7\": ", details: [], metadata: M {}`: {link: true},
		`Database entry kind does not exist in tree "program_7": `:                                                         {},
		"An error occurred. map_pin_path does not exists":                                                                  {},
		"": {},
	} {
		err := status.Error(codes.Aborted, text)
		if program, link := (rust{}).gone(err, aProgram, 7), (rust{}).gone(err, aLink, 7); program != want.program || link != want.link {
			t.Errorf("%s: program gone %v, link gone %v, want %v", text, program, link, want)
		}
	}
	if (rust{}).gone(nil, aProgram, 7) {
		t.Error("no error tells that something is gone")
	}
}

func TestDaemonReturns(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bpfman.sock")
	conn, err := bpfman.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := gobpfman.NewBpfmanClient(conn)

	ctx, cancel := context.WithCancel(t.Context())
	up, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		OnConnect(ctx, conn, func() { up <- struct{}{} })
	}()

	// With and without calls during the interruption.
	for round, calls := range []bool{true, false, true, false} {
		if calls {
			if _, err := client.List(t.Context(), &gobpfman.ListRequest{}); status.Code(err) != codes.Unavailable {
				t.Fatalf("round %d, without a daemon: %v", round, err)
			}
		}
		stop := daemontest.New(t.TempDir()).Serve(t, socket)
		await(t, up, "the connection to come up")
		if _, err := client.List(t.Context(), &gobpfman.ListRequest{}); err != nil {
			t.Fatalf("round %d, with a daemon: %v", round, err)
		}
		stop()
	}
	cancel()
	await(t, ended, "OnConnect to end")
}

// The daemon's list contains each program's global data, which can exceed
// gRPC's default limit of 4 MiB.
func TestLongAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bpfman.sock")
	fake := daemontest.New(t.TempDir())
	if _, err := fake.Load(t.Context(), &gobpfman.LoadRequest{
		Info: []*gobpfman.LoadInfo{{Name: "long"}}, GlobalData: map[string][]byte{"table": bytes.Repeat([]byte{1}, 8<<20)},
	}); err != nil {
		t.Fatal(err)
	}
	fake.Serve(t, socket)
	conn, err := bpfman.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := gobpfman.NewBpfmanClient(conn).List(t.Context(), &gobpfman.ListRequest{}); err != nil {
		t.Error(err)
	}
}

// await waits for an event. Only a failed test takes the full timeout.
func await(t *testing.T, event <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
	}
}

// Which answers of the daemon of v0.6.0 to a Load stay until something changes. The others
// can be different the next time.
func TestPermanent(t *testing.T) {
	const log = "verifier_log: 0: R1=ctx()\n1: exit\nverification time 25 usec\n"
	load := func(code int, kind, message string) string {
		return fmt.Sprintf(`one or more programs failed to load: [BpfProgramError(LoadError { io_error: Os { code: %d, kind: %s, message: %q }, %s })]`, code, kind, message, log)
	}
	for name, c := range map[string]struct {
		code  codes.Code
		cause string
		want  bool
	}{
		"the verifier":            {codes.Aborted, load(13, "PermissionDenied", "Permission denied"), true},
		"invalid bytecode":        {codes.Aborted, load(22, "InvalidInput", "Invalid argument"), true},
		"too complex":             {codes.Aborted, load(7, "ArgumentListTooLong", "Argument list too long"), true},
		"not permitted":           {codes.Aborted, load(1, "PermissionDenied", "Operation not permitted"), true},
		"not supported":           {codes.Aborted, load(95, "Unsupported", "Operation not supported"), true},
		"not by this kernel":      {codes.Aborted, load(524, "Uncategorized", "Unknown error 524"), true},
		"no memory":               {codes.Aborted, load(12, "OutOfMemory", "Cannot allocate memory"), false},
		"interrupted":             {codes.Aborted, load(4, "Interrupted", "Interrupted system call"), false},
		"again":                   {codes.Aborted, load(11, "WouldBlock", "Resource temporarily unavailable"), false},
		"busy":                    {codes.Aborted, load(16, "ResourceBusy", "Device or resource busy"), false},
		"too large":               {codes.Aborted, load(28, "StorageFull", "No space left on device"), false},
		"a number that begins so": {codes.Aborted, load(130, "Uncategorized", "Owner died"), false},
		"a status in a status": {
			codes.Aborted,
			`status: Aborted, message: "one or more programs failed to load: [BpfProgramError(LoadError { io_error: Os { code: 13, kind: PermissionDenied, message: \"Permission denied\" }, verifier_log: \n })]", details: [], metadata: MetadataMap { headers: {} }`,
			true,
		},
		"with Rust's own escapes": {
			codes.Aborted,
			`status: Aborted, message: "LoadError { io_error: Os { code: 13, kind: PermissionDenied, message: \"Permission denied\" }, verifier_log: \u{1b} })", details: [], metadata: MetadataMap { headers: {} }`,
			true,
		},
		"the type of a program":     {codes.Aborted, `one or more programs failed to load: [BpfProgramError(UnexpectedProgramType)]`, true},
		"an absent function":        {codes.Aborted, `one or more programs failed to load: [BpfFunctionNameNotValid("absent")]`, true},
		"a map":                     {codes.Aborted, "one or more programs failed to load: [BpfLoadError(failed to create map `events` with code -1)]", true},
		"an unknown section":        {codes.Aborted, "error parsing BPF object: invalid program section `tc`", true},
		"no bytecode":               {codes.Aborted, "error parsing BPF object: Unknown file magic", true},
		"an unknown global":         {codes.Aborted, "error parsing BPF object: symbol with name ABSENT not found in the symbols table", true},
		"a global of another size":  {codes.Aborted, "error parsing BPF object: symbol GLOBAL_u32 has size `4`, but provided data is of size `1`", true},
		"no BTF":                    {codes.Aborted, "error relocating function", true},
		"no section":                {codes.Aborted, "error relocating section", true},
		"an absent file":            {codes.Aborted, "can't open file: No such file or directory (os error 2)", false},
		"a full disk":               {codes.Aborted, "Failed to store the program: No space left on device (os error 28)", false},
		"a map owner that is gone":  {codes.Aborted, "map_owner_id does not exist", false},
		"its database":              {codes.Aborted, `status: Aborted, message: "failed to list programs: Database entry id does not exist in tree \"program_7\": ", details: [], metadata: MetadataMap { headers: {} }`, false},
		"unknown":                   {codes.Aborted, "something that nobody has met", false},
		"nothing":                   {codes.Aborted, "", false},
		"a connection that is lost": {codes.Unavailable, "error reading from server: UnexpectedProgramType", false},
		"a deadline":                {codes.DeadlineExceeded, "error parsing BPF object", false},
		"another API":               {codes.Unimplemented, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := &Error{Op: "load f from image quay.io/x", Cause: (rust{}).refusal(status.Error(c.code, c.cause))}
			if got := err.Permanent(); got != c.want {
				t.Errorf("%v: %v", err, got)
			}
			if got, want := err.Refused(), c.code == codes.Aborted; got != want {
				t.Errorf("%v: refused is %v", err, got)
			}
		})
	}
}
