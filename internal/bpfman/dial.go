// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bpfman connects to the node's bpfman daemon.
package bpfman

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

const (
	// MaxReconnectDelay is the maximum delay before a connection notices that the daemon
	// is back.
	MaxReconnectDelay = time.Second
	// connectTimeout bounds one attempt to connect.
	connectTimeout = 5 * time.Second
)

// Dial returns a connection to the daemon's socket. It connects at the first call,
// and reconnects within about a second after the daemon has restarted.
func Dial(socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(v1alpha1.MaxDaemonResponse)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: MaxReconnectDelay / 10, Multiplier: 1.6, Jitter: 0.2, MaxDelay: MaxReconnectDelay},
			MinConnectTimeout: connectTimeout,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("dial daemon at %s: %w", socket, err)
	}
	return conn, nil
}
