// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

func TestMain(m *testing.M) {
	sandbox.Main(m, map[string]sandbox.Child{
		"open":    childOpen,
		"events":  childEvents,
		"publish": childPublish,
		"read": func(args []string) error {
			_, err := NewVolumes(args[0], "").Read(args[1])
			return err
		},
		"unpublish": func(args []string) error { return NewVolumes(args[0], "").Unpublish(args[1]) },
	})
}

// childOpen opens a pin with BPF_OBJ_GET, like a program in the pod. Depending on the
// arguments, it first drops capabilities, or changes the pin's mode.
func childOpen(args []string) error {
	for _, first := range args[2:] {
		switch first {
		case "drop":
			runtime.LockOSThread()
			none := [2]unix.CapUserData{}
			if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
				return err
			}
		case "chmod":
			if err := os.Chmod(args[0], 0o666); err != nil {
				return err
			}
		}
	}
	flags, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return err
	}
	m, err := ebpf.LoadPinnedMap(args[0], &ebpf.LoadPinOptions{
		ReadOnly: flags == unix.BPF_F_RDONLY, WriteOnly: flags == unix.BPF_F_WRONLY,
	})
	if err != nil {
		return err
	}
	return m.Close()
}

type publication struct {
	Root, Target string
	Maps         []Map
	Access       Access
}

func childPublish(args []string) error {
	var p publication
	if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
		return err
	}
	return NewVolumes(p.Root, "").Publish(Volume{ID: "csi-0", Target: p.Target}, p.Maps, p.Access)
}

// node is a kubelet's directory of pods, with the parent of one volume, and a program's
// pinned maps.
type node struct {
	volumes      *Volumes
	root, target string
	maps         []Map
}

func newNode(tb testing.TB) node {
	tb.Helper()
	directory := sandbox.Root(tb)
	root := filepath.Join(directory, "pods")
	parent := filepath.Join(root, "uid/volumes/kubernetes.io~csi/maps")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for unix.Unmount(filepath.Join(parent, "mount"), unix.MNT_DETACH) == nil {
		}
	})
	bpffs := filepath.Join(directory, "fs")
	sandbox.MountBPFFS(tb, bpffs)
	sandbox.PinMaps(tb, filepath.Join(bpffs, "maps/7"), "counters", "config")
	return node{
		volumes: NewVolumes(root, ""), root: root, target: filepath.Join(parent, "mount"),
		maps: pinned(tb, filepath.Join(bpffs, "maps/7"), "counters", "config"),
	}
}

// pinned returns the pinned maps with these names, in this order.
func pinned(tb testing.TB, directory string, names ...string) []Map {
	tb.Helper()
	found, err := Pinned(filepath.Dir(directory), directory)
	if err != nil {
		tb.Fatal(err)
	}
	var maps []Map
	for _, name := range names {
		at := slices.IndexFunc(found, func(m Map) bool { return m.Name == name })
		if at < 0 {
			tb.Fatalf("map %s isn't among %v", name, found)
		}
		maps = append(maps, found[at])
	}
	return maps
}

// read returns what the target shows.
func (n node) read(tb testing.TB) State {
	tb.Helper()
	state, err := n.volumes.Read(n.target)
	if err != nil {
		tb.Error(err)
	}
	return state
}

func (n node) volume() Volume { return Volume{ID: "csi-0", Target: n.target} }

func (n node) publish(tb testing.TB, maps []Map, access Access) {
	tb.Helper()
	if err := n.volumes.Publish(n.volume(), maps, access); err != nil {
		tb.Fatal(err)
	}
}

// publishWith publishes in a child process, with a fault.
func (n node) publishWith(tb testing.TB, fault sandbox.Fault, maps []Map, access Access) error {
	tb.Helper()
	argument, err := json.Marshal(publication{n.root, n.target, maps, access})
	if err != nil {
		tb.Fatal(err)
	}
	return sandbox.Run(tb, "publish", nil, fault, string(argument))
}

func (n node) unpublish(tb testing.TB) {
	tb.Helper()
	if err := n.volumes.Unpublish(n.target); err != nil {
		tb.Fatal(err)
	}
}

// check fails the test if the volume isn't complete.
func (n node) check(tb testing.TB, access Access) {
	tb.Helper()
	if state := n.read(tb); !state.Complete([]string{"counters", "config"}, access) {
		tb.Errorf("not complete: %+v", state)
	}
	if mounts := sandbox.Mounts(tb, n.root); mounts != 1 {
		tb.Errorf("%d mounts, want 1", mounts)
	}
}

