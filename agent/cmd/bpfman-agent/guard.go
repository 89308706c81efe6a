// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/kinds"
)

// How often the cluster's definitions are looked at, while nothing starts and afterwards: rarely, as every node does. The
// operator says at once when they are another bpfman's.
const (
	lookAgain = 10 * time.Second
	lookLater = 10 * time.Minute
)

// guard has the agent start only where the cluster's definitions are this API's.
func guard(mgr manager.Manager, known *kinds.Kinds, open func() error) error {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("create discovery client: %w", err)
	}
	g := &definitions.Guard{
		Look: func(ctx context.Context) error { return definitions.Look(ctx, api) },
		Open: open,
		Report: func(_ context.Context, refusal error) {
			mgr.GetLogger().Error(refusal, "Not starting the controllers yet")
		},
		Retry: lookAgain, Interval: lookLater,
	}
	known.Held = g.Held
	if err := mgr.Add(g); err != nil {
		return fmt.Errorf("add the check for incompatible definitions: %w", err)
	}
	return nil
}
