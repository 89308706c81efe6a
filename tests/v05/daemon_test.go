// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package v05

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	agentdaemon "github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/v05"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// binaryVariable is the environment variable with the path of the daemon of v0.5.6. later06
	// is that of v0.6.0.
	binaryVariable = "BPFMAN_V05_RPC"
	later06        = "BPFMAN_RPC"

	objects = "../../bin/bytecode"
	bpffs   = "/run/bpfman/fs"
)

// daemon05 starts the daemon of v0.5.6 in a place.
func daemon05(t *testing.T, place *daemontest.Place) *daemontest.Real {
	t.Helper()
	return place.Start(t, os.Getenv(binaryVariable))
}

func requireDaemons(t *testing.T) *daemontest.Place {
	t.Helper()
	for _, variable := range []string{binaryVariable, later06} {
		if os.Getenv(variable) == "" {
			prerequisite.Missing(t, variable+" isn't set: see `make test-upstream-daemon`", prerequisite.UpstreamDaemon)
		}
	}
	return daemontest.NewPlace(t)
}

// field is a field of a message in the wire format.
type field struct {
	number  protowire.Number
	content []byte
}

func message(fields ...field) []byte {
	var out []byte
	for _, f := range fields {
		out = protowire.AppendTag(out, f.number, protowire.BytesType)
		out = protowire.AppendBytes(out, f.content)
	}
	return out
}

func text(number protowire.Number, value string) field { return field{number, []byte(value)} }

func integer(out []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(out, number, protowire.VarintType), value)
}

// Field numbers of v0.5.6's LoadRequest, its AttachInfo, and LoadResponse
// (bpfman-api/src/bpfman.v1.rs).
const (
	requestBytecode, requestName, requestType, requestAttach, requestMetadata = 1, 2, 3, 4, 5

	attachXDP, attachTC, attachTracepoint, attachTCX = 2, 3, 4, 9
	responseKernelInfo                               = 2

	// The kernel's numbers for program types.
	typeClassifier, typeTracepoint, typeXDP = 3, 5, 6
)

// load05 loads and attaches a program like upstream's agent. It encodes v0.5's messages
// manually, because v0.6's messages have the same names.
func load05(ctx context.Context, conn *grpc.ClientConn, object, function string, programType uint64, attach field) (string, error) {
	path, err := filepath.Abs(filepath.Join(objects, object))
	if err != nil {
		return "", fmt.Errorf("find bytecode: %w", err)
	}
	request := message(
		field{requestBytecode, message(text(3, path))},
		text(requestName, function),
		field{requestAttach, message(attach)},
		field{requestMetadata, message(text(1, "bpfman.io/uuid"), text(2, "4b1e8b4c-6c55-4f5a-9a7c-0d5b1c1a0a01"))},
		field{requestMetadata, message(text(1, "bpfman.io/ProgramName"), text(2, function))},
	)
	in, out := &emptypb.Empty{}, &emptypb.Empty{}
	in.ProtoReflect().SetUnknown(integer(request, requestType, programType))
	if err := conn.Invoke(ctx, "/bpfman.v1.Bpfman/Load", in, out); err != nil {
		return "", fmt.Errorf("load %s: %w", function, err)
	}
	kernel := fieldOf(out.ProtoReflect().GetUnknown(), responseKernelInfo)
	_, _, tag := protowire.ConsumeTag(kernel)
	id, read := protowire.ConsumeVarint(kernel[max(tag, 0):])
	if read < 0 {
		return "", fmt.Errorf("load %s: no id in the answer", function)
	}
	return strconv.FormatUint(id, 10), nil
}

// fieldOf returns a bytes field of a message.
func fieldOf(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		n, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil
		}
		length := protowire.ConsumeFieldValue(n, kind, message[tag:])
		if length < 0 {
			return nil
		}
		if n == number {
			content, _ := protowire.ConsumeBytes(message[tag:])
			return content
		}
		message = message[tag+length:]
	}
	return nil
}

