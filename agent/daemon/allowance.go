// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// What the Loads of a namespace can cost a node, immediately and then continuously. Otherwise, a tenant could fill the
// node's /run, where the daemon of v0.6.0 leaves objects, or keep the daemon from everybody else.
const (
	spaceAtOnce  = 256 << 20 // bytes
	spacePerHour = 64 << 20  // bytes
	timeAtOnce   = 2 * time.Minute
	timeShare    = 0.1
)

// allowances contains what is left for the Loads of each namespace. The zero value is ready to use.
type allowances struct {
	mu   sync.Mutex
	left map[string]*allowance
}

type allowance struct {
	space *rate.Limiter // bytes in the daemon's database
	time  *rate.Limiter // milliseconds of the daemon
}

// of returns the allowance for a Load. It is nil for cluster-scoped objects, which have no limit.
func (a *allowances) of(request *gobpfman.LoadRequest) *allowance {
	namespace := request.GetMetadata()[v1alpha1.MetadataNamespace]
	if namespace == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == nil {
		a.left = map[string]*allowance{}
	}
	if a.left[namespace] == nil {
		a.left[namespace] = &allowance{
			space: rate.NewLimiter(spacePerHour/rate.Limit(time.Hour.Seconds()), spaceAtOnce),
			time:  rate.NewLimiter(timeShare*rate.Limit(time.Second.Milliseconds()), int(timeAtOnce.Milliseconds())),
		}
	}
	return a.left[namespace]
}

// check returns the status of a Load that has to wait, or nil.
func (a *allowance) check() error {
	switch {
	case a == nil:
		return nil
	case a.space.Tokens() <= 0:
		return status.Errorf(codes.Aborted, "the objects of the namespace have left %d MiB in the node's /run by being loaded again and again, "+
			"and have to wait: they may leave %d MiB more each hour", spaceAtOnce>>20, spacePerHour>>20)
	case a.time.Tokens() <= 0:
		return status.Errorf(codes.Aborted, "the objects of the namespace have taken %.0f minutes of the daemon's time to be loaded, "+
			"and have to wait: they may take %.0f%% of its time", timeAtOnce.Minutes(), 100*timeShare)
	}
	return nil
}

// meter returns a function that takes from the allowance what a Load has cost between the two calls. Root is the path of
// the daemon's file system.
func (a *allowance) meter(root string) (end func()) {
	if a == nil {
		return func() {}
	}
	began, before := time.Now(), DatabaseSize(root)
	return func() {
		now := time.Now()
		a.space.ReserveN(now, int(max(0, min(DatabaseSize(root)-before, spaceAtOnce))))
		a.time.ReserveN(now, int(min(now.Sub(began), timeAtOnce).Milliseconds()))
	}
}
