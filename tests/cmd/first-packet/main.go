// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command first-packet is the process of the containers whose start tests/firstpacket observes. Its first argument says
// what it does first: pause does nothing, send sends packets, and call calls main.first.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// port is the destination of the packets, which examples/bytecode/first_packets.bpf.c counts.
const port = 4242

func main() {
	var err error
	switch os.Args[1] {
	case "send":
		err = send(number(2), number(3))
	case "call":
		first()
	case "pause":
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
		<-ended
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "first-packet:", err)
		os.Exit(1)
	}
}

func number(argument int) uint32 {
	n, _ := strconv.ParseUint(os.Args[argument], 10, 32) // the test sets it
	return uint32(n)
}

// send sends packets with count numbers from first on. A broadcast needs no answer to be sent.
func send(first, count uint32) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_BROADCAST, 1); err != nil {
		return fmt.Errorf("permit broadcasts: %w", err)
	}
	to := &syscall.SockaddrInet4{Port: port, Addr: [4]byte{255, 255, 255, 255}}
	for n := range count {
		if err := syscall.Sendto(fd, binary.BigEndian.AppendUint32(nil, first+n), 0, to); err != nil {
			return fmt.Errorf("send packet %d: %w", first+n, err)
		}
	}
	return nil
}

// first must not be inlined, so that a uprobe finds it.
//
//go:noinline
func first() {}
