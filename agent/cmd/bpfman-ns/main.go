// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Command bpfman-ns is the helper that the daemon runs to attach a uprobe in a container. It has
// the command line and the result that the daemon of v0.6.0 expects: it attaches the pinned program
// to a file as the container sees it, and pins the link.
//
// The DaemonSet mounts it over the helper of that name in the daemon's image. The container's owner
// chooses what the helper reads, and the daemon waits for it, and serves no other call meanwhile.
// Upstream's helper of v0.6.0 waits forever for a target that is a named pipe, reads /dev/zero until
// the node has no memory left, and ignores --retprobe.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/containerfs"
	"github.com/bpfman/bpfman-operator/internal/uprobe"
)

// request is the daemon's request.
type request struct {
	program, link string // pins, in the daemon's mount namespace
	function      string
	offset        uint64
	target        string // a path in the container, or the name of a library
	container     int    // the id of a process in it
	returns       bool   // run when the function returns
}

// memoryLimit is the limit of a worker, in bytes. A binary with all debug symbols takes a fraction of it.
const memoryLimit = 512 << 20

func main() {
	if os.Args[0] == workerName {
		if err := work(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := uprobe.Clear(uprobe.Dir); err != nil {
		fmt.Fprintln(os.Stderr, "bpfman-ns:", err)
	}
	if err := supervise(os.Args[1:]); err != nil {
		fail(err)
	}
}

// work handles a request. It runs in the worker.
func work(args []string) error {
	runtime.LockOSThread() // so that a process that waits in the kernel isn't a zombie with another thread
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryLimit, Max: memoryLimit}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	r, err := parse(args)
	if err != nil {
		return err
	}
	return r.attach()
}

// fail prints the error to the daemon's log, and leaves it for the agent, because the daemon doesn't return it.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "bpfman-ns:", err)
	if left := uprobe.Leave(uprobe.Dir, err); left != nil {
		fmt.Fprintln(os.Stderr, "bpfman-ns:", left)
	}
	os.Exit(1)
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
	flags.BoolVar(&r.returns, "retprobe", false, "run when the function returns")
	pid := flags.Int("pid", 0, "the process to trace, which isn't supported: it would be one of the daemon's PID namespace")
	err := flags.Parse(args[1:])
	if err == nil && *pid != 0 {
		err = errors.New("--pid isn't supported")
	}
	return r, err
}

func (r request) attach() (err error) {
	program, err := ebpf.LoadPinnedProgram(r.program, nil)
	if err != nil {
		return fmt.Errorf("open program %s: %w", r.program, err)
	}
	defer func() { err = errors.Join(err, program.Close()) }()
	root, err := containerfs.Open(processDir(r.container))
	if err != nil {
		return fmt.Errorf("process %d of the container: %w", r.container, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	target, err := r.resolve(root)
	if err != nil {
		return err
	}
	file, err := openFile(root, target)
	if err != nil {
		return fmt.Errorf("open %s in the container: %w", target, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	attached, err := r.attachTo(file, program)
	if err != nil {
		return fmt.Errorf("attach to %s+%#x in %s: %w", r.function, r.offset, target, err)
	}
	defer func() { err = errors.Join(err, attached.Close()) }()
	if err := attached.Pin(r.link); err != nil {
		return fmt.Errorf("pin link at %s: %w", r.link, err)
	}
	return nil
}

// libraryDirs are the directories with libraries in a container, in addition to those of its process.
var libraryDirs = []string{"/lib64", "/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib", "/usr/lib", "/usr/local/lib"}

// resolve finds the path of a library by its name: that of the file that the container's
// process has mapped or, if there is none, one in the usual directories.
func (r request) resolve(root *containerfs.Root) (string, error) {
	if filepath.IsAbs(r.target) {
		return r.target, nil
	}
	library := regexp.MustCompile("^" + regexp.QuoteMeta(strings.TrimSuffix(r.target, ".so")) + `[-.0-9]*\.so[.0-9]*$`)
	maps, err := os.ReadFile(filepath.Join(processDir(r.container), "maps"))
	if err != nil {
		return "", fmt.Errorf("read what the container's process %d has mapped: %w", r.container, err)
	}
	for line := range strings.Lines(string(maps)) {
		// Only the path has slashes. It can have spaces, too.
		if _, path, mapped := strings.Cut(strings.TrimSpace(line), "/"); mapped && library.MatchString(filepath.Base(path)) {
			return "/" + path, nil
		}
	}
	for _, pattern := range libraryDirs {
		if path := find(root, pattern, library); path != "" {
			return path, nil
		}
	}
	return "", fmt.Errorf("the container has no library %s", r.target)
}

// find returns the first file with a matching name in a directory of the container, or "". The first
// * in the directory's path stands for any name.
func find(root *containerfs.Root, directory string, name *regexp.Regexp) string {
	parent, rest, pattern := strings.Cut(directory, "*")
	for _, entry := range entries(root, parent) {
		switch {
		case !pattern && name.MatchString(entry):
			return filepath.Join(parent, entry)
		case pattern && strings.HasSuffix(entry, rest):
			if path := find(root, filepath.Join(parent, entry), name); path != "" {
				return path
			}
		}
	}
	return ""
}

// entries returns the sorted names in a directory of the container, without those that can't be read.
func entries(root *containerfs.Root, directory string) []string {
	found, err := root.Find(directory)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(found) }()
	dir, err := os.OpenFile(descriptor(uintptr(found)), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	slices.Sort(names)
	return names
}

// openFile opens a regular file of the container. It resolves symbolic links in the container's
// root, and doesn't open anything else: the open of a named pipe waits for a writer. Of a volume with
// maps, a map is a regular file, but the kernel ends its reader only after it has printed an element.
func openFile(root *containerfs.Root, path string) (*os.File, error) {
	found, err := root.Find(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(found) }()
	var status unix.Stat_t
	if err := unix.Fstat(found, &status); err != nil {
		return nil, err //nolint:wrapcheck // the caller says which file
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(found, &system); err != nil {
		return nil, err //nolint:wrapcheck // the caller says which file
	}
	if status.Mode&unix.S_IFMT != unix.S_IFREG || system.Type == unix.BPF_FS_MAGIC {
		return nil, errors.New("it isn't a regular file")
	}
	return os.Open(descriptor(uintptr(found)))
}

func descriptor(fd uintptr) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func (r request) attachTo(file *os.File, program *ebpf.Program) (link.Link, error) {
	executable, err := link.OpenExecutable(descriptor(file.Fd()))
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says which file
	}
	options := &link.UprobeOptions{Address: r.offset}
	if r.function != "" {
		if options.Address, err = offsetOf(file, r.function, r.offset); err != nil {
			return nil, err
		}
	}
	attach := executable.Uprobe
	if r.returns {
		attach = executable.Uretprobe
	}
	return attach(r.function, program, options)
}

// processDir returns the directory of a process on the host. The DaemonSet mounts
// the host's /proc at /host/proc.
func processDir(pid int) string {
	for _, proc := range []string{"/host/proc", "/proc"} {
		path := filepath.Join(proc, strconv.Itoa(pid))
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return filepath.Join("/proc", strconv.Itoa(pid))
}
