// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const otherID = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

func TestParseCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Place
	}{
		"v2, systemd, containerd": {
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b2c.slice/cri-containerd-" + id + ".scope\n", Place{Container: id},
		},
		"v2, systemd, CRI-O": {
			"0::/kubepods.slice/kubepods-pod1b2c.slice/crio-" + id + ".scope/container\n", Place{Container: id},
		},
		"v2, cgroupfs":            {"0::/kubepods/besteffort/pod1b2c/" + id + "\n", Place{Container: id}},
		"v2, Docker":              {"0::/system.slice/docker-" + id + ".scope\n", Place{Container: id}},
		"containerd's own naming": {"0::/system.slice/containerd.service/kubepods-burstable-pod1b2c.slice:cri-containerd:" + id + "\n", Place{Container: id}},
		"of another in the pod, seen from a container": {
			"0::/../cri-containerd-" + id + ".scope\n", Place{Container: id},
		},
		"of the host, seen from a container": {
			"0::/../../../../system.slice/containerd.service\n", Place{Unit: "containerd.service"},
		},
		"v1": {
			"12:pids:/kubepods/burstable/pod1b2c/" + id + "\n1:name=systemd:/kubepods/burstable/pod1b2c/" + id + "\n", Place{Container: id},
		},
		"v1, of systemd": {
			"12:pids:/system.slice\n11:cpu,cpuacct:/\n1:name=systemd:/system.slice/sshd.service\n0::/system.slice/sshd.service\n", Place{Unit: "sshd.service"},
		},
		"a container that a container runs": {
			"0::/kubepods/pod1b2c/" + id + "/docker/" + otherID + "\n", Place{Container: id},
		},
		"a node that is a container": {
			"0::/docker/" + otherID + "/kubelet.slice/kubepods.slice/pod1b2c.slice/cri-containerd-" + id + ".scope\n", Place{Container: id},
		},
		"the monitor of a container":   {"0::/system.slice/crio-conmon-" + id + ".scope\n", Place{Unit: "crio-conmon-" + id + ".scope"}},
		"a session":                    {"0::/user.slice/user-0.slice/session-3.scope\n", Place{Unit: "session-3.scope"}},
		"a unit of a user's":           {"0::/user.slice/user-0.slice/user@0.service/app.slice/tool.service\n", Place{Unit: "tool.service"}},
		"the root":                     {"0::/\n", Place{}},
		"nothing":                      {"", Place{}},
		"not of that form":             {"0\n::\n:::\n", Place{}},
		"an id that isn't one":         {"0::/kubepods/" + id[:63] + "g\n", Place{}},
		"an id that is longer":         {"0::/kubepods/" + id + "0\n", Place{}},
		"a cgroup with colons in it":   {"0::/a:b/c.service\n", Place{Unit: "c.service"}},
		"a deleted cgroup's last word": {"0::/system.slice/gone.service (deleted)\n", Place{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ParseCgroup(c.text); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("0::/kubepods/pod1/" + id + "\n")
	f.Add("1:name=systemd:/system.slice/a.service\n0::/\n")
	f.Fuzz(func(t *testing.T, text string) {
		place := ParseCgroup(text)
		if place.Container != "" && (!isContainerID(place.Container) || place.Unit != "") {
			t.Errorf("container %q, unit %q", place.Container, place.Unit)
		}
		if !strings.Contains(text, place.Container) || !strings.Contains(text, place.Unit) || strings.ContainsAny(place.Unit, "/\n") {
			t.Errorf("%+v isn't of %q", place, text)
		}
	})
}

func TestMounts(t *testing.T) {
	//nolint:dupword // a line of mountinfo has a type and a source, often the same word
	text := `23 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 23 0:26 / /sys/fs/bpf rw,nosuid,nodev shared:9 master:1 propagate_from:2 - bpf bpf rw,mode=700
31 23 0:27 /maps/7 /var/lib/a\040b\134\011\012 ro - bpf none rw
32 23 0:4 net:[4026532188] /run/netns/one rw shared:1 - nsfs nsfs rw
33 23 0:28 / /dash\040-\040bpf rw - tmpfs - rw
`
	proc := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(proc, "7"), 0o700), os.WriteFile(filepath.Join(proc, "7/mountinfo"), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	mounts, err := Mounts(proc, 7, "bpf", "nsfs")
	var got []string
	for _, m := range mounts {
		got = append(got, fmt.Sprintf("%s %d:%d %s %s", m.FSType, m.Major, m.Minor, m.Root, m.Mountpoint))
	}
	want := []string{"bpf 0:26 / /sys/fs/bpf", "bpf 0:27 /maps/7 /var/lib/a b\\\t\n", "nsfs 0:4 net:[4026532188] /run/netns/one"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := Mounts(proc, 8, "bpf"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("mounts of no process: %v", err)
	}
}

func TestParseStart(t *testing.T) {
	fields := " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8123 1000 10"
	for name, c := range map[string]struct {
		stat string
		want uint64
		ok   bool
	}{
		"plain":                          {"7 (init)" + fields, 8123, true},
		"a name like the rest":           {"7 (a) S 1 (b) 1 1 1) x)" + fields, 8123, true},
		"a name with a newline":          {"7 (a\nb)" + fields, 8123, true},
		"cut off":                        {"7 (init) S 1 1", 0, false},
		"empty":                          {"", 0, false},
		"a parenthesis and nothing more": {"7 (init)", 0, false},
		"not a number":                   {"7 (init)" + strings.Replace(fields, "8123", "-1", 1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStart([]byte(c.stat))
			if got != c.want || (err == nil) != c.ok {
				t.Errorf("got %d, %v, want %d, %v", got, err, c.want, c.ok)
			}
		})
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add([]byte("7 (init) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8123 1000 10"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if start, err := parseStart(stat); err != nil && start != 0 {
			t.Errorf("%d and %v", start, err)
		}
	})
}

func TestNamespaceInode(t *testing.T) {
	for name, want := range map[string]uint64{"net:[4026531840]": 4026531840, "mnt:[1]": 0, "net:[x]": 0, "net:": 0, "": 0} {
		if got, ok := NamespaceInode(name, "net"); got != want || ok != (want != 0) {
			t.Errorf("%q is %d, %v, want %d", name, got, ok, want)
		}
	}
}

// TestScan reads the processes of this machine, including the test's.
func TestScan(t *testing.T) {
	table, err := Scan("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if len(table.NetNS) == 0 || len(table.MntNS) == 0 {
		t.Errorf("no namespaces in %+v", table)
	}
	for _, p := range table.Processes {
		if len(p.Open) == 0 || p.PID == 0 || p.Start == 0 {
			t.Errorf("%+v has nothing open", p)
		}
	}
	if !utf8.ValidString(name("/proc/self")) || name("/proc/self") == "" || strings.HasSuffix(name("/proc/self"), "\n") {
		t.Errorf("the test's name is %q", name("/proc/self"))
	}
	if _, err := Scan(t.TempDir() + "/none"); err == nil {
		t.Error("a /proc that isn't there was read")
	}
}

// A process can have any number of descriptors of one object or perf event. Each object is there once, and perf events only if the
// kernel says something about them.
func TestManyDescriptors(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(errors.Join(os.Mkdir(filepath.Join(dir, "fd"), 0o700), os.Mkdir(filepath.Join(dir, "fdinfo"), 0o700)))
	for fd := range 300 {
		target, info := "anon_inode:[perf_event]", "pos:\t0\n"
		if fd%3 != 0 {
			target, info = "anon_inode:bpf-map", fmt.Sprintf("pos:\t0\nmap_type:\t2\nmap_id:\t%d\n", fd%3)
		}
		number := fmt.Sprint(fd)
		must(errors.Join(os.Symlink(target, filepath.Join(dir, "fd", number)), os.WriteFile(filepath.Join(dir, "fdinfo", number), []byte(info), 0o600)))
	}
	for perfEvents, want := range map[bool]int{false: 2, true: 102} {
		open, _, err := descriptors(dir, perfEvents, newAllowance())
		if err != nil || len(open) != want {
			t.Errorf("%d descriptors, want %d: %v", len(open), want, err)
		}
		if open = slices.DeleteFunc(open, func(d Descriptor) bool { return d.PerfEvent }); open[0].Behind.Map != 1 || open[1].Behind.Map != 2 {
			t.Errorf("%+v", open)
		}
	}
}

// A container whose processes have millions of descriptors leaves others theirs. Of each process, the first ones are read.
func TestAContainerLeavesOthersTheirDescriptors(t *testing.T) {
	proc := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	process := func(name, cgroup string, count int) string {
		dir := filepath.Join(proc, name)
		must(errors.Join(os.MkdirAll(filepath.Join(dir, "fd"), 0o700), os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/"+cgroup+"\n"), 0o600)))
		for fd := range count {
			must(os.Symlink("/dev/null", filepath.Join(dir, "fd", fmt.Sprint(fd))))
		}
		return dir
	}
	greedy, other := strings.Repeat("a", containerIDLength), strings.Repeat("b", containerIDLength)
	large, small := process("1", "kubepods/pod1/"+greedy, always+10), process("2", "kubepods/pod1/"+greedy, always)
	others, hosts := process("3", "kubepods/pod2/"+other, always+10), process("4", "system.slice/x.service", always+10)
	allowed := newAllowance()
	allowed.of[greedy] = maxOfContainer - 5
	for n, c := range []struct {
		dir  string
		want error
	}{{large, errCrowded}, {small, nil}, {others, nil}, {hosts, nil}} {
		if _, _, err := descriptors(c.dir, false, allowed); !errors.Is(err, c.want) {
			t.Errorf("process %d: %v, want %v", n+1, err, c.want)
		}
	}
	if allowed.of[greedy] != maxOfContainer || allowed.of[other] != 10 || allowed.left != maxOfAll-15 {
		t.Errorf("%+v", allowed)
	}
	allowed.left = 0
	if _, _, err := descriptors(others, false, allowed); !errors.Is(err, errCrowded) {
		t.Errorf("more than of all containers: %v", err)
	}
}