// checkGone fails the test if something is left of the volume.
func (n node) checkGone(tb testing.TB) {
	tb.Helper()
	if mounts := sandbox.Mounts(tb, n.root); mounts != 0 {
		tb.Errorf("%d mounts left", mounts)
	}
	if _, err := os.Lstat(n.target); !errors.Is(err, os.ErrNotExist) {
		tb.Errorf("target left: %v", err)
	}
}

func TestPublishAndUnpublishAreIdempotent(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	for range 3 {
		n.publish(t, n.maps, access)
		n.check(t, access)
	}
	for range 3 {
		n.unpublish(t)
		n.checkGone(t)
	}
	if err := os.RemoveAll(filepath.Dir(n.target)); err != nil {
		t.Fatal(err)
	}
	if err := n.volumes.Unpublish(n.target); err != nil {
		t.Errorf("Unpublish without parent directory: %v", err)
	}
}

func TestMapOutlivesItsProgram(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{})
	original, err := ebpf.LoadPinnedMap(n.maps[0].Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := original.Put(uint32(0), uint64(42)); err != nil {
		t.Fatal(err)
	}
	original.Close()
	if err := os.Remove(n.maps[0].Path); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.target, "counters"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var value uint64
	if err := m.Lookup(uint32(0), &value); err != nil || value != 42 {
		t.Errorf("value %d, %v; want the one written through the daemon's pin", value, err)
	}
}

func TestKernelEnforcesAccess(t *testing.T) {
	const inside, outside = 2000, 3000
	const readWrite, readOnly, writeOnly = 0, unix.BPF_F_RDONLY, unix.BPF_F_WRONLY
	all, read := map[int]bool{readWrite: true, readOnly: true, writeOnly: true}, map[int]bool{readOnly: true}
	tests := map[string]struct {
		access Access
		uid    uint32
		group  uint32
		opens  map[int]bool
		first  []string
	}{
		"group member":            {access: Access{Group: new(uint32(inside))}, uid: 1000, group: inside, opens: all},
		"group member, read-only": {access: Access{Group: new(uint32(inside)), ReadOnly: true}, uid: 1000, group: inside, opens: read},
		"other user of the group": {access: Access{Group: new(uint32(inside)), ReadOnly: true}, uid: 4000, group: inside, opens: read},
		"stranger":                {access: Access{Group: new(uint32(inside))}, uid: 1000, group: outside},
		"stranger, read-only":     {access: Access{Group: new(uint32(inside)), ReadOnly: true}, uid: 1000, group: outside},
		"group member's chmod":    {access: Access{Group: new(uint32(inside)), ReadOnly: true}, uid: 1000, group: inside, first: []string{"chmod"}},
		"no group":                {access: Access{}, uid: 1000, group: inside},
		"no group, read-only":     {access: Access{ReadOnly: true}, uid: 1000, group: inside},
		"root":                    {access: Access{}, opens: all},
		"root, read-only":         {access: Access{ReadOnly: true}, opens: read},
		"root after a chmod":      {access: Access{ReadOnly: true}, first: []string{"chmod"}},
		"mere root":               {access: Access{}, opens: all, first: []string{"drop"}},
		"mere root, read-only":    {access: Access{ReadOnly: true}, opens: read, first: []string{"drop"}},
		"mere root and a group":   {access: Access{Group: new(uint32(inside)), ReadOnly: true}, opens: read, first: []string{"drop"}},
		"mere root after a chmod": {access: Access{ReadOnly: true}, first: []string{"drop", "chmod"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.publish(t, n.maps, test.access)
			for _, flags := range []int{readWrite, readOnly, writeOnly} {
				user := &syscall.Credential{Uid: test.uid, Gid: test.uid, Groups: []uint32{test.group}}
				err := sandbox.Run(t, "open", user, sandbox.Fault{},
					append([]string{filepath.Join(n.target, "counters"), strconv.Itoa(flags)}, test.first...)...)
				if want := test.opens[flags]; (err == nil) != want {
					t.Errorf("open with flags %#x: %v, want success %v", flags, err, want)
				}
			}
		})
	}
}

