// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	bytecodeobject "github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/examples/counters"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const callTimeout = time.Minute

// objectDir is the output directory of `make bytecode`.
const objectDir = "../../bin/bytecode"

// fixture is a daemon, and a program to probe.
type fixture struct {
	*daemontest.Real
	target string
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	if objects, _ := filepath.Glob(filepath.Join(objectDir, "*.o")); len(objects) == 0 {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
	return &fixture{Real: daemontest.Start(t), target: build(t, "go-target")}
}

// compiled returns the location of an object as the compiler wrote it.
func compiled(t *testing.T, name string) *gobpfman.BytecodeLocation {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(objectDir, name+".o"))
	if err != nil {
		t.Fatal(err)
	}
	return file(path)
}

// adapted returns the location of an object as agents pass it to the daemon.
func adapted(t *testing.T, name string) *gobpfman.BytecodeLocation {
	t.Helper()
	content := must.Read(t, filepath.Join(objectDir, name+".o"))
	kernel, err := bytecodeobject.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	result, err := bytecodeobject.Adapt(content, kernel)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".o")
	must.Succeed(t, os.WriteFile(path, result.Content, 0o600))
	return file(path)
}

func file(path string) *gobpfman.BytecodeLocation {
	return &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: path}}
}

func (f *fixture) load(ctx context.Context, location *gobpfman.BytecodeLocation, globals map[string][]byte, programs ...program) (*gobpfman.LoadResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &gobpfman.LoadRequest{Bytecode: location, GlobalData: globals}
	for _, p := range programs {
		request.Info = append(request.Info, p.loadInfo())
	}
	return f.Client.Load(ctx, request)
}

// TestObjects loads every object with one Load, as the compiler wrote it, and as agents pass it to the daemon: adapted to
// this kernel. It attaches each program, checks that it counts, and checks that nothing is left after it is detached and
// unloaded. Both forms are the same program to the kernel. The daemon's loader can't load two of them as they were written.
func TestObjects(t *testing.T) {
	f := setUp(t)
	pins := f.pins(t)
	for i, object := range objects(f.target) {
		tags := map[string]string{}
		for _, form := range []struct {
			name string
			of   func(*testing.T, string) *gobpfman.BytecodeLocation
		}{{"compiled", compiled}, {"adapted", adapted}} {
			t.Run(fmt.Sprintf("%s/%d/%s", object.name, i, form.name), func(t *testing.T) {
				location := form.of(t, object.name)
				loaded, err := f.load(t.Context(), location, object.globals, object.programs...)
				if reason := kernelRefusal(err); reason != "" {
					lacksTypes(t, reason, refused(object.programs)...)
				}
				if (object.name == forLibbpf || object.name == mapsForLibbpf) && form.name == "compiled" && err != nil {
					return
				}
				if err != nil {
					t.Fatalf("Load: %v", err)
				}
				t.Cleanup(func() { f.checkGone(t, loaded.Programs, pins) })
				// If a kernel refuses one program, the test skips the others.
				for _, result := range loaded.Programs {
					if tag := result.KernelInfo.Tag; tag != cmp.Or(tags[result.Info.Name], tag) {
						t.Errorf("%s has the tag %s, and %s as compiled", result.Info.Name, tag, tags[result.Info.Name])
					}
					tags[result.Info.Name] = result.KernelInfo.Tag
					t.Cleanup(func() { f.unload(t, result.KernelInfo.Id) })
				}
				for j, p := range object.programs {
					link := f.attachAndCount(t, p, loaded.Programs[j])
					t.Cleanup(func() { f.detach(t, link) })
				}
			})
		}
	}
}

func (f *fixture) unload(t *testing.T, id uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := f.Client.Unload(ctx, &gobpfman.UnloadRequest{Id: id}); err != nil {
		t.Errorf("Unload %d: %v", id, err)
	}
}

func (f *fixture) detach(t *testing.T, id uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := f.Client.Detach(ctx, &gobpfman.DetachRequest{LinkId: id}); err != nil {
		t.Errorf("Detach %d: %v", id, err)
	}
}

