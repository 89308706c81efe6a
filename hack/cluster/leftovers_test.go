// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/node"
)

const (
	// instance isn't the developers' instance, which can be running.
	instance    = 77
	testTimeout = 3 * time.Minute
)

// machine contains what the cluster needs in a test.
type machine struct {
	t          *testing.T
	settings   component.Settings
	flags      []string
	program    string
	kubeconfig string
	scratch    string // TMPDIR of the program
}

// newMachine reads the environment variables that make test-cluster sets.
func newMachine(t *testing.T) machine {
	t.Helper()
	program, kubernetes := os.Getenv("CLUSTER_PROGRAM"), os.Getenv("CLUSTER_KUBERNETES")
	if program == "" || kubernetes == "" {
		t.Skip("CLUSTER_PROGRAM and CLUSTER_KUBERNETES are not set: run make test-cluster")
	}
	if os.Geteuid() != 0 {
		t.Skip("not root: the cluster takes namespaces and mounts")
	}
	dir := t.TempDir()
	m := machine{
		t:          t,
		settings:   component.Default(instance, "/var/lib/bpfman-cluster-test", kubernetes, 1),
		program:    program,
		kubeconfig: filepath.Join(dir, "kubeconfig"),
		scratch:    filepath.Join(dir, "tmp"),
	}
	if err := os.Mkdir(m.scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	m.flags = []string{
		"--instance=" + strconv.Itoa(instance),
		"--state-dir=" + m.settings.StateDir,
		"--kubernetes=" + kubernetes,
		"--bin=" + filepath.Dir(program),
		"--kubeconfig=" + m.kubeconfig,
	}
	t.Cleanup(func() { _ = m.command(context.Background(), "down").Run() })
	return m
}

func (m machine) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, m.program, append(slices.Clone(m.flags), args...)...)
	command.Env = append(os.Environ(), "TMPDIR="+m.scratch)
	return command
}

// run runs a command of the program. It must succeed.
func (m machine) run(name string) {
	m.t.Helper()
	m.output(m.command(m.t.Context(), name))
}

// node runs a command of the program about a node. It must succeed.
func (m machine) node(number int, args ...string) {
	m.t.Helper()
	m.output(m.command(m.t.Context(), append([]string{"--node=" + strconv.Itoa(number)}, args...)...))
}

func (m machine) kubectl(input string, args ...string) string {
	m.t.Helper()
	command := exec.CommandContext(m.t.Context(), m.settings.Kubernetes, append([]string{"kubectl", "--kubeconfig", m.kubeconfig, "--cache-dir", m.scratch + "/.."}, args...)...)
	command.Stdin = strings.NewReader(input)
	return m.output(command)
}

func (m machine) output(command *exec.Cmd) string {
	m.t.Helper()
	output, err := command.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %v\n%s", command.Args, err, output)
	}
	return string(output)
}

// pod is a pod that leaves a mount on the node.
const pod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: shell
    image: docker.io/library/busybox:1.37
    imagePullPolicy: IfNotPresent
    securityContext: {privileged: true}
    command: [sh, -c, "mount -t tmpfs left /run/left && echo mounted && sleep 100000"]
    volumeMounts: [{name: run, mountPath: /run/left, mountPropagation: Bidirectional}]
  volumes: [{name: run, hostPath: {path: /run/left, type: DirectoryOrCreate}}]