func TestVolumeIsClosedToOthersAndChanges(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	n.publish(t, n.maps, access)
	if state := n.read(t); !state.Complete(nil, access) {
		t.Errorf("not complete for all maps: %+v", state)
	}
	info, err := os.Stat(n.target)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode(); mode.Perm() != 0o750 || mode&os.ModeSticky != 0 {
		t.Errorf("volume has mode %v", mode)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(n.target, &stat); err != nil {
		t.Fatal(err)
	}
	if want := int64(unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_RELATIME); stat.Flags&want != want {
		t.Errorf("mount flags %#x, want %#x", stat.Flags, want)
	}
	if stat.Flags&unix.ST_RDONLY != 0 {
		t.Error("mount is read-only: the runtime can't relabel it")
	}
}

// TestVolumeShowsMapsOnly publishes on this kernel, and simulates one that can't mount a
// directory of a detached file system, like all kernels before Linux 6.15.
func TestVolumeShowsMapsOnly(t *testing.T) {
	iterators := kernelIterators(t)
	access := Access{Group: new(uint32(2000))}
	t.Run("on this kernel", func(t *testing.T) {
		n := newNode(t)
		n.publish(t, n.maps, access)
		shown := fileNames(t, n.target)
		if slices.Contains(shown, "maps.debug") && !mountsDetachedDirectories(t) {
			prerequisite.Missing(t, "before Linux 6.15 the kernel's own files stay", prerequisite.DetachedMounts)
		}
		if want := []string{"config", "counters"}; !slices.Equal(shown, want) {
			t.Errorf("volume shows %q, not %q", shown, want)
		}
	})
	t.Run("before Linux 6.15", func(t *testing.T) {
		if len(iterators) == 0 {
			prerequisite.Missing(t, "this kernel has no CONFIG_BPF_PRELOAD", prerequisite.BPFPreload)
		}
		n := newNode(t)
		if err := n.publishWith(t, sandbox.Fault{Syscall: unix.SYS_OPEN_TREE, Errno: unix.EINVAL}, n.maps, access); err != nil {
			t.Fatal(err)
		}
		n.check(t, access)
		want := slices.Sorted(slices.Values(append([]string{"config", "counters"}, iterators...)))
		if shown := fileNames(t, n.target); !slices.Equal(shown, want) {
			t.Errorf("volume shows %q, not %q", shown, want)
		}
		for _, name := range iterators {
			checkSealed(t, filepath.Join(n.target, name))
		}
	})
}

// kernelIterators returns the names of the files that this kernel adds to each new
// bpffs.
func kernelIterators(t *testing.T) []string {
	t.Helper()
	directory := filepath.Join(sandbox.Root(t), "fs")
	sandbox.MountBPFFS(t, directory)
	return fileNames(t, directory)
}

// mountsDetachedDirectories reports whether this kernel can mount a directory of a
// detached file system.
func mountsDetachedDirectories(t *testing.T) bool {
	t.Helper()
	root, err := newBPFFS("probe", "", Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	directory, err := subdirectory(root)
	if err != nil {
		return false
	}
	directory.Close()
	return true
}

func fileNames(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// checkSealed checks that no user in a pod can read the file, including root without
// capabilities.
func checkSealed(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Perm() != 0 || stat.Uid != nobody || stat.Gid != nobody {
		t.Errorf("%s is open: %v", path, info)
	}
}

// TestSeal closes files as it does with the kernel's own, which not every kernel has.
func TestSeal(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{})
	directory, err := os.Open(n.target)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if err := seal(directory, []string{"config"}); err != nil {
		t.Fatal(err)
	}
	checkSealed(t, filepath.Join(n.target, "config"))
	if err := seal(directory, []string{"none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("seal a file that isn't there: %v", err)
	}
	n.setReadOnly(t, true)
	if err := seal(directory, []string{"counters"}); !errors.Is(err, unix.EROFS) {
		t.Errorf("seal a file that can't be changed: %v", err)
	}
}

// publishCalls are the system calls between the steps of Publish.
var publishCalls = map[string]int{
	"openat2": unix.SYS_OPENAT2, "mkdirat": unix.SYS_MKDIRAT, "fstatfs": unix.SYS_FSTATFS,
	"fsopen": unix.SYS_FSOPEN, "fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT,
	"fchownat": unix.SYS_FCHOWNAT, "fchmodat": unix.SYS_FCHMODAT, "bpf": unix.SYS_BPF,
	"renameat": unix.SYS_RENAMEAT, "fspick": unix.SYS_FSPICK, "move_mount": unix.SYS_MOVE_MOUNT,
}

func TestPublishSurvivesFaults(t *testing.T) {
	access := Access{Group: new(uint32(2000)), ReadOnly: true}
	for name, call := range publishCalls {
		for _, errno := range []syscall.Errno{0, syscall.EIO} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				n := newNode(t)
				err := n.publishWith(t, sandbox.Fault{Syscall: call, Errno: errno}, n.maps, access)
				if err == nil {
					t.Fatal("publish met no fault")
				}
				if killed := strings.Contains(err.Error(), "bad system call"); killed != (errno == 0) {
					t.Fatalf("child ended with %v", err)
				}
				if mounts := sandbox.Mounts(t, n.root); mounts != 0 {
					t.Errorf("%d mounts after the fault", mounts)
				}
				if errno != 0 {
					n.checkGone(t)
				}
				if err := n.volumes.Publish(n.volume(), n.maps, access); err != nil {
					t.Fatalf("retry: %v", err)
				}
				n.check(t, access)
				n.unpublish(t)
				n.checkGone(t)
			})
		}
	}
}

