// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package sandbox runs tests that mount file systems in a separate mount namespace.
// Parts of a test can run in child processes, as another user, or until they are killed
// at a given system call.
package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

const (
	// envScratch contains, inside the sandbox, a directory for a tmpfs that every user
	// can search. Users can't search the directories of the testing package.
	envScratch = "BPFMAN_TEST_SCRATCH"
	envChild   = "BPFMAN_TEST_CHILD"
	envFault   = "BPFMAN_TEST_FAULT"
)

// Child runs in a child process, with the arguments of Start. The child prints its error
// to standard error.
type Child func(args []string) error

// Main is the TestMain of a package. If the user is root, it runs the tests in a
// separate mount namespace. Otherwise, it runs them directly, and Root skips those that
// need the namespace.
func Main(m *testing.M, children map[string]Child) {
	if name := os.Getenv(envChild); name != "" {
		runChild(children[name])
	}
	if os.Geteuid() != 0 || os.Getenv(envScratch) != "" {
		os.Exit(m.Run())
	}
	code, err := runInside()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in a mount namespace:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// runInside runs this program again in a separate mount namespace, and returns its exit
// code.
func runInside() (int, error) {
	scratch, err := os.MkdirTemp("", "bpfman-csi-test")
	if err != nil {
		return 0, err
	}
	defer os.Remove(scratch)
	command := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:gosec,noctx // it has the same command line and runs until it ends
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), envScratch+"="+scratch)
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil && command.ProcessState == nil {
		return 0, err
	}
	return command.ProcessState.ExitCode(), nil
}

// mountScratch mounts a tmpfs on the scratch directory, which stays empty outside of the
// sandbox.
var mountScratch = sync.OnceValue(func() error {
	return unix.Mount("tmpfs", os.Getenv(envScratch), "tmpfs", 0, "mode=0755")
})

// Root skips the test unless it runs as root in a sandbox, and returns an empty
// directory on a tmpfs.
func Root(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(envScratch) == "" {
		prerequisite.Missing(tb, "not root: mounting a bpffs needs CAP_SYS_ADMIN", prerequisite.Root)
	}
	if err := mountScratch(); err != nil {
		tb.Fatalf("mount tmpfs: %v", err)
	}
	directory, err := os.MkdirTemp(os.Getenv(envScratch), "test") //nolint:usetesting // other users can't search TempDir
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(directory, 0o755); err != nil { //nolint:gosec // the test's other users read it
		tb.Fatal(err)
	}
	return directory
}

// Fault causes a fault at a system call in a child.
type Fault struct {
	// Syscall is the number of the system call. With 0, there is no fault.
	Syscall int
	// Errno is the error that the system call returns. With 0, the child is killed
	// instead.
	Errno syscall.Errno
}

// Run runs a child, and waits until it ends. With a credential, the child runs as that
// user, without capabilities.
func Run(tb testing.TB, name string, user *syscall.Credential, fault Fault, args ...string) error {
	tb.Helper()
	command := exec.CommandContext(tb.Context(), "/proc/self/exe", args...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	command.Env = append(os.Environ(), envChild+"="+name,
		fmt.Sprintf("%s=%d,%d", envFault, fault.Syscall, fault.Errno))
	command.SysProcAttr = &syscall.SysProcAttr{Credential: user, Pdeathsig: syscall.SIGKILL}
	if err := command.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// Start starts a child. At the end of the test, the child is killed if it is still
// running.
func Start(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	return start(tb, Command(tb, name, args...))
}

// Command returns a command that runs a child.
func Command(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	command := exec.CommandContext(tb.Context(), "/proc/self/exe", args...)
	command.Env = append(os.Environ(), envChild+"="+name, envFault+"=0,0")
	return command
}

// StartBinary starts a program. At the end of the test, the program is killed if it is
// still running.
func StartBinary(tb testing.TB, path string, args ...string) *exec.Cmd {
	tb.Helper()
	return start(tb, exec.CommandContext(tb.Context(), path, args...))
}

func start(tb testing.TB, command *exec.Cmd) *exec.Cmd {
	tb.Helper()
	command.Stderr = tb.Output()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		tb.Fatalf("start %s: %v", command.Path, err)
	}
	tb.Cleanup(func() {
		if command.ProcessState == nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	})
	return command
}

func runChild(child Child) {
	var nr, errno uint32
	if _, err := fmt.Sscanf(os.Getenv(envFault), "%d,%d", &nr, &errno); err != nil {
		panic(err)
	}
	if nr != 0 {
		if err := installFault(nr, errno); err != nil {
			panic(err)
		}
	}
	if err := child(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// installFault makes the kernel fail a system call without executing it. The process
// thus dies between two steps, no matter where it makes the call.
func installFault(nr, errno uint32) error {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if errno != 0 {
		action = unix.SECCOMP_RET_ERRNO | errno
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: action},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // 4
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))) //nolint:gosec // there is no wrapper for seccomp(2)
	if err != 0 {
		return fmt.Errorf("install seccomp filter: %w", err)
	}
	return nil
}

// Mounts counts the mounts at or below a directory.
func Mounts(tb testing.TB, directory string) int {
	tb.Helper()
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	count := 0
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		at := strings.Fields(scanner.Text())[4]
		if at == directory || strings.HasPrefix(at, directory+"/") {
			count++
		}
	}
	return count
}

// MountBPFFS mounts a bpffs on a directory, until the end of the test.
func MountBPFFS(tb testing.TB, directory string) {
	tb.Helper()
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // the test's other users read it
		tb.Fatal(err)
	}
	if err := unix.Mount("bpffs", directory, "bpf", 0, ""); err != nil {
		prerequisite.Missing(tb, fmt.Sprintf("mount bpffs on %s: %v", directory, err), prerequisite.BPF)
	}
	tb.Cleanup(func() { _ = unix.Unmount(directory, unix.MNT_DETACH) })
}

// PinMaps pins new maps in directory, on a bpffs, as the daemon does.
func PinMaps(tb testing.TB, directory string, names ...string) {
	tb.Helper()
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // the test's other users read it
		tb.Fatal(err)
	}
	for _, name := range names {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			tb.Fatalf("create map: %v", err)
		}
		if err := m.Pin(filepath.Join(directory, name)); err != nil {
			tb.Fatalf("pin map: %v", err)
		}
		m.Close()
	}
}
