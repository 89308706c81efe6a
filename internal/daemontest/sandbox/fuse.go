// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
)

// FUSE's protocol: see include/uapi/linux/fuse.h. A request begins with its length, operation, and number.
const (
	fuseInit       = 26
	fuseHeader     = 16
	fuseInitAnswer = 64
	fuseMajor      = 7
	fuseMinor      = 31
	fuseMaxWrite   = 4096
)

// MountSilentFUSE mounts a FUSE file system whose server accepts requests, and never answers one. Whoever makes a request
// waits until the test ends, even if it is killed. Asked receives the number of each request's operation.
func MountSilentFUSE(tb testing.TB, target string) (asked <-chan uint32) {
	tb.Helper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		prerequisite.Missing(tb, "open /dev/fuse: "+err.Error(), prerequisite.Root)
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		tb.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", server)
	if err := unix.Mount("silent", target, "fuse", 0, options); err != nil {
		tb.Fatalf("mount a FUSE file system: %v", err)
	}
	requests := make(chan uint32, 64)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 1<<20)
		for {
			n, err := unix.Read(server, buffer)
			if err != nil || n < fuseHeader {
				return // the connection was aborted
			}
			operation := binary.NativeEndian.Uint32(buffer[4:])
			if operation == fuseInit {
				_, _ = unix.Write(server, initAnswer(binary.NativeEndian.Uint64(buffer[8:])))
				continue
			}
			select {
			case requests <- operation:
			default:
			}
		}
	}()
	tb.Cleanup(func() {
		_ = unix.Unmount(target, unix.MNT_FORCE) // aborts the connection: those that wait get an error
		_ = unix.Unmount(target, unix.MNT_DETACH)
		<-ended
		_ = unix.Close(server)
	})
	return requests
}

// initAnswer is the answer to the first request, with a number.
func initAnswer(request uint64) []byte {
	answer := make([]byte, fuseHeader+fuseInitAnswer)
	order := binary.NativeEndian
	order.PutUint32(answer, fuseHeader+fuseInitAnswer)
	order.PutUint64(answer[8:], request)
	body := answer[fuseHeader:]
	order.PutUint32(body, fuseMajor)
	order.PutUint32(body[4:], fuseMinor)
	order.PutUint32(body[8:], fuseMaxWrite)  // read ahead
	order.PutUint32(body[20:], fuseMaxWrite) // after flags, and limits of the background
	return answer
}