func TestPublishSaysWhatFailed(t *testing.T) {
	n := newNode(t)
	err := n.publishWith(t, sandbox.Fault{Syscall: unix.SYS_MKDIRAT, Errno: unix.EIO}, n.maps, Access{})
	if err == nil || !strings.Contains(err.Error(), "mkdir "+n.target+": "+unix.EIO.Error()) {
		t.Errorf("publish without mkdir(2): %v", err)
	}
}

// A plugin that was killed while it updated a volume leaves it writable.
func TestProtect(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{ReadOnly: true})
	n.setReadOnly(t, false)
	if n.read(t).ReadOnly {
		t.Fatal("the volume isn't writable")
	}
	if err := n.volumes.Protect(n.target); err != nil || !n.read(t).ReadOnly {
		t.Errorf("the volume stays writable: %v", err)
	}
	n.unpublish(t)
	if err := n.volumes.Protect(n.target); err == nil {
		t.Error("a volume that isn't there is protected")
	}
}

func TestUnpublishSurvivesFaults(t *testing.T) {
	for name, call := range map[string]int{
		"openat2": unix.SYS_OPENAT2, "fstatfs": unix.SYS_FSTATFS,
		"umount2": unix.SYS_UMOUNT2, "unlinkat": unix.SYS_UNLINKAT,
	} {
		for _, errno := range []syscall.Errno{0, syscall.EIO} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				n := newNode(t)
				n.publish(t, n.maps, Access{})
				if err := sandbox.Run(t, "unpublish", nil, sandbox.Fault{Syscall: call, Errno: errno}, n.root, n.target); err == nil {
					t.Fatal("unpublish met no fault")
				}
				if err := n.volumes.Unpublish(n.target); err != nil {
					t.Fatalf("retry: %v", err)
				}
				n.checkGone(t)
			})
		}
	}
}

func TestPublishCompletesAVolume(t *testing.T) {
	access := Access{Group: new(uint32(2000)), ReadOnly: true}
	damage := map[string]func(target string) error{
		"map missing": func(target string) error { return os.Remove(filepath.Join(target, "config")) },
		"mode wrong":  func(target string) error { return os.Chmod(filepath.Join(target, "config"), 0o660) },
		"group wrong": func(target string) error { return os.Chown(filepath.Join(target, "config"), 0, 0) },
	}
	for name, spoil := range damage {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.publish(t, n.maps, access)
			if err := spoil(n.target); !errors.Is(err, unix.EROFS) {
				t.Errorf("a read-only volume is spoilt: %v", err)
			}
			n.setReadOnly(t, false)
			if err := spoil(n.target); err != nil {
				t.Fatal(err)
			}
			if state := n.read(t); state.Complete([]string{"counters", "config"}, access) {
				t.Fatalf("a spoilt volume is complete: %+v", state)
			}
			n.publish(t, n.maps, access)
			n.check(t, access)
		})
	}
}

// setReadOnly changes the volume's file system, which a pod can't do.
func (n node) setReadOnly(tb testing.TB, readOnly bool) {
	tb.Helper()
	directory, err := os.Open(n.target)
	if err != nil {
		tb.Fatal(err)
	}
	defer directory.Close()
	if err := setReadOnly(directory, readOnly); err != nil {
		tb.Fatal(err)
	}
}

