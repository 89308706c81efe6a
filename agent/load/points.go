// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/nearest"
)

// maxMisnamed is the maximum number of attach points whose nearest names are known. The agent retries, and to find a name takes
// some milliseconds.
const maxMisnamed = 1024

// suggestPoint adds the nearest name to the refusal of an Attach to a tracepoint or function that the kernel doesn't have. The
// agent can't read the names of tracepoints, but the kernel's types have them, without their categories.
func (l *Loader) suggestPoint(err error, point program.AttachPoint) error {
	refused := (*daemon.Error)(nil)
	if !errors.As(err, &refused) || !refused.NoSuchHook() {
		return err
	}
	name, namesOf := point.Info.GetKprobeAttachInfo().GetFnName(), typeNames
	if tracepoint := point.Info.GetTracepointAttachInfo().GetTracepoint(); tracepoint != "" {
		_, name, _ = strings.Cut(tracepoint, "/")
		namesOf = tracepointNames
	}
	if name == "" {
		return err
	}
	type hook struct{ point, name string }
	meant, known := l.misnamed.Get(hook{point.Name, name})
	if !known {
		names := slices.Collect(namesOf(filepath.Join(l.KernelTypes, kernelItself)))
		meant = ""
		if !slices.Contains(names, name) { // otherwise, something else is wrong
			meant = nearest.Question(name, slices.Values(names))
		}
		l.misnamed.Add(hook{point.Name, name}, meant)
	}
	if meant == "" {
		return err
	}
	return fmt.Errorf("%w%s", err, meant)
}

// tracepointNames returns the names of the tracepoints in the kernel's types, and those of system calls.
func tracepointNames(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range typeNames(path) {
			if tracepoint, is := strings.CutPrefix(name, "btf_trace_"); is && !yield(tracepoint) {
				return
			}
			before, call, is := strings.Cut(name, "_sys_") // such as __x64_sys_openat
			machine, internal := strings.CutPrefix(before, "__")
			if is && internal && !strings.Contains(machine, "_") && (!yield("sys_enter_"+call) || !yield("sys_exit_"+call)) {
				return
			}
		}
	}
}

// btfHeader is the beginning of a file with types (linux/btf.h). Offsets are from its end, in bytes.
type btfHeader struct {
	Magic                  uint16
	Version, Flags         uint8
	Length                 uint32
	Types, TypesLength     uint32
	Strings, StringsLength uint32
}

// typeNames returns the names in a file with types: of functions, types, and members. Reading the types themselves takes more memory
// than the agent otherwise needs. A file that can't be read has no names.
func typeNames(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		file, err := os.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		var header btfHeader
		if err := binary.Read(file, binary.NativeEndian, &header); err != nil {
			return
		}
		names := bufio.NewReader(io.NewSectionReader(file, int64(header.Length)+int64(header.Strings), int64(header.StringsLength)))
		for {
			name, err := names.ReadString(0)
			if err != nil || !yield(strings.TrimSuffix(name, "\x00")) {
				return
			}
		}
	}
}
