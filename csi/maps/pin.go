// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/globals"
)

// Map is a map of a program that the daemon has loaded.
type Map struct {
	Name string
	// Path is the path of the daemon's pin. It is empty for a section of global variables,
	// which the daemon doesn't pin.
	Path string
	// ID is the kernel's id of the map.
	ID ebpf.MapID
}

func (m Map) open() (*ebpf.Map, error) {
	var opened *ebpf.Map
	var err error
	if m.Path != "" {
		opened, err = ebpf.LoadPinnedMap(m.Path, nil)
	} else {
		opened, err = ebpf.NewMapFromID(m.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", cmp.Or(m.Path, m.Name), err)
	}
	return opened, nil
}

// Access describes who can open the pins of a volume, and how.
type Access struct {
	// Group is the group that can access the volume. If it is nil, the volume belongs to
	// root.
	Group *uint32
	// ReadOnly prevents the pod from opening maps for writing. The mode of the pins
	// prevents processes without capabilities, and the read-only file system also
	// prevents root. The kernel ignores a read-only mount on BPF_OBJ_GET.
	ReadOnly bool
}

// PinMode returns the mode of pins.
func (a Access) PinMode() os.FileMode {
	switch {
	case a.Group != nil && a.ReadOnly:
		return 0o440
	case a.Group != nil:
		return 0o660
	case a.ReadOnly:
		return 0o400
	default:
		return 0o600
	}
}

// directoryMode lets the processes with access reach the pins. Only root can change
// them.
func (a Access) directoryMode() os.FileMode {
	if a.Group != nil {
		return 0o750
	}
	return 0o755
}

func (a Access) gid() uint32 {
	if a.Group != nil {
		return *a.Group
	}
	return 0
}

// apply sets the group and mode of file. root stays its owner.
func (a Access) apply(file *os.File, mode os.FileMode) error {
	return apply(file, 0, int(a.gid()), mode)
}

// apply sets the owner, group, and mode of file, which can be opened with O_PATH.
func apply(file *os.File, uid, gid int, mode os.FileMode) error {
	if err := unix.Fchownat(int(file.Fd()), "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("change the owner of %s to user %d and group %d: %w", file.Name(), uid, gid, err)
	}
	if err := os.Chmod(procPath(file), mode); err != nil {
		return fmt.Errorf("set mode %o of %s: %w", mode, file.Name(), errors.Unwrap(err))
	}
	return nil
}

// temporary is the prefix of the name under which a map is pinned before it replaces
// another map. The name of a map can't have it, because it is the name of a C variable.
const temporary = "~"

// pin pins the map in directory, which is on a bpffs, under its file's name and with its
// access. If a pin with that name refers to another map, such as an earlier one of the
// program, it is replaced atomically: a reader always finds the old or the new map.
func pin(directory *os.File, m Map, access Access) error {
	original, err := m.open()
	if err != nil {
		return err
	}
	defer original.Close()
	// A map that has a pin path moves its pin. A clone has none.
	clone, err := original.Clone()
	if err != nil {
		return fmt.Errorf("clone map %s: %w", m.Name, err)
	}
	defer clone.Close()
	name := globals.File(m.Name)
	if err := clone.Pin(filepath.Join(procPath(directory), temporary+name)); err != nil {
		return fmt.Errorf("pin map %s in %s: %w", m.Name, directory.Name(), err)
	}
	file, err := openPin(directory, temporary+name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := access.apply(file, access.PinMode()); err != nil {
		return err
	}
	at := int(directory.Fd())
	if err := unix.Renameat(at, temporary+name, at, name); err != nil {
		return &os.PathError{Op: "rename to", Path: filepath.Join(directory.Name(), name), Err: err}
	}
	return nil
}

// maxRemoved is the maximum number of files that removePins looks at. The next call looks at
// others, because those that it removed are gone.
const maxRemoved = 16 * maxFiles

// removePins removes the files in a volume that aren't the pins of these maps.
func removePins(directory *os.File, maps []Map) error {
	entries, err := openDirectory(directory, ".", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer entries.Close()
	for range maxRemoved / maxFiles {
		some, err := entriesOf(entries, maxFiles)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, entry := range some {
			name := entry.Name()
			wanted := !isPinName(name) || slices.ContainsFunc(maps, func(m Map) bool { return globals.File(m.Name) == name })
			if wanted && !entry.IsDir() && !strings.HasPrefix(name, temporary) {
				continue
			}
			if err := remove(directory, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes a file, or a directory if it is empty. Root in the pod can have created it.
func remove(directory *os.File, entry os.DirEntry) error {
	flags := 0
	if entry.IsDir() {
		flags = unix.AT_REMOVEDIR
	}
	err := unix.Unlinkat(int(directory.Fd()), entry.Name(), flags)
	for _, expected := range []error{os.ErrNotExist, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR} { // the pod can change it again
		if errors.Is(err, expected) {
			return nil
		}
	}
	if err != nil {
		return &os.PathError{Op: "unlink", Path: filepath.Join(directory.Name(), entry.Name()), Err: err}
	}
	return nil
}

// errNoPin is in the error chain if a file isn't a pin.
var errNoPin = errors.New("not a pin")

// openPin opens a pin as a file. Root in the pod can have replaced it with anything, so
// openPin follows no links, and accepts only pins.
func openPin(directory *os.File, name string) (*os.File, error) {
	path := filepath.Join(directory.Name(), name)
	fd, err := unix.Openat(int(directory.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, errNoPin)
	}
	return file, nil
}

// Pinned returns the maps that are pinned in directory, which must be below root.
func Pinned(root, directory string) ([]Map, error) {
	relative, err := Below(root, directory)
	if err != nil {
		return nil, err
	}
	top, err := openRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's map pins: %w", err)
	}
	defer top.Close()
	opened, err := openDirectory(top, relative, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open map pins: %w", err)
	}
	defer opened.Close()
	pins, err := pinsIn(opened)
	if err != nil {
		return nil, err
	}
	maps := make([]Map, 0, len(pins))
	for _, pin := range pins {
		maps = append(maps, Map{Name: pin.Name, Path: filepath.Join(directory, pin.Name), ID: pin.ID})
	}
	return maps, nil
}

// Loaded returns the ids of the maps of the loaded programs: those that the daemon has
// pinned below root, and those that its programs, which are pinned beside root, use.
func Loaded(root string) (map[ebpf.MapID]bool, error) {
	top, err := os.Open(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // nothing was loaded since the node started
	}
	if err != nil {
		return nil, fmt.Errorf("open the daemon's map pins: %w", err)
	}
	defer top.Close()
	programs, err := top.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the daemon's map pins: %w", err)
	}
	ids := map[ebpf.MapID]bool{}
	for _, program := range programs {
		directory, err := openDirectory(top, program, unix.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrPath) { // unloaded in the meantime, or not a directory
			continue
		}
		if err != nil {
			return nil, err
		}
		pins, err := pinsIn(directory)
		directory.Close()
		if err != nil {
			return nil, err
		}
		for _, pin := range pins {
			ids[pin.ID] = true
		}
	}
	running, err := loadedPrograms(filepath.Dir(root))
	if err != nil {
		return nil, err
	}
	for _, program := range running {
		used, err := usedBy(program)
		if err != nil {
			return nil, err
		}
		for _, id := range used {
			ids[id] = true
		}
	}
	return ids, nil
}