// TestReadOnlyIsMadeGood publishes a volume whose file system isn't read-only, because
// an earlier version created it, or because a process was killed while it filled the
// volume.
func TestReadOnlyIsMadeGood(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: true}
	n.publish(t, n.maps, access)
	n.setReadOnly(t, false)
	if state := n.read(t); state.Shows(n.maps, access) {
		t.Errorf("a volume that can be written shows the maps: %+v", state)
	}
	n.check(t, access) // the pod doesn't have to restart
	n.publish(t, n.maps, access)
	n.checkShows(t, n.maps, access)
	if err := os.Chmod(filepath.Join(n.target, "config"), 0o660); !errors.Is(err, unix.EROFS) {
		t.Errorf("chmod: %v", err)
	}
}

// TestContainersMountReadOnlyVolumes does the same as container runtimes with a volume:
// it creates a bind mount, and makes it read-only if the container requests that.
func TestContainersMountReadOnlyVolumes(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: true}
	n.publish(t, n.maps, access)
	container := filepath.Join(n.root, "container")
	if err := os.Mkdir(container, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(container, unix.MNT_DETACH) })
	for _, step := range []struct {
		source string
		flags  uintptr
	}{{n.target, unix.MS_BIND | unix.MS_REC}, {"", unix.MS_REC | unix.MS_PRIVATE}, {"", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY}} {
		if err := unix.Mount(step.source, container, "", step.flags, ""); err != nil {
			t.Fatalf("mount with flags %#x: %v", step.flags, err)
		}
	}
	reloaded := n.reload(t)
	if err := n.volumes.Publish(n.volume(), reloaded, access); err != nil {
		t.Fatalf("follow: %v", err)
	}
	n.checkShows(t, reloaded, access)
	m, err := ebpf.LoadPinnedMap(filepath.Join(container, "counters"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if _, err := ebpf.LoadPinnedMap(filepath.Join(container, "counters"), nil); !errors.Is(err, unix.EROFS) {
		t.Errorf("open for writing: %v", err)
	}
}

func TestPublishReplacesWhatAPodPutInItsVolume(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	n.publish(t, n.maps, access)
	victim := filepath.Join(n.root, "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config", temporary + "config"} {
		planted := filepath.Join(n.target, name)
		if err := os.Remove(planted); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, planted); err != nil {
			t.Fatal(err)
		}
	}
	if state := n.read(t); state.Complete([]string{"config"}, access) {
		t.Errorf("complete with a symbolic link in place of a pin: %+v", state)
	}
	if err := n.volumes.Publish(n.volume(), n.maps, access); err != nil {
		t.Error(err)
	}
	n.check(t, access)
	info, err := os.Stat(victim)
	if err != nil {
		t.Fatal(err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Perm() != 0o600 || stat.Gid != 0 {
		t.Errorf("the link's target was changed: %v", info.Mode())
	}
}

func TestUnpublishOfStackedMounts(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{})
	for range 2 {
		if err := unix.Mount("bpffs", n.target, "bpf", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	n.unpublish(t)
	n.checkGone(t)
}

func TestUnpublishWhileInUse(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{})
	user, err := os.Open(n.target)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	n.unpublish(t)
	n.checkGone(t)
}

func TestUnpublishKeepsForeignFiles(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(filepath.Join(n.target, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.volumes.Unpublish(n.target); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("Unpublish of a directory with files: %v", err)
	}
}

func TestSymbolicLinksInTheTarget(t *testing.T) {
	n := newNode(t)
	outside := filepath.Join(filepath.Dir(n.root), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "mount"), 0o755); err != nil {
		t.Fatal(err)
	}
	parent := filepath.Dir(n.target)
	links := []struct {
		name  string
		plant func() error
	}{
		{"last component", func() error { return os.Symlink(outside, n.target) }},
		{"middle component", func() error { return errors.Join(os.RemoveAll(parent), os.Symlink(outside, parent)) }},
	}
	for _, link := range links {
		t.Run(link.name, func(t *testing.T) {
			if err := link.plant(); err != nil {
				t.Fatal(err)
			}
			if err := n.volumes.Publish(n.volume(), n.maps, Access{}); !errors.Is(err, ErrPath) {
				t.Errorf("Publish: %v", err)
			}
			if err := n.volumes.Unpublish(n.target); !errors.Is(err, ErrPath) {
				t.Errorf("Unpublish: %v", err)
			}
			if _, err := n.volumes.Read(n.target); !errors.Is(err, ErrPath) {
				t.Errorf("Read: %v", err)
			}
			if sandbox.Mounts(t, outside) != 0 {
				t.Error("mounted outside")
			}
			if _, err := os.Stat(filepath.Join(outside, "mount")); err != nil {
				t.Errorf("directory outside: %v", err)
			}
		})
	}
}

// TestMountsReachTheHost publishes below a mount that is shared with another place, like
// the kubelet's directory with the host (Bidirectional).
func TestMountsReachTheHost(t *testing.T) {
	n := newNode(t)
	host := filepath.Join(filepath.Dir(n.root), "host")
	if err := os.Mkdir(host, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, mount := range []struct {
		from, to string
		flags    uintptr
	}{
		{n.root, n.root, unix.MS_BIND}, {"", n.root, unix.MS_SHARED}, {n.root, host, unix.MS_BIND},
	} {
		if err := unix.Mount(mount.from, mount.to, "", mount.flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(mount.to, unix.MNT_DETACH) })
	}
	n.publish(t, n.maps, Access{})
	if mounts := sandbox.Mounts(t, host); mounts != 2 {
		t.Errorf("%d mounts on the host, want the shared one and the volume", mounts)
	}
	n.unpublish(t)
	if mounts := sandbox.Mounts(t, host); mounts != 1 {
		t.Errorf("%d mounts on the host, want the shared one", mounts)
	}
}

func TestManyVolumesAtOnce(t *testing.T) {
	n := newNode(t)
	var group sync.WaitGroup
	for i := range 40 {
		parent := filepath.Join(n.root, strconv.Itoa(i))
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			target := filepath.Join(parent, "mount")
			if err := n.volumes.Publish(Volume{ID: "csi-0", Target: target}, n.maps, Access{}); err != nil {
				t.Error(err)
			}
			if err := n.volumes.Unpublish(target); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if mounts := sandbox.Mounts(t, n.root); mounts != 0 {
		t.Errorf("%d mounts left", mounts)
	}
}

func TestPinned(t *testing.T) {
	n := newNode(t)
	pins := filepath.Dir(n.maps[0].Path)
	root := filepath.Dir(pins)
	found, err := Pinned(root, pins)
	if err != nil || len(found) != 2 || found[0].Name != "config" || found[1].Path != filepath.Join(pins, "counters") || found[0].ID == found[1].ID {
		t.Errorf("Pinned = %v, %v", found, err)
	}
	if _, err := Pinned(root, "/etc"); !errors.Is(err, ErrPath) {
		t.Errorf("Pinned outside the root: %v", err)
	}
	if _, err := Pinned(root, filepath.Join(root, "8")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Pinned of an unloaded program: %v", err)
	}
}

func BenchmarkPublish(b *testing.B) {
	n := newNode(b)
	for b.Loop() {
		n.publish(b, n.maps, Access{Group: new(uint32(2000))})
		n.unpublish(b)
	}
}

// The plugin runs for months, so no file stays open.
func TestNoFileStaysOpen(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: true}
	open := func() int {
		for _, maps := range [][]Map{n.maps, n.maps[:1], n.maps} {
			n.publish(t, maps, access)
		}
		if _, err := n.volumes.List(); err != nil {
			t.Fatal(err)
		}
		if _, err := Pinned(filepath.Dir(filepath.Dir(n.maps[0].Path)), filepath.Dir(n.maps[0].Path)); err != nil {
			t.Fatal(err)
		}
		if _, err := Loaded(filepath.Dir(filepath.Dir(n.maps[0].Path))); err != nil {
			t.Fatal(err)
		}
		n.check(t, access)
		n.unpublish(t)
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	before := open()
	if after := open(); after > before {
		t.Errorf("%d files are open, and %d before", after, before)
	}
}

// Whoever isn't in the volume's group has no access.
func TestPinModes(t *testing.T) {
	for access, want := range map[Access]os.FileMode{
		{}: 0o600, {ReadOnly: true}: 0o400, {Group: new(uint32(2000))}: 0o660, {Group: new(uint32(2000)), ReadOnly: true}: 0o440,
	} {
		if got := access.PinMode(); got != want {
			t.Errorf("%+v: %o, want %o", access, got, want)
		}
	}
}