// loadAll makes the daemon of v0.5.6 load what this kernel supports, and returns the ids by
// name.
func loadAll(t *testing.T, conn *grpc.ClientConn) map[string]string {
	t.Helper()
	lo := func(direction string, number protowire.Number) []byte {
		m := integer(message(text(2, "lo")), 1, 50)
		if direction != "" {
			m = append(m, message(text(number, direction))...)
		}
		return m
	}
	ids := map[string]string{}
	for name, try := range map[string]struct {
		object, function string
		programType      uint64
		attach           field
	}{
		"tcx":        {"go-tcx-counter.o", "tcx_stats", typeClassifier, field{attachTCX, lo("ingress", 4)}},
		"tracepoint": {"go-tracepoint-counter.o", "tracepoint_kill_recorder", typeTracepoint, field{attachTracepoint, message(text(1, "syscalls/sys_enter_kill"))}},
	} {
		id, err := load05(t.Context(), conn, try.object, try.function, try.programType, try.attach)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = id
	}
	return ids
}

// TestDaemonOfV05 loads and attaches programs with the daemon of v0.5.6, kills it, sets aside
// what it left, and starts the daemon of v0.6.0 in its place.
func TestDaemonOfV05(t *testing.T) {
	place := requireDaemons(t)
	old := daemon05(t, place)
	ids := loadAll(t, old.Conn)

	root := place.Path(bpffs)
	if running, err := v05.Running("/proc", root); err != nil || !running {
		t.Errorf("running: %v, %v", running, err)
	}
	old.Kill()
	t.Logf("left:\n%s", strings.Join(list(t, root), "\n"))
	t.Logf("database:\n%s", strings.Join(list(t, place.Path("/var/lib/bpfman")), "\n"))
	counts := map[string]*ebpf.Map{}
	for name, pin := range map[string]string{"tcx": "tcx_stats_map", "tracepoint": "tracepoint_stats_map"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(root, "maps", ids[name], pin), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		counts[name] = m
	}

	if _, err := v05.SetAside(root); err != nil {
		t.Fatal(err)
	}
	if removed, err := v05.RemoveDatabase(place.Path("/")); err != nil || !removed {
		t.Errorf("database removed: %v, %v", removed, err)
	}
	if _, err := os.Stat(place.Path("/var/lib/bpfman")); !os.IsNotExist(err) {
		t.Errorf("the database's directory: %v", err)
	}
	set, err := v05.Programs(root)
	if err != nil || len(set) != len(ids) {
		t.Errorf("programs %q, %v, want %v", set, err, ids)
	}
	for name, id := range ids {
		if !slices.Contains(set, id) {
			t.Errorf("%s, program %s, isn't set aside", name, id)
		}
	}
	do := map[string]func() error{
		"tcx": func() error { return place.InNetwork(send) },
		"tracepoint": func() error {
			for range packets {
				if err := unix.Kill(os.Getpid(), 0); err != nil {
					return fmt.Errorf("call kill: %w", err)
				}
			}
			return nil
		},
	}
	for name, m := range counts {
		counting(t, m, do[name], true)
	}

	later := place.Start(t, os.Getenv(later06))
	only := true
	listed, err := later.Client.List(t.Context(), &gobpfman.ListRequest{BpfmanProgramsOnly: &only})
	if err != nil || len(listed.GetResults()) != 0 {
		t.Errorf("v0.6.0 lists %v, %v", listed, err)
	}
	must.Succeed(t, v05.Remove(root))
	for name, id := range ids {
		if err := awaitGone(t.Context(), id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		counting(t, counts[name], do[name], false)
	}
	for _, path := range list(t, root) {
		if strings.Contains(path, "prog_") || strings.Contains(path, "v05") {
			t.Errorf("left: %s", path)
		}
	}
}

// TestAgentOnDaemonOfV05 connects the agent's client to the daemon of v0.5.6.
func TestAgentOnDaemonOfV05(t *testing.T) {
	place := requireDaemons(t)
	old := daemon05(t, place)
	for _, state := range []string{"without programs", "with programs"} {
		inventory := agentdaemon.NewInventory(old.Client, place.Path("/"))
		_, err := inventory.Refresh(t.Context())
		if err == nil || !strings.Contains(err.Error(), "has an incompatible API (bpfman v0.5?): this agent requires the daemon of bpfman v0.6") || inventory.Known() {
			t.Errorf("%s: %v, known: %v", state, err, inventory.Known())
		}
		if state == "without programs" {
			loadAll(t, old.Conn)
		}
	}
	later := place.Start(t, os.Getenv(later06))
	if _, err := agentdaemon.NewInventory(later.Client, place.Path("/")).Refresh(t.Context()); err != nil {
		t.Errorf("v0.6.0: %v", err)
	}
}

// list returns what is below a directory.
func list(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != root {
			paths = append(paths, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return paths
}
