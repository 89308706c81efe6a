// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package maps

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// watchRetry is the maximum interval at which to look for the daemon's directory until it exists.
var watchRetry = time.Second

// Watch calls changed when directories for maps appear or disappear below root, which
// means that programs can have been loaded or unloaded. It returns when the context
// ends. The kernel reports these changes no matter through which mount of the file
// system they are made.
func Watch(ctx context.Context, root string, changed func()) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the daemon's map pins: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	for ctx.Err() == nil {
		watch, err := unix.InotifyAddWatch(fd, root, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
		switch {
		case errors.Is(err, os.ErrNotExist):
			awaitDirectory(fd, events, root)
			continue
		case err != nil:
			return fmt.Errorf("watch %s: %w", root, err)
		}
		if err := readEvents(events, watch, changed); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch %s: %w", root, err)
		}
	}
	return nil
}

// awaitDirectory returns when a directory can have appeared, or after watchRetry. A daemon can create it with the first
// program, whose maps somebody can ask for immediately.
func awaitDirectory(fd int, events *os.File, directory string) {
	if parent, err := unix.InotifyAddWatch(fd, filepath.Dir(directory), unix.IN_CREATE|unix.IN_ONLYDIR); err == nil {
		defer func() { _, _ = unix.InotifyRmWatch(fd, uint32(parent)) }() //nolint:gosec // the kernel returns it
	}
	_ = events.SetReadDeadline(time.Now().Add(watchRetry))
	defer func() { _ = events.SetReadDeadline(time.Time{}) }()
	// What the events say is of no use. The first one is about the end of the last watch.
	for _, err := os.Lstat(directory); err != nil; _, err = os.Lstat(directory) {
		if _, err := events.Read(make([]byte, eventsSize)); err != nil {
			return
		}
	}
}

// eventsSize is the size of a buffer for events, which is enough for any one.
const eventsSize = 16 << 10

// readEvents returns when the watch ends because its directory was removed.
func readEvents(events *os.File, watch int, changed func()) error {
	buffer := make([]byte, eventsSize)
	for {
		changed()
		n, err := events.Read(buffer)
		if err != nil {
			return err
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			var event unix.InotifyEvent
			if err := binary.Read(bytes.NewReader(rest), binary.NativeEndian, &event); err != nil {
				return err
			}
			if event.Mask&unix.IN_IGNORED != 0 && int(event.Wd) == watch {
				changed()
				return nil
			}
			rest = rest[unix.SizeofInotifyEvent+int(event.Len):]
		}
	}
}
