// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

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
	command := exec.CommandContext(t.Context(), path, arguments...)
	command.Stdin = bytes.NewReader(in)
	object, err := os.Create(filepath.Join(t.TempDir(), "object"))
	if err != nil {
		t.Fatal(err)
	}
	defer object.Close()
	command.ExtraFiles = []*os.File{object}
	var out bytes.Buffer
	command.Stdout = &out
	began := time.Now()
	err = command.Run()
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
