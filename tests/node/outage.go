// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"context"
	"errors"
	"net"
	"time"
)

// outagePace is the time between two attempts to connect, and the time limit of each.
const outagePace = 100 * time.Millisecond

// Outage connects to an address again and again, until EndOutage is called. It returns the longest time without a
// connection.
func Outage(ctx context.Context, address string) (longest time.Duration, err error) {
	control, err := listenForEnd(ctx, "outage-"+address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, control.Close()) }()
	dialer := net.Dialer{Timeout: outagePace}
	for last := time.Now(); ; {
		if c, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			_ = c.Close()
			longest, last = max(longest, time.Since(last)), time.Now()
		}
		select {
		case <-control.called:
			return max(longest, time.Since(last)), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(outagePace):
		}
	}
}

// EndOutage ends an Outage.
func EndOutage(ctx context.Context, address string) error { return end(ctx, "outage-"+address) }
