// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/problem"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// kernelItself is the file with the kernel's types outside of modules. Each module has another file.
const kernelItself = "vmlinux"

// untraced returns an error if a Load is for programs on entry or exit of functions that the daemon can't find, or for hooks
// that the kernel doesn't have. The daemon of v0.6 looks for functions in the kernel's types. dir is the directory with these
// (/sys/kernel/btf). What can't be read is left to the daemon.
func untraced(request *gobpfman.LoadRequest, dir string, modules func() ([]uint64, error)) error {
	var types *btf.Spec
	for _, info := range request.GetInfo() {
		name := cmp.Or(info.GetInfo().GetFentryLoadInfo().GetFnName(), info.GetInfo().GetFexitLoadInfo().GetFnName())
		hook := info.GetInfo().GetLsmLoadInfo().GetHookName()
		if name == "" && hook == "" {
			continue
		}
		if types == nil {
			if types = readTypes(filepath.Join(dir, kernelItself), nil); types == nil {
				return nil
			}
		}
		find := func() error { return findFunction(name, types, dir) }
		if hook != "" {
			find = func() error { return findHook(hook, types, modules) }
		}
		if err := find(); err != nil {
			return fmt.Errorf("function %s can't be loaded: %w", info.GetName(), err)
		}
	}
	return nil
}

func findFunction(name string, types *btf.Spec, dir string) error {
	var found *btf.Func
	if err := types.TypeByName(name, &found); !errors.Is(err, btf.ErrNotFound) {
		return nil
	}
	modules, _ := os.ReadDir(dir) // the message only lacks the module without it
	for _, module := range modules {
		if module.Name() == kernelItself {
			continue
		}
		if split := readTypes(filepath.Join(dir, module.Name()), types); split != nil && split.TypeByName(name, &found) == nil {
			return problem.Errorf(problem.KernelFunctionInModule, "the daemon can't attach it to %s, which is in the kernel's module %s: use a kprobe", name, module.Name())
		}
	}
	return problem.Errorf(problem.NoSuchKernelFunction, "this kernel has no function %s, or inlines it%s: correct func_name, or select other nodes", name, nearest.Question(name, functionsOf(types)))
}

// readTypes reads types from a file of the kernel's. Those of modules are based on the kernel's own. It returns nil if they
// can't be read.
func readTypes(path string, base *btf.Spec) *btf.Spec {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	types, _ := btf.LoadSplitSpecFromReader(file, base)
	return types
}

// functionsOf returns the names of the functions in types.
func functionsOf(types *btf.Spec) iter.Seq[string] {
	return func(yield func(string) bool) {
		for t, err := range types.All() {
			if f, is := t.(*btf.Func); err == nil && is && !yield(f.Name) {
				return
			}
		}
	}
}
