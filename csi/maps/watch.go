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
	"time"

	"golang.org/x/sys/unix"
)

// watchRetry is the interval at which to look for the daemon's directory until the
// daemon runs for the first time.
const watchRetry = time.Second

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
		_, err := unix.InotifyAddWatch(fd, root, unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
		switch {
		case errors.Is(err, os.ErrNotExist):
			select {
			case <-ctx.Done():
			case <-time.After(watchRetry):
			}
			continue
		case err != nil:
			return fmt.Errorf("watch %s: %w", root, err)
		}
		if err := readEvents(events, changed); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch %s: %w", root, err)
		}
	}
	return nil
}

// readEvents returns when the watch ends because its directory was removed.
func readEvents(events *os.File, changed func()) error {
	buffer := make([]byte, 16<<10)
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
			if event.Mask&unix.IN_IGNORED != 0 {
				changed()
				return nil
			}
			rest = rest[unix.SizeofInotifyEvent+int(event.Len):]
		}
	}
}
