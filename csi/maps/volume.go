// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

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

// Read reads what target shows.
func (v *Volumes) Read(target string) (State, error) {
	directory, err := v.open(target)
	if errors.Is(err, os.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	defer directory.Close()
	return read(directory)
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

// Protect makes the volume on target read-only.
func (v *Volumes) Protect(target string) error {
	directory, err := v.open(target)
	if err != nil {
		return err
	}
	defer directory.Close()
	return setReadOnly(directory, true)
}

// refill replaces the pins in a mounted volume that don't show the maps, and removes the
// others. A read-only volume is writable in the meantime.
func refill(directory *os.File, maps []Map, access Access) (err error) {
	state, err := read(directory)
	if err != nil {
		return err
	}
	if err := setReadOnly(directory, false); err != nil {
		return err
	}
	if access.ReadOnly {
		defer func() { err = errors.Join(err, setReadOnly(directory, true)) }()
	}
	if err := removePins(directory, maps); err != nil {
		return err
	}
	return fill(directory, slices.DeleteFunc(slices.Clone(maps), func(m Map) bool { return state.shows(m, access) }), access)
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
