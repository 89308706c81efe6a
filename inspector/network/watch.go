// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package network

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Watch calls changed when interfaces, queueing disciplines, or filters in the network
// namespace of the process can have changed. It returns when the context ends.
func Watch(ctx context.Context, changed func()) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
	if err != nil {
		return fmt.Errorf("subscribe to changes of the network: %w", err)
	}
	defer socket.Close()
	stop := context.AfterFunc(ctx, socket.Close)
	defer stop()
	for {
		_, _, err := socket.Receive()
		if ctx.Err() != nil {
			return nil // it was closed on purpose
		}
		changed() // even after an overflow of the socket's buffer
		if err != nil && !isOverflow(err) {
			return fmt.Errorf("receive changes of the network: %w", err)
		}
	}
}

func isOverflow(err error) bool { return errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) }