// attachAndCount attaches the program, checks that it counts, and returns its link.
func (f *fixture) attachAndCount(t *testing.T, p program, loaded *gobpfman.LoadResponseInfo) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	attached, err := f.Client.Attach(ctx, &gobpfman.AttachRequest{Id: loaded.KernelInfo.Id, Attach: p.attach})
	if reason := kernelRefusal(err); reason != "" {
		lacksTypes(t, p.function+" loaded, not attached: "+reason, p.kind)
	}
	if err != nil {
		t.Fatalf("Attach %s: %v", p.function, err)
	}
	if p.counter == "" {
		return attached.LinkId
	}
	before := f.count(t, loaded, p.counter)
	f.cause(t, p.kind)
	after := f.count(t, loaded, p.counter)
	if after.Packets+after.Events <= before.Packets+before.Events {
		t.Errorf("%s didn't count: %s, then %s", p.function, before, after)
	}
	if after.Traffic && after.Bytes <= before.Bytes {
		t.Errorf("%s counted no bytes: %s, then %s", p.function, before, after)
	}
	return attached.LinkId
}

func (f *fixture) count(t *testing.T, loaded *gobpfman.LoadResponseInfo, name string) counters.Count {
	t.Helper()
	pin := counters.Pin{Path: filepath.Join(f.Path(loaded.Info.MapPinPath), name)}
	count, err := counters.Read(&pin)
	err = errors.Join(err, pin.Close())
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// cause causes the events that a type of program counts.
func (f *fixture) cause(t *testing.T, kind gobpfman.BpfmanProgramType) {
	t.Helper()
	var err error
	switch kind {
	case gobpfman.BpfmanProgramType_XDP, gobpfman.BpfmanProgramType_TC, gobpfman.BpfmanProgramType_TCX:
		err = f.InNetwork(func() error { return sendPacket(t.Context()) })
	case gobpfman.BpfmanProgramType_TRACEPOINT:
		err = syscall.Kill(os.Getpid(), 0)
	case gobpfman.BpfmanProgramType_UPROBE:
		err = exec.CommandContext(t.Context(), f.target, "--interval", "1ms", "--calls", "1").Run()
	default:
		err = unlinkFile(t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sendPacket sends a packet over the loopback interface, and waits until it arrives.
func sendPacket(ctx context.Context) error {
	receiver, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("receive packets: %w", err)
	}
	defer receiver.Close()
	if _, err := receiver.WriteTo([]byte("packet"), receiver.LocalAddr()); err != nil {
		return fmt.Errorf("send packet: %w", err)
	}
	if err := receiver.SetReadDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	_, _, err = receiver.ReadFrom(make([]byte, 16))
	return err
}

func unlinkFile(dir string) error {
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return syscall.Unlink(path)
}

// verifierLog matches an error that contains the verifier's log.
var verifierLog = regexp.MustCompile(`verifier_log: +[^ }]`)

// kernelRefusal returns why this kernel can't run a program, or nothing if the error has another reason.
func kernelRefusal(err error) string {
	text := status.Convert(err).Message()
	if err == nil || verifierLog.MatchString(text) {
		return ""
	}
	// BPF trampolines, and the PMU for kprobes.
	for _, refusal := range []string{"Operation not permitted", "devices/kprobe/type"} {
		if strings.Contains(text, refusal) {
			return "refused by this kernel: " + text
		}
	}
	return ""
}

// refused returns the types that a kernel refuses to load because it refuses the programs. Without BPF
// trampolines, it supports neither dispatchers nor fentry and fexit programs.
func refused(programs []program) []gobpfman.BpfmanProgramType {
	var trampolines, all []gobpfman.BpfmanProgramType
	for _, p := range programs {
		all = append(all, p.kind)
		switch p.kind {
		case gobpfman.BpfmanProgramType_XDP, gobpfman.BpfmanProgramType_TC, gobpfman.BpfmanProgramType_FENTRY, gobpfman.BpfmanProgramType_FEXIT:
			trampolines = append(trampolines, p.kind)
		default:
		}
	}
	if len(trampolines) > 0 {
		return trampolines
	}
	return all
}

// lacksTypes skips the test, because this kernel doesn't support programs of these types.
func lacksTypes(t *testing.T, reason string, kinds ...gobpfman.BpfmanProgramType) {
	t.Helper()
	var names []prerequisite.Name
	for _, kind := range kinds {
		name, err := prerequisite.OfType(kind.String())
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	prerequisite.Missing(t, reason, names...)
}

// build builds one of the example commands. If BPFMAN_BIN is set, all are already built there.
func build(t *testing.T, command string) string {
	t.Helper()
	if dir := os.Getenv("BPFMAN_BIN"); dir != "" {
		return filepath.Join(dir, command)
	}
	path := filepath.Join(t.TempDir(), command)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/"+command)
	build.Dir = "../../examples"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return path
}
