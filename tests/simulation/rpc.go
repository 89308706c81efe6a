// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"errors"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// service is a gRPC service in this process.
type service struct {
	description *grpc.ServiceDesc
	server      any
}

// call calls the method with a full name.
func (s service) call(ctx context.Context, method string, request proto.Message) (proto.Message, error) {
	for _, m := range s.description.Methods {
		if m.MethodName != path.Base(method) {
			continue
		}
		response, err := m.Handler(s.server, ctx, func(into any) error {
			proto.Merge(into.(proto.Message), request) //nolint:errcheck,forcetypeassert // it is the method's request
			return nil
		}, nil)
		if err != nil {
			return nil, err
		}
		return response.(proto.Message), nil //nolint:errcheck,forcetypeassert // it is the method's response
	}
	return nil, status.Error(codes.Unimplemented, method)
}

// unary is the rest of a connection without streams.
type unary struct{}

// NewStream implements [grpc.ClientConnInterface].
func (unary) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("there are no streams")
}

// Close implements [io.Closer].
func (unary) Close() error { return nil }
