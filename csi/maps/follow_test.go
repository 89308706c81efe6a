// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

// reload pins new maps with the same names, like the daemon during a reload.
func (n node) reload(tb testing.TB) []Map {
	tb.Helper()
	directory := filepath.Join(filepath.Dir(filepath.Dir(n.maps[0].Path)), "8")
	var names []string
	for _, m := range n.maps {
		names = append(names, m.Name)
	}
	sandbox.PinMaps(tb, directory, names...)
	return pinned(tb, directory, names...)
}

func (n node) checkShows(tb testing.TB, maps []Map, access Access) {
	tb.Helper()
	if state := n.read(tb); !state.Shows(maps, access) {
		tb.Errorf("shows %+v, not %+v", state, maps)
	}
}

func TestVolumeFollowsAReload(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: true}
	n.publish(t, n.maps, access)
	n.checkShows(t, n.maps, access)
	reloaded := n.reload(t)
	if state := n.read(t); state.Shows(reloaded, access) {
		t.Errorf("shows %+v before the volume follows", state)
	}
	n.publish(t, reloaded, access)
	n.checkShows(t, reloaded, access)
	n.check(t, access)
}

// A map that the reloaded program no longer has disappears from the volume, also from a
// read-only one.
func TestVolumeFollowsAMapThatGoes(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: readOnly}
		n.publish(t, n.maps, access)
		reloaded := n.reload(t)[:1]
		if state := n.read(t); state.Shows(n.maps[:1], access) {
			t.Errorf("shows %+v with another map in the volume", state)
		}
		n.publish(t, reloaded, access)
		n.checkShows(t, reloaded, access)
	}
}

// TestReadersNeverMissAFile repeatedly opens a map while the volume alternates between
// two generations.
func TestReadersNeverMissAFile(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	n.publish(t, n.maps, access)
	generations := [][]Map{n.reload(t), n.maps}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for opens := 0; ; opens++ {
				select {
				case <-done:
					t.Logf("%d opens", opens)
					return
				default:
				}
				m, err := ebpf.LoadPinnedMap(filepath.Join(n.target, "counters"), nil)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				m.Close()
			}
		})
	}
	for i := range 400 {
		n.publish(t, generations[i%2], access)
	}
	close(done)
	readers.Wait()
	n.checkShows(t, n.maps, access)
}

func TestFollowingSurvivesFaults(t *testing.T) {
	access := Access{Group: new(uint32(2000))}
	for name, call := range map[string]int{
		"openat2": unix.SYS_OPENAT2, "fstatfs": unix.SYS_FSTATFS, "bpf": unix.SYS_BPF,
		"fchownat": unix.SYS_FCHOWNAT, "fchmodat": unix.SYS_FCHMODAT, "renameat": unix.SYS_RENAMEAT,
	} {
		for _, errno := range []syscall.Errno{0, syscall.EIO} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				n := newNode(t)
				n.publish(t, n.maps, access)
				reloaded := n.reload(t)
				if err := n.publishWith(t, sandbox.Fault{Syscall: call, Errno: errno}, reloaded, access); err == nil {
					t.Fatal("publish met no fault")
				}
				n.checkShows(t, n.maps, access)
				if err := n.volumes.Publish(n.volume(), reloaded, access); err != nil {
					t.Fatalf("retry: %v", err)
				}
				n.checkShows(t, reloaded, access)
				n.check(t, access)
				left, err := filepath.Glob(filepath.Join(n.target, temporary+"*"))
				if err != nil || len(left) != 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			})
		}
	}
}

// TestReadSaysWhatFailed reads a volume while the kernel doesn't open maps: a map isn't gone, or
// something else, for that reason.
func TestReadSaysWhatFailed(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{})
	err := sandbox.Run(t, "read", nil, sandbox.Fault{Syscall: unix.SYS_BPF, Errno: unix.EIO}, n.root, n.target)
	if err == nil || !strings.Contains(err.Error(), "open map") || !strings.Contains(err.Error(), unix.EIO.Error()) {
		t.Errorf("read without bpf(2): %v", err)
	}
}

func TestReady(t *testing.T) {
	n := newNode(t)
	if err := n.volumes.Ready(); err != nil {
		t.Error(err)
	}
	if err := NewVolumes(filepath.Join(n.root, "none"), "").Ready(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ready without the kubelet's directory: %v", err)
	}
}

func TestRead(t *testing.T) {
	n := newNode(t)
	if state := n.read(t); state.Mounted || state.Complete(nil, Access{}) || state.Shows(nil, Access{}) {
		t.Errorf("no volume shows %+v", state)
	}
	if err := os.Mkdir(n.target, 0o750); err != nil {
		t.Fatal(err)
	}
	if state := n.read(t); state.Mounted {
		t.Errorf("a directory shows %+v", state)
	}
	n.publish(t, n.maps, Access{})
	state := n.read(t)
	pins := state.Pins
	if !state.Mounted || len(pins) != 2 || pins[0].Name != "config" || pins[1].Name != "counters" || pins[0].Bytes == 0 {
		t.Fatalf("shows %+v", state)
	}
	root := filepath.Dir(filepath.Dir(n.maps[0].Path))
	loaded, err := Loaded(root)
	if err != nil || len(loaded) != 2 || !loaded[pins[0].ID] || !loaded[pins[1].ID] {
		t.Errorf("Loaded = %v, %v; want %+v", loaded, err, pins)
	}
	if err := os.RemoveAll(filepath.Dir(n.maps[0].Path)); err != nil {
		t.Fatal(err)
	}
	if loaded, err := Loaded(root); err != nil || len(loaded) != 0 {
		t.Errorf("Loaded = %v, %v of nothing", loaded, err)
	}
	if loaded, err := Loaded(filepath.Join(root, "none")); err != nil || len(loaded) != 0 {
		t.Errorf("Loaded = %v, %v before the daemon ever ran", loaded, err)
	}
}

