// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/csi/internal/sandbox"
)

// reload pins new maps with the same names, like the daemon during a reload.
func (n node) reload(tb testing.TB) []Map {
	tb.Helper()
	directory := filepath.Join(filepath.Dir(filepath.Dir(n.maps[0].Path)), "8")
	var names []string
	var reloaded []Map
	for _, m := range n.maps {
		names = append(names, m.Name)
		reloaded = append(reloaded, Map{Name: m.Name, Path: filepath.Join(directory, m.Name)})
	}
	sandbox.PinMaps(tb, directory, names...)
	return reloaded
}

func (n node) checkShows(tb testing.TB, maps []Map, access Access) {
	tb.Helper()
	if shows, err := n.volumes.Shows(n.target, maps, access); err != nil || !shows {
		tb.Errorf("Shows = %v, %v", shows, err)
	}
}

func TestVolumeFollowsAReload(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: true}
	if err := n.volumes.Publish(n.volume(), n.maps, access); err != nil {
		t.Fatal(err)
	}
	n.checkShows(t, n.maps, access)
	reloaded := n.reload(t)
	if shows, err := n.volumes.Shows(n.target, reloaded, access); err != nil || shows {
		t.Errorf("Shows = %v, %v before the volume follows", shows, err)
	}
	if err := n.volumes.Publish(n.volume(), reloaded, access); err != nil {
		t.Fatal(err)
	}
	n.checkShows(t, reloaded, access)
	n.check(t, access)
}

// TestReadersNeverMissAFile repeatedly opens a map while the volume alternates between
// two generations.
// A map that the reloaded program no longer has disappears from the volume, also from a
// read-only one.
func TestVolumeFollowsAMapThatGoes(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		n, access := newNode(t), Access{Group: new(uint32(2000)), ReadOnly: readOnly}
		if err := n.volumes.Publish(n.volume(), n.maps, access); err != nil {
			t.Fatal(err)
		}
		reloaded := n.reload(t)[:1]
		if shows, err := n.volumes.Shows(n.target, n.maps[:1], access); err != nil || shows {
			t.Errorf("Shows = %v, %v with another map in the volume", shows, err)
		}
		if err := n.volumes.Publish(n.volume(), reloaded, access); err != nil {
			t.Fatal(err)
		}
		n.checkShows(t, reloaded, access)
		if pins, err := n.volumes.Pins(n.target); err != nil || len(pins) != 1 || pins[0].Name != reloaded[0].Name {
			t.Errorf("pins %v, %v", pins, err)
		}
	}
}

func TestReadersNeverMissAFile(t *testing.T) {
	n, access := newNode(t), Access{Group: new(uint32(2000))}
	if err := n.volumes.Publish(n.volume(), n.maps, access); err != nil {
		t.Fatal(err)
	}
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
		if err := n.volumes.Publish(n.volume(), generations[i%2], access); err != nil {
			t.Fatal(err)
		}
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
				if err := n.volumes.Publish(n.volume(), n.maps, access); err != nil {
					t.Fatal(err)
				}
				reloaded := n.reload(t)
				argument, err := json.Marshal(publication{n.root, n.target, reloaded, access})
				if err != nil {
					t.Fatal(err)
				}
				if err := sandbox.Run(t, "publish", nil, sandbox.Fault{Syscall: call, Errno: errno}, string(argument)); err == nil {
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

func TestPins(t *testing.T) {
	n := newNode(t)
	if _, err := n.volumes.Pins(n.target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Pins of no volume: %v", err)
	}
	if err := os.Mkdir(n.target, 0o750); err != nil {
		t.Fatal(err)
	}
	if _, err := n.volumes.Pins(n.target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Pins of a directory: %v", err)
	}
	if err := n.volumes.Publish(n.volume(), n.maps, Access{}); err != nil {
		t.Fatal(err)
	}
	pins, err := n.volumes.Pins(n.target)
	if err != nil || len(pins) != 2 || pins[0].Name != "config" || pins[1].Name != "counters" || pins[0].Bytes == 0 {
		t.Fatalf("Pins = %+v, %v", pins, err)
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

func TestList(t *testing.T) {
	n := newNode(t)
	volume := Volume{ID: `csi 1\2`, Target: n.target}
	if err := n.volumes.Publish(volume, n.maps, Access{}); err != nil {
		t.Fatal(err)
	}
	if volumes, err := n.volumes.List(); err != nil || !slices.Equal(volumes, []Volume{volume}) {
		t.Errorf("List = %+v, %v", volumes, err)
	}
	if volumes, err := NewVolumes(filepath.Join(n.root, "uid/other"), "").List(); err != nil || len(volumes) != 0 {
		t.Errorf("List = %+v, %v elsewhere", volumes, err)
	}
	if err := n.volumes.Unpublish(n.target); err != nil {
		t.Fatal(err)
	}
	if volumes, err := n.volumes.List(); err != nil || len(volumes) != 0 {
		t.Errorf("List = %+v, %v after the end", volumes, err)
	}
}

func TestParseMount(t *testing.T) {
	for line, want := range map[string]Volume{
		`36 35 0:43 / /pods/a\040b rw,nosuid shared:7 - bpf csi.bpfman.io/csi-1 rw`: {ID: "csi-1", Target: "/pods/a b"},
		`36 35 0:43 / /pods/a rw - bpf csi.bpfman.io/csi-1 rw`:                      {ID: "csi-1", Target: "/pods/a"},
		`36 35 0:43 / /pods/a rw - bpf bpffs rw`:                                    {},
		`36 35 0:43 / /pods/a rw - tmpfs csi.bpfman.io/csi-1 rw`:                    {},
		`36 35 0:43 / /pods/a rw -`:                                                 {},
		``:                                                                          {},
	} {
		if volume, ok := parseMount(line); ok != (want != Volume{}) || ok && volume != want {
			t.Errorf("parseMount(%q) = %+v, %v", line, volume, ok)
		}
	}
	if got := unescape(strings.Repeat(`\`, 3) + `12\134`); got != `\\\12\` {
		t.Errorf("unescape: %q", got)
	}
}
