// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

// moduleBPF is the ID of the security module that calls eBPF programs (LSM_ID_BPF in linux/lsm.h).
const moduleBPF = 109

// findHook returns an error if the kernel doesn't have a hook for LSM programs, or doesn't call programs there. Without the
// security module bpf, the kernel attaches programs that then never run.
func findHook(hook string, types *btf.Spec, modules func() ([]uint64, error)) error {
	var found *btf.Func
	if err := types.TypeByName(v1alpha1.LSMFunctionPrefix+hook, &found); errors.Is(err, btf.ErrNotFound) {
		return problem.Errorf(problem.NoSuchHook, "this kernel has no hook %s for LSM programs%s: correct hook_name, or select other nodes", hook, nearest.Question(hook, func(yield func(string) bool) {
			for function := range functionsOf(types) {
				if name, has := strings.CutPrefix(function, v1alpha1.LSMFunctionPrefix); has && !yield(name) {
					return
				}
			}
		}))
	}
	if active, err := modules(); err == nil && !slices.Contains(active, moduleBPF) {
		return problem.Errorf(problem.SecurityModuleInactive, "the security module bpf isn't active on this node, so the kernel would never run it: add bpf to the kernel's parameter lsm, or select other nodes")
	}
	return nil
}

// maxModules is the number of modules for which there is room. Linux 6.18 has 14.
const maxModules = 64

// securityModules returns the IDs of the kernel's active security modules. Kernels before Linux 6.8 don't say them, and a
// container's seccomp profile can refuse the call.
func securityModules() ([]uint64, error) {
	ids := make([]uint64, maxModules)
	size := uint32(maxModules * unsafe.Sizeof(ids[0]))
	n, _, errno := unix.Syscall(unix.SYS_LSM_LIST_MODULES, uintptr(unsafe.Pointer(&ids[0])), uintptr(unsafe.Pointer(&size)), 0) //nolint:gosec // the call takes addresses
	if errno != 0 {
		return nil, errno
	}
	return ids[:n], nil
}