// TestPublishReplacesAProgram replaces a map in the volume with a program, as root in the
// pod can do.
func TestPublishReplacesAProgram(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	n.publish(t, n.maps, access)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	planted := filepath.Join(n.target, "config")
	if err := errors.Join(os.Remove(planted), program.Pin(planted), os.Chmod(planted, access.PinMode()), os.Chown(planted, 0, int(*access.Group))); err != nil {
		t.Fatal(err)
	}
	if state := n.read(t); state.Shows(n.maps, access) {
		t.Errorf("a program passes for a map: %+v", state)
	}
	n.publish(t, n.maps, access)
	n.checkShows(t, n.maps, access)
}

// TestPublishReplacesALink replaces a map in the volume with a BPF link, which the kernel opens
// only for writing.
func TestPublishReplacesALink(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	n.publish(t, n.maps, access)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: program})
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	planted := filepath.Join(n.target, "config")
	if err := errors.Join(os.Remove(planted), attached.Pin(planted), os.Chmod(planted, access.PinMode()), os.Chown(planted, 0, int(*access.Group))); err != nil {
		t.Fatal(err)
	}
	if state := n.read(t); state.Shows(n.maps, access) || len(state.Pins) != 2 {
		t.Errorf("a link passes for a map: %+v", state)
	}
	n.publish(t, n.maps, access)
	n.checkShows(t, n.maps, access)
}

// TestCrowdedVolume fills a volume with links and directories, which costs a pod nearly nothing.
func TestCrowdedVolume(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	n.publish(t, n.maps, access)
	allocated := func() uint64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.TotalAlloc
	}
	for i := range 3 * maxFiles {
		name := filepath.Join(n.target, fmt.Sprint("crowd", i))
		if err := errors.Join(os.Link(filepath.Join(n.target, "config"), name), os.Mkdir(name+"d", 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(n.target, temporary+"config"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := allocated()
	state := n.read(t)
	if most := uint64(32 << 20); allocated()-before > most {
		t.Errorf("reading allocates %d bytes, more than %d", allocated()-before, most)
	}
	if len(state.Pins) > maxFiles || !state.Crowded || state.Shows(n.maps, access) {
		t.Errorf("%d pins, crowded %v", len(state.Pins), state.Crowded)
	}
	n.publish(t, n.maps, access)
	n.checkShows(t, n.maps, access)
	left := slices.DeleteFunc(fileNames(t, n.target), func(name string) bool { return !isPinName(name) })
	if want := []string{"config", "counters"}; !slices.Equal(left, want) {
		t.Errorf("%d files are left, not %q", len(left), want)
	}
}

func TestList(t *testing.T) {
	n := newNode(t)
	volume := Volume{ID: `csi 1\2`, Target: n.target}
	if err := n.volumes.Publish(volume, n.maps, Access{}); err != nil {
		t.Fatal(err)
	}
	if volumes, err := n.volumes.List(); err != nil || !slices.Equal(volumes, []Volume{volume}) {
		t.Errorf("List = %+v, %v", volumes, err)
	}
	// For a container's volumeMount with a subPath, the kubelet mounts one of the volume's files.
	subPath := filepath.Join(n.root, "uid/volume-subpaths/maps/reader/0")
	if err := errors.Join(os.MkdirAll(filepath.Dir(subPath), 0o755), os.WriteFile(subPath, nil, 0o600),
		unix.Mount(filepath.Join(n.target, "counters"), subPath, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	volumes, err := n.volumes.List()
	if err := errors.Join(err, unix.Unmount(subPath, unix.MNT_DETACH)); err != nil || !slices.Equal(volumes, []Volume{volume}) {
		t.Errorf("List = %+v, %v with a subPath", volumes, err)
	}
	if volumes, err := NewVolumes(filepath.Join(n.root, "uid/other"), "").List(); err != nil || len(volumes) != 0 {
		t.Errorf("List = %+v, %v elsewhere", volumes, err)
	}
	n.unpublish(t)
	if volumes, err := n.volumes.List(); err != nil || len(volumes) != 0 {
		t.Errorf("List = %+v, %v after the end", volumes, err)
	}
}

// Other software can mount file systems without a source, and below paths with spaces. Neither hides a volume.
func TestListBesideUnusualMounts(t *testing.T) {
	n := newNode(t)
	n.publish(t, n.maps, Access{})
	spaced := filepath.Join(n.root, "with a space")
	if err := os.Mkdir(spaced, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", spaced, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(spaced, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if volumes, err := n.volumes.List(); err != nil || !slices.Equal(volumes, []Volume{n.volume()}) {
		t.Errorf("%v, %v", volumes, err)
	}
}
