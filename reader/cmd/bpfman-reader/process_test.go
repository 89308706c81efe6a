// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// built returns the path of the command, which `make test-reader` builds.
func built(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BPFMAN_READER")
	if path == "" {
		prerequisite.Missing(t, "BPFMAN_READER doesn't say where bpfman-reader is: run `make test-reader`", prerequisite.Commands)
	}
	return path
}

// process runs the command once, and returns its duration and memory.
func process(t *testing.T, path string, in []byte, arguments ...string) (reader.Answer, *os.ProcessState, time.Duration, error) {
	t.Helper()
	return processWith(t, [2]*os.File{newFile(t), newFile(t)}, path, in, arguments...)
}

func newFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "object")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// processWith is process with files for the image's object and for the one for the daemon.
func processWith(t *testing.T, objects [2]*os.File, path string, in []byte, arguments ...string) (reader.Answer, *os.ProcessState, time.Duration, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), path, arguments...)
	command.Stdin = bytes.NewReader(in)
	command.ExtraFiles = objects[:]
	var out bytes.Buffer
	command.Stdout = &out
	began := time.Now()
	err := command.Run()
	took := time.Since(began)
	var answer reader.Answer
	if err == nil {
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("%v: %s", err, out.Bytes())
		}
	}
	return answer, command.ProcessState, took, err
}

func marshalled(t *testing.T, request reader.Request) []byte {
	t.Helper()
	in, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// The process also adapts an object to this kernel without a registry, although it is confined.
func TestProcessAdapts(t *testing.T) {
	path := built(t)
	kernel, err := reader.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	for name, adapted := range map[string]bool{"xdp_pass.o": false, "written_for_libbpf.o": true} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("../../../bin/bytecode", name))
			if err != nil {
				prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
			}
			files := [2]*os.File{newFile(t), newFile(t)}
			_, err = files[0].Write(content)
			if _, failed := files[0].Seek(0, io.SeekStart); err != nil || failed != nil {
				t.Fatal(err, failed)
			}
			answer, state, took, err := processWith(t, files, path, marshalled(t, reader.Request{Object: true}))
			if err != nil || answer.Error != "" || answer.Object == nil {
				t.Fatalf("%+v, %v", answer, err)
			}
			if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
				t.Logf("%s, %d KiB of memory", took, usage.Maxrss)
			}
			o := answer.Object
			written, err := os.ReadFile(files[1].Name())
			if got := o.Adapted; err != nil || len(written) > 0 != adapted || adapted && (got.Size != int64(len(written)) || got.Kernel != kernel) || !adapted && (got.Digest != o.Digest || got.Kernel != "") {
				t.Errorf("%d bytes, %+v, %v", len(written), got, err)
			}
			if _, err := os.Stat(object.KernelTypes); err != nil {
				t.Skip("this kernel has no BTF")
			}
			for _, f := range o.Functions {
				if usable := f.Name != "list_tasks"; usable != (f.Unusable == "") {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// The process answers with status 0 for any finding. Its memory and time are small
// compared with those of a load.
func TestProcess(t *testing.T) {
	path := built(t)
	h := newHand(t)
	r := newRegistry(t, true)
	image := r.push(string(compiled(t)))
	r.refer(image, h.bundle(t, image))
	in := marshalled(t, reader.Request{Image: image, Authorities: []reader.Authority{h.authority(t)}, Object: true})
	var took []time.Duration
	var most int64
	for range 20 {
		answer, state, each, err := process(t, path, in)
		if err != nil || len(answer.Signatures) != 1 || answer.Signatures[0].Signer == "" || answer.Object == nil {
			t.Fatalf("%+v, %v", answer, err)
		}
		took = append(took, each)
		if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
			most = max(most, usage.Maxrss)
		}
	}
	slices.Sort(took)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("median %s, slowest %s, at most %d KiB of memory, binary of %d bytes", took[len(took)/2], took[len(took)-1], most, info.Size())
	if most > 64<<10 {
		t.Errorf("%d KiB of memory", most)
	}
	for name, c := range map[string]struct {
		in        string
		arguments []string
		status    int
	}{
		"no request":    {"", nil, 1},
		"no JSON":       {"{", nil, 1},
		"another image": {`{"image": "x"}`, nil, 0},
		"unknown flag":  {"{}", []string{"--unknown"}, 2},
		"silence":       {string(in), []string{"--timeout=1ns"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			answer, state, _, err := process(t, path, []byte(c.in), c.arguments...)
			if state.ExitCode() != c.status || c.status == 0 && answer.Error == "" {
				t.Errorf("status %d, %+v", state.ExitCode(), answer)
			}
			if exit, ok := errors.AsType[*exec.ExitError](err); c.status != 0 && (!ok || exit == nil) {
				t.Errorf("%v", err)
			}
		})
	}
}
