// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package terminal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// echoKeys prints each key in a line, until q is pressed.
func echoKeys() {
	keys := make(chan byte)
	to, restore, ok := Keys(os.Stdin, os.Stdout, func(key byte) { keys <- key })
	if !ok {
		os.Exit(1)
	}
	fmt.Fprintln(to, "ready")
	for key := range keys {
		fmt.Fprintf(to, "key %q\n", key)
		if key == 'q' {
			restore()
			os.Exit(0)
		}
	}
}

// Keys are read without Enter, Ctrl-C is one of them, and lines begin in the first column. In the end, the terminal is as before.
func TestKeys(t *testing.T) {
	terminal, user := pseudoTerminal(t)
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	command := session(ctx, "keys", terminal)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	buffer := make([]byte, 256)
	read := func(until string) {
		t.Helper()
		if err := user.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(shown.String(), until) {
			n, err := user.Read(buffer)
			if shown.Write(buffer[:n]); err != nil {
				t.Fatalf("%v after %q", err, shown.String())
			}
		}
	}
	read("ready\r\n")
	for _, key := range []string{"r", "\x03", "q"} {
		if _, err := user.WriteString(key); err != nil {
			t.Fatal(err)
		}
		read(fmt.Sprintf("key %q\r\n", key[0]))
	}
	if err := command.Wait(); err != nil {
		t.Errorf("%v, %v", err, context.Cause(ctx))
	}
	after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	if *after != *before {
		t.Errorf("the terminal was left as %+v, and was %+v", after, before)
	}
}

func TestNoKeys(t *testing.T) {
	var out bytes.Buffer
	if to, _, ok := Keys(strings.NewReader("q"), &out, nil); ok || to != &out {
		t.Error("keys of what isn't a terminal")
	}
}
