// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Command bpfman-ns replaces, in test images, the helper of that name that the daemon
// runs to attach a uprobe in a container. The published daemon image contains upstream's
// helper. It isn't published as a crate, so it isn't available where only the daemon's
// crate is. This command has the command line and the result that the daemon of v0.6.0
// expects: it attaches the pinned program to a file as the container sees it, and pins
// the link.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// request is the daemon's request.
type request struct {
	program, link string // pins, in the daemon's mount namespace
	function      string
	offset        uint64
	target        string // a path in the container, or the name of a library
	container     int    // the id of a process in it
}

func main() {
	r, err := parse(os.Args[1:])
	if err == nil {
		err = r.attach()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bpfman-ns:", err)
		os.Exit(1)
	}
}

func parse(args []string) (request, error) {
	var r request
	if len(args) == 0 || args[0] != "uprobe" {
		return r, errors.New("the only command is uprobe")
	}
	flags := flag.NewFlagSet("uprobe", flag.ContinueOnError)
	flags.StringVar(&r.program, "program-pin-path", "", "where the program is pinned")
	flags.StringVar(&r.link, "link-pin-path", "", "where to pin the link")
	flags.StringVar(&r.function, "fn-name", "", "the function")
	flags.Uint64Var(&r.offset, "offset", 0, "the offset from the function, or in the file")
	flags.StringVar(&r.target, "target", "", "the executable's path, or a library's name")
	flags.IntVar(&r.container, "container-pid", 0, "a process of the container")
	pid := flags.Int("pid", 0, "the process to trace, which upstream's helper of v0.6.0 looks for in the container's /proc")
	_ = flags.Bool("retprobe", false, "run when the function returns, which upstream's helper of v0.6.0 ignores")
	err := flags.Parse(args[1:])
	if *pid != 0 {
		err = errors.Join(err, fmt.Errorf("open /proc/%d/maps: no such file or directory", *pid))
	}
	return r, err
}

func (r request) attach() (err error) {
	program, err := ebpf.LoadPinnedProgram(r.program, nil)
	if err != nil {
		return fmt.Errorf("open program %s: %w", r.program, err)
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	target, err := r.resolve()
	if err != nil {
		return err
	}
	file, err := r.openInContainer(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(file)) }()
	attached, err := r.attachTo(fmt.Sprintf("/proc/self/fd/%d", file), program)
	if err != nil {
		return fmt.Errorf("attach to %s+%#x in %s: %w", r.function, r.offset, target, err)
	}
	defer func() { err = errors.Join(err, attached.Close()) }()
	if err := attached.Pin(r.link); err != nil {
		return fmt.Errorf("pin link at %s: %w", r.link, err)
	}
	return nil
}

// resolve finds the path of a library by its name: the path of the file that the
// container's process has mapped.
func (r request) resolve() (string, error) {
	if filepath.IsAbs(r.target) {
		return r.target, nil
	}
	maps, err := os.ReadFile(processFile(r.container, "maps"))
	if err != nil {
		return "", fmt.Errorf("read what the container's process %d has mapped: %w", r.container, err)
	}
	library := regexp.MustCompile("^" + regexp.QuoteMeta(strings.TrimSuffix(r.target, ".so")) + `[-.0-9]*\.so[.0-9]*$`)
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if path := fields[len(fields)-1]; library.MatchString(filepath.Base(path)) {
			return path, nil
		}
	}
	return "", fmt.Errorf("process %d of the container has no library %s", r.container, r.target)
}

// openInContainer opens a file of the container. It resolves symbolic links in the
// container's root.
func (r request) openInContainer(path string) (file int, err error) {
	root, err := unix.Open(processFile(r.container, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open the root directory of process %d: %w", r.container, err)
	}
	defer func() { err = errors.Join(err, unix.Close(root)) }()
	file, err = unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return 0, fmt.Errorf("open %s in the container: %w", path, err)
	}
	return file, nil
}

func (r request) attachTo(file string, program *ebpf.Program) (link.Link, error) {
	executable, err := link.OpenExecutable(file)
	if err != nil {
		return nil, err
	}
	options := &link.UprobeOptions{Offset: r.offset}
	if r.function == "" {
		options = &link.UprobeOptions{Address: r.offset}
	}
	return executable.Uprobe(r.function, program, options)
}

// processFile returns the path of a file of a process on the host. The DaemonSet mounts
// the host's /proc at /host/proc.
func processFile(pid int, name string) string {
	for _, proc := range []string{"/host/proc", "/proc"} {
		path := filepath.Join(proc, fmt.Sprint(pid), name)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return filepath.Join("/proc", fmt.Sprint(pid), name)
}
