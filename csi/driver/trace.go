// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/internal/logs"
)

// Trace logs every call, with its duration and code, at [logs.LevelTrace].
func Trace(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, call *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		start := time.Now()
		response, err := handler(ctx, request)
		log.Log(ctx, logs.LevelTrace, "Handled a call", "method", call.FullMethod, "code", status.Code(err), "took", time.Since(start))
		return response, err
	}
}
