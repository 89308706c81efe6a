// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Volume is a volume of a pod.
type Volume struct {
	// ID is the id that the kubelet uses.
	ID string
	// Target is the path from which the kubelet mounts the volume into the pod's
	// containers.
	Target string
}

// mounting is the maximum number of volumes that are mounted or unmounted at the same
// time. The kernel has one lock for all mounts, so more would only block more threads.
const mounting = 2

// Volumes publishes volumes below a directory.
type Volumes struct {
	root, label string
	turns       chan struct{}
}

// NewVolumes returns the volumes below root, which is the kubelet's directory of pods.
// New volumes get the SELinux context label, unless it is empty.
func NewVolumes(root, label string) *Volumes {
	return &Volumes{root: root, label: label, turns: make(chan struct{}, mounting)}
}

// turn waits until the caller can mount or unmount.
func (v *Volumes) turn() (done func()) {
	v.turns <- struct{}{}
	return func() { <-v.turns }
}

// Ready reports whether volumes can be published.
func (v *Volumes) Ready() error {
	root, err := openRoot(v.root)
	if err != nil {
		return fmt.Errorf("open the kubelet's directory of pods: %w", err)
	}
	return root.Close()
}

// Complete reports whether the volume on target has maps with these names, or at least
// one map if names is empty, with this access. It doesn't compare the maps themselves.
func (v *Volumes) Complete(target string, names []string, access Access) (bool, error) {
	directory, err := v.open(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer directory.Close()
	found, err := pinNames(directory)
	if err != nil {
		return false, fmt.Errorf("volume %s: %w", target, err)
	}
	if len(names) == 0 {
		names = found
	}
	for _, name := range names {
		if !slices.Contains(found, name) {
			return false, nil
		}
		pin, err := openPin(directory, name)
		if errors.Is(err, errNoPin) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		matches, err := access.matches(pin)
		pin.Close()
		if err != nil || !matches {
			return false, err
		}
	}
	return len(names) > 0, nil
}

// Shows reports whether the volume on target shows exactly these maps, with exactly this
// access.
func (v *Volumes) Shows(target string, maps []Map, access Access) (bool, error) {
	directory, err := v.open(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer directory.Close()
	if readOnly, err := isReadOnly(directory); err != nil || readOnly != access.ReadOnly {
		return false, err
	}
	if found, err := pinNames(directory); err != nil || len(found) != len(maps) {
		return false, err
	}
	for _, m := range maps {
		original, err := load(m.Path, m.Path)
		if err != nil {
			return false, err
		}
		if same, err := shows(directory, m.Name, original.ID, access); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// Pins returns the pins in the volume on target. If there is no volume, the error has
// [os.ErrNotExist] in its chain.
func (v *Volumes) Pins(target string) ([]Pin, error) {
	directory, err := v.open(target)
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	return pinsIn(directory)
}

// open opens the root of the volume on target.
func (v *Volumes) open(target string) (*os.File, error) {
	parent, name, err := v.parent(target)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	directory, err := openDirectory(parent, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	mounted, err := isBPFFS(directory)
	if err == nil && !mounted {
		err = &os.PathError{Op: "find volume", Path: target, Err: os.ErrNotExist}
	}
	if err != nil {
		directory.Close()
		return nil, err
	}
	return directory, nil
}

// Publish mounts a bpffs with the maps on the volume's target, or updates the one that
// is already mounted. A new file system is filled before it is mounted, so the target
// always shows the whole volume or nothing.
func (v *Volumes) Publish(volume Volume, maps []Map, access Access) (err error) {
	defer v.turn()()
	parent, name, err := v.parent(volume.Target)
	if err != nil {
		return err
	}
	defer parent.Close()

	err = unix.Mkdirat(int(parent.Fd()), name, 0o750)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return &os.PathError{Op: "mkdir", Path: volume.Target, Err: err}
	}
	if err == nil {
		defer func() {
			if err != nil {
				err = errors.Join(err, removeDirectory(parent, name))
			}
		}()
	}
	directory, err := openDirectory(parent, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer directory.Close()
	mounted, err := isBPFFS(directory)
	if err != nil {
		return err
	}
	if mounted {
		return refill(directory, maps, access)
	}
	root, err := newBPFFS(volume.ID, v.label, access)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := fill(root, maps, access); err != nil {
		return err
	}
	if access.ReadOnly {
		if err := setReadOnly(root, true); err != nil {
			return err
		}
	}
	return attach(root, directory)
}

// refill updates the maps in a mounted volume, and removes other pins. A read-only volume is writable in the
// meantime.
func refill(directory *os.File, maps []Map, access Access) (err error) {
	if err := setReadOnly(directory, false); err != nil {
		return err
	}
	if access.ReadOnly {
		defer func() { err = errors.Join(err, setReadOnly(directory, true)) }()
	}
	if err := removePins(directory, func(name string) bool { return strings.HasPrefix(name, temporary) }); err != nil {
		return err
	}
	if err := fill(directory, maps, access); err != nil {
		return err
	}
	return removePins(directory, func(name string) bool {
		return isPinName(name) && !slices.ContainsFunc(maps, func(m Map) bool { return m.Name == name })
	})
}

// Unpublish unmounts every bpffs on target, and removes the directory. It isn't an error
// if target doesn't exist.
func (v *Volumes) Unpublish(target string) error {
	defer v.turn()()
	parent, name, err := v.parent(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	for mounted := true; mounted; {
		if mounted, err = detachTop(parent, name); err != nil {
			return err
		}
	}
	return removeDirectory(parent, name)
}

// detachTop unmounts the topmost mount of the directory if that is a bpffs, and reports
// whether it was.
func detachTop(parent *os.File, name string) (bool, error) {
	directory, err := openDirectory(parent, name, unix.O_PATH)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer directory.Close()
	mounted, err := isBPFFS(directory)
	if err != nil || !mounted {
		return false, err
	}
	return true, detach(directory)
}

// parent opens the directory that contains target's last component.
func (v *Volumes) parent(target string) (*os.File, string, error) {
	relative, err := Below(v.root, target)
	if err != nil {
		return nil, "", err
	}
	root, err := openRoot(v.root)
	if err != nil {
		return nil, "", fmt.Errorf("open the kubelet's directory of pods: %w", err)
	}
	defer root.Close()
	parent, err := openDirectory(root, filepath.Dir(relative), unix.O_PATH)
	if err != nil {
		return nil, "", err
	}
	return parent, filepath.Base(relative), nil
}

func fill(directory *os.File, maps []Map, access Access) error {
	for _, m := range maps {
		if err := pin(directory, m, access); err != nil {
			return err
		}
	}
	return nil
}

func removeDirectory(parent *os.File, name string) error {
	err := unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &os.PathError{Op: "rmdir", Path: filepath.Join(parent.Name(), name), Err: err}
	}
	return nil
}