`

// useIt runs a pod until it has created its mount.
func (m machine) useIt(name string) {
	m.t.Helper()
	m.kubectl(fmt.Sprintf(pod, name), "apply", "-f", "-")
	m.kubectl("", "wait", "--for=condition=Ready", "--timeout=60s", "pod/"+name)
	if got := m.kubectl("", "exec", name, "--", "grep", "-c", "/run/left", "/proc/self/mountinfo"); strings.TrimSpace(got) != "2" {
		m.t.Errorf("the pod %s sees %q mounts at /run/left, want 2", name, got)
	}
}

// inside returns the processes of the node by name, with the host's process ids.
func (m machine) inside() map[string]*os.Process {
	m.t.Helper()
	state := node.Load(m.settings.StateDir)
	if !state.Alive() {
		m.t.Fatal("the node doesn't run")
	}
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", state.PID))
	if err != nil {
		m.t.Fatal(err)
	}
	found := map[string]*os.Process{}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, link := range links {
		if in, err := os.Readlink(link); err != nil || in != namespace {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		commandLine, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		name, _, _ := bytes.Cut(commandLine, []byte{0})
		process, err := os.FindProcess(pid)
		if err != nil {
			m.t.Fatal(err)
		}
		found[filepath.Base(string(name))] = process
	}
	return found
}

func (m machine) kill(process *os.Process) {
	m.t.Helper()
	if process == nil {
		m.t.Fatal("no such process")
	}
	if err := process.Kill(); err != nil {
		m.t.Fatal(err)
	}
}

// awaitEnd fails the test unless the process ends. Its parent can take a moment to reap
// it.
func (m machine) awaitEnd(name string, process *os.Process) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
	defer cancel()
	if err := component.Wait(ctx, func(context.Context) error {
		if process.Signal(syscall.Signal(0)) == nil {
			return fmt.Errorf("process %d still runs", process.Pid)
		}
		return nil
	}); err != nil {
		m.t.Errorf("%s: %v", name, err)
	}
}

func TestDownLeavesNothing(t *testing.T) {
	m := newMachine(t)
	m.run("down")
	before := m.observe()

	t.Run("after use and kills", func(t *testing.T) {
		m := m
		m.t = t
		m.run("up")
		m.mustSee(before)
		m.useIt("first")
		processes := m.inside()
		for _, name := range []string{"etcd", "containerd", "kubelet", "kube-apiserver"} {
			m.kill(processes[name])
		}
		m.run("up") // it waits until the node is back
		m.useIt("second")
		processes = m.inside()
		m.run("down")
		for name, process := range processes {
			m.awaitEnd(name, process)
		}
		m.compare(before)
	})

	t.Run("after the init was killed", func(t *testing.T) {
		m := m
		m.t = t
		m.run("up")
		m.kill(m.inside()["cluster"])
		m.run("up")
		m.run("down")
		m.compare(before)
	})

	t.Run("after several nodes", func(t *testing.T) {
		m := m
		m.t = t
		m.flags = append(slices.Clone(m.flags), "--nodes=2")
		m.run("up")
		m.mustSee(before)
		m.useIt("third")
		m.run("add-node")
		m.node(2, "reboot")
		m.node(3, "stop", "kubelet")
		m.node(3, "start", "kubelet")
		m.node(1, "reboot")
		nodes := m.kubectl("", "get", "nodes", "-o", "name")
		if want := "node/bpfman-node\nnode/bpfman-node-2\nnode/bpfman-node-3\n"; nodes != want {
			t.Errorf("the nodes are %q, want %q", nodes, want)
		}
		m.node(3, "remove-node")
		if nodes := m.kubectl("", "get", "nodes", "-o", "name"); strings.Contains(nodes, "bpfman-node-3") {
			t.Errorf("a node that was removed is there: %q", nodes)
		}
		m.node(2, "halt")
		m.run("down")
		m.compare(before)
	})

	t.Run("after half an up", func(t *testing.T) {
		m := m
		m.t = t
		m.interruptUp("certificates")
		m.run("down")
		m.compare(before)
		m.interruptUp("namespaces")
		m.run("down")
		m.compare(before)
	})
}

// interruptUp kills the program after it has reported the step.
func (m machine) interruptUp(step string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), testTimeout)
	defer cancel()
	command := m.command(ctx, "up")
	output, err := command.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		m.t.Fatal(err)
	}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.Contains(lines.Text(), step) {
			break
		}
	}
	m.kill(command.Process)
	if err := command.Wait(); err == nil {
		m.t.Errorf("up ended before the step %q", step)
	}
}

// observation is everything on the host that a cluster could leave behind.
type observation map[string][]string

func (m machine) observe() observation {
	m.t.Helper()
	found := observation{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		found["mounts"] = append(found["mounts"], fields[4]+" "+fields[5])
	}
	links, err := netlink.LinkList()
	if err != nil {
		m.t.Fatal(err)
	}
	// Another cluster can start or stop in the meantime.
	others := map[int]bool{}
	for _, link := range links {
		if name := link.Attrs().Name; m.isOthers(name) {
			others[link.Attrs().Index] = true
		} else {
			found["interfaces"] = append(found["interfaces"], name)
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, route := range routes {
		if others[route.LinkIndex] {
			continue
		}
		found["routes"] = append(found["routes"], route.String())
	}
	// Other processes and files of the machine change all the time. These are the ones
	// with the cluster's name, and the places that a node writes to.
	found["processes"] = m.processes()
	found["cgroups"] = m.cgroups()
	found["controllers"] = m.controllers()
	for _, dir := range []string{"/etc", "/run", "/dev", "/opt", "/var/lib", "/var/log", m.scratch} {
		found["files"] = append(found["files"], files(dir, m.settings.StateDir)...)
	}
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "kernel/hostname",
	} {
		value, _ := os.ReadFile("/proc/sys/" + name)
		found["sysctls"] = append(found["sysctls"], name+" = "+strings.TrimSpace(string(value)))
	}
	if _, err := os.Stat(m.kubeconfig); err == nil {
		found["files"] = append(found["files"], m.kubeconfig)
	}
	return found
}

var instanceName = regexp.MustCompile(`^bpfman(-cluster-)?[0-9]+(-[0-9]+)?$`)

// isOthers reports whether the interface or cgroup belongs to another instance.
func (m machine) isOthers(name string) bool {
	return instanceName.MatchString(name) && name != m.settings.HostInterface && name != m.settings.Cgroup && !strings.HasPrefix(name, m.settings.Cgroup+"-")
}

// processes returns the processes whose command lines contain the state directory.
func (m machine) processes() []string {
	var found []string
	commandLines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commandLines {
		commandLine, _ := os.ReadFile(file)
		if bytes.Contains(commandLine, []byte(m.settings.StateDir)) {
			found = append(found, string(bytes.ReplaceAll(commandLine, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// cgroups returns the topmost cgroups of each hierarchy, where the node's is.
func (m machine) cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} {
		entries, _ := filepath.Glob(pattern)
		for _, entry := range entries {
			if info, err := os.Stat(entry); err == nil && info.IsDir() && !m.isOthers(info.Name()) {
				found = append(found, entry)
			}
		}
	}
	return found
}

// controllers returns what the root of cgroup v2 has enabled. With a cluster that still runs, it isn't this one's.
func (m machine) controllers() []string {
	var found []string
	for _, control := range []string{"/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup/unified/cgroup.subtree_control"} {
		entries, _ := os.ReadDir(filepath.Dir(control))
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() && m.isOthers(e.Name()) }) {
			continue
		}
		content, _ := os.ReadFile(control) // with cgroup v1, one of the two exists, or none
		found = append(found, strings.Fields(string(content))...)
	}
	return found
}

// files returns the files below the directory, without the state of other clusters.
func files(root, stateDir string) []string {
	var found []string
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // removed in the meantime
		}
		// Another cluster's state changes all the time.
		if strings.HasPrefix(path, "/var/lib/bpfman-cluster") && !strings.HasPrefix(path, stateDir) && entry.IsDir() {
			return fs.SkipDir
		}
		// The last cluster of the machine removes it.
		if path == "/run/bpfman-cluster-controllers" {
			return nil
		}
		// Terminals and shared memory belong to other processes of the machine.
		if path == "/dev/pts" || path == "/dev/shm" {
			return fs.SkipDir
		}
		found = append(found, path)
		return nil
	})
	return found
}

// compare fails the test if something appeared, or disappeared.
func (m machine) compare(before observation) {
	m.t.Helper()
	after := m.observe()
	for _, what := range slices.Sorted(maps.Keys(after)) {
		for _, left := range difference(after[what], before[what]) {
			m.t.Errorf("%s: left behind: %s", what, left)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(before)) {
		for _, gone := range difference(before[what], after[what]) {
			m.t.Errorf("%s: taken away: %s", what, gone)
		}
	}
}

// mustSee fails the test unless it would notice a cluster that is left running.
func (m machine) mustSee(before observation) {
	m.t.Helper()
	during := m.observe()
	for _, what := range []string{"interfaces", "routes", "cgroups", "processes", "files"} {
		if len(difference(during[what], before[what])) == 0 {
			m.t.Errorf("%s: a running cluster isn't noticed", what)
		}
	}
}

// difference returns what a contains and b doesn't, counting repetitions.
func difference(a, b []string) []string {
	count := map[string]int{}
	for _, x := range b {
		count[x]++
	}
	var more []string
	for _, x := range a {
		if count[x]--; count[x] < 0 {
			more = append(more, x)
		}
	}
	return more
}
