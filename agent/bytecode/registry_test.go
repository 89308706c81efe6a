// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSilentRegistry(t *testing.T) {
	answering, refusing := listen(t), listen(t)
	if err := refusing.Close(); err != nil {
		t.Fatal(err)
	}
	silent := silence(t)

	var registries Registries
	for image, want := range map[string]string{
		answering.Addr().String() + "/x:latest": "",
		refusing.Addr().String() + "/x:latest":  "",
		"not a reference":                       "",
		silent + "/x:latest":                    "the registry at " + silent + " doesn't answer",
	} {
		if err := registries.Silent(t.Context(), image); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", image, err, want)
		}
	}
	for address, want := range map[string]bool{answering.Addr().String(): false, silent: true} {
		if is, known := registries.recall(address); !known || is != want {
			t.Errorf("%s is remembered as silent: %v, known: %v", address, is, known)
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// silence returns an address at which the kernel drops packets, because the
// queue of connections is full.
func silence(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port} //nolint:errcheck,forcetypeassert // the socket has this type
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return address.String()
}
