// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/internal/nearest"
)

// maxMisnamed is the maximum number of attach points whose nearest names are known. To find one takes as long as reading all of
// the kernel's types, and the agent retries.
const maxMisnamed = 256

// suggestPoint adds the nearest name to the refusal of an Attach to a tracepoint or function that the kernel doesn't have. The
// agent can't read the names of tracepoints, but the kernel's types have them, without their categories.
func (l *Loader) suggestPoint(err error, point program.AttachPoint) error {
	refused := (*daemon.Error)(nil)
	if !errors.As(err, &refused) || !refused.NoSuchHook() {
		return err
	}
	name, namesOf := point.Info.GetKprobeAttachInfo().GetFnName(), functionsOf
	if tracepoint := point.Info.GetTracepointAttachInfo().GetTracepoint(); tracepoint != "" {
		_, name, _ = strings.Cut(tracepoint, "/")
		namesOf = tracepointsOf
	}
	if name == "" {
		return err
	}
	type hook struct{ point, name string }
	meant, known := l.misnamed.Get(hook{point.Name, name})
	if !known {
		meant = ""
		if types := readTypes(filepath.Join(l.KernelTypes, kernelItself), nil); types != nil {
			names := slices.Collect(namesOf(types))
			if !slices.Contains(names, name) { // otherwise, something else is wrong
				meant = nearest.Question(name, slices.Values(names))
			}
		}
		l.misnamed.Add(hook{point.Name, name}, meant)
	}
	if meant == "" {
		return err
	}
	return fmt.Errorf("%w%s", err, meant)
}

// tracepointsOf returns the names of the tracepoints in the kernel's types, and those of system calls.
func tracepointsOf(types *btf.Spec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for t, err := range types.All() {
			if err != nil {
				return
			}
			switch t := t.(type) {
			case *btf.Typedef:
				if name, is := strings.CutPrefix(t.Name, "btf_trace_"); is && !yield(name) {
					return
				}
			case *btf.Func: // such as __x64_sys_openat
				before, call, is := strings.Cut(t.Name, "_sys_")
				machine, internal := strings.CutPrefix(before, "__")
				if is && internal && !strings.Contains(machine, "_") && (!yield("sys_enter_"+call) || !yield("sys_exit_"+call)) {
					return
				}
			default:
			}
		}
	}
}

// functionsOf returns the names of the functions in the kernel's types.
func functionsOf(types *btf.Spec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for t, err := range types.All() {
			if f, is := t.(*btf.Func); err == nil && is && !yield(f.Name) {
				return
			}
		}
	}
}
