// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package object

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// The files from which OpenKernel reads. Both are the kernel's own, and readable without a capability.
const (
	KernelTypes  = "/sys/kernel/btf/vmlinux"
	KernelConfig = "/proc/config.gz"
)

// maxConfig is the maximum size of the kernel's configuration, in bytes. It usually has 300 kB.
const maxConfig = 8 << 20

// Kernel is what an object can depend on.
type Kernel struct {
	// ID identifies this build of the kernel, as reader.Kernel does.
	ID string
	// Version is the version as in KERNEL_VERSION of linux/version.h.
	Version uint32
	// Types are the kernel's types, without those of modules. It returns an error if the kernel has no BTF.
	Types func() (*btf.Spec, error)
	// Config are the options of the kernel's configuration with their values. It returns an error if the
	// kernel doesn't make its configuration available (CONFIG_IKCONFIG_PROC).
	Config func() (map[string]string, error)
}

// OpenKernel returns the kernel of this machine. Its files are read when they are needed, and once.
func OpenKernel() (*Kernel, error) {
	id, err := reader.Kernel()
	if err != nil {
		return nil, err
	}
	release, build, _ := strings.Cut(id, " ")
	version, err := kernelVersion(release, build)
	if err != nil {
		return nil, err
	}
	return &Kernel{ID: id, Version: version, Types: sync.OnceValues(readTypes), Config: sync.OnceValues(readConfig)}, nil
}

// debian matches the version in Debian's name of a build. The release has only a version of Debian's.
var (
	debian   = regexp.MustCompile(`Debian (\d+)\.(\d+)\.(\d+)`)
	upstream = regexp.MustCompile(`^(\d+)\.(\d+)(?:\.(\d+))?`)
)

// kernelVersion returns the version as libbpf does, from the release and the build as uname prints them.
func kernelVersion(release, build string) (uint32, error) {
	parts := debian.FindStringSubmatch(build)
	if parts == nil {
		parts = upstream.FindStringSubmatch(release)
	}
	if parts == nil {
		return 0, problem.Errorf(problem.KernelUnknown, "the kernel's release %q isn't a version", release)
	}
	var version uint32
	for _, part := range parts[1:] {
		number, _ := strconv.ParseUint(part, 10, 32) // "" is 0
		version = version<<8 | uint32(min(number, 255))
	}
	return version, nil
}

func readTypes() (*btf.Spec, error) {
	file, err := os.Open(KernelTypes)
	if err != nil {
		return nil, problem.Errorf(problem.NoKernelTypes, "read the kernel's types: %w", err)
	}
	defer file.Close()
	types, err := btf.LoadSpecFromReader(file)
	if err != nil {
		return nil, problem.Errorf(problem.NoKernelTypes, "read the kernel's types from %s: %w", KernelTypes, err)
	}
	return types, nil
}

func readConfig() (map[string]string, error) {
	file, err := os.Open(KernelConfig)
	if err != nil {
		return nil, problem.Errorf(problem.KernelUnknown, "read the kernel's configuration: %w", err)
	}
	defer file.Close()
	config, err := parseConfig(file)
	if err != nil {
		return nil, problem.Errorf(problem.KernelUnknown, "read the kernel's configuration from %s: %w", KernelConfig, err)
	}
	return config, nil
}

func parseConfig(compressed io.Reader) (map[string]string, error) {
	content, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(content, maxConfig))
	for lines.Scan() {
		if name, value, set := strings.Cut(lines.Text(), "="); set && strings.HasPrefix(name, configPrefix) {
			config[name] = value
		}
	}
	return config, lines.Err()
}

const configPrefix = "CONFIG_"

// systemCall are the kernel's functions for the system call bpf. Each exists only where the functions of system
// calls take their arguments from a structure of registers.
var systemCall = []string{"__x64_sys_bpf", "__arm64_sys_bpf", "__s390x_sys_bpf", "__riscv_sys_bpf", "__powerpc_sys_bpf"}

// option returns the value of an option as it is in the kernel's configuration, or of one that libbpf adds to them. set
// is false if the kernel doesn't have it.
func (k *Kernel) option(name string) (value string, set bool, err error) {
	switch name {
	case "LINUX_KERNEL_VERSION":
		return strconv.FormatUint(uint64(k.Version), 10), true, nil
	case "LINUX_HAS_SYSCALL_WRAPPER":
		return k.hasAny(func(types *btf.Spec, function string) error {
			var found *btf.Func
			return types.TypeByName(function, &found)
		}, systemCall...)
	case "LINUX_HAS_BPF_COOKIE":
		return k.hasAny(func(types *btf.Spec, helper string) error {
			var helpers *btf.Enum
			if err := types.TypeByName("bpf_func_id", &helpers); err != nil {
				return err //nolint:wrapcheck // hasAny says what was looked up
			}
			for _, value := range helpers.Values {
				if value.Name == helper {
					return nil
				}
			}
			return btf.ErrNotFound
		}, "BPF_FUNC_get_attach_cookie")
	}
	if !strings.HasPrefix(name, configPrefix) {
		return "", false, nil
	}
	config, err := k.Config()
	if err != nil {
		return "", false, err
	}
	value, set = config[name]
	return value, set, nil
}

// hasAny returns y if the kernel's types have one of the names, and n otherwise.
func (k *Kernel) hasAny(find func(types *btf.Spec, name string) error, names ...string) (string, bool, error) {
	types, err := k.Types()
	if err != nil {
		return "", false, err
	}
	for _, name := range names {
		err := find(types, name)
		if err == nil {
			return "y", true, nil
		}
		if !errors.Is(err, btf.ErrNotFound) {
			return "", false, problem.Errorf(problem.NoKernelTypes, "look up %s in the kernel's types: %w", name, err)
		}
	}
	return "n", true, nil
}
