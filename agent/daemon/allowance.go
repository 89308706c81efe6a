// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"k8s.io/utils/lru"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// What the Loads and Attaches of a namespace can cost a node, immediately and then continuously. Otherwise, a tenant could
// fill the node's /run, where the daemon of v0.6.0 leaves objects that it loads, or keep the daemon from everybody else.
const (
	spaceAtOnce  = 256 << 20 // bytes
	spacePerHour = 64 << 20  // bytes
	timeAtOnce   = 2 * time.Minute
	timeShare    = 0.1
)

// mostAllowances is the number of namespaces whose allowances are known. One that wasn't used for the longest time is full again,
// unless a node loads for thousands of namespaces.
const mostAllowances = 4096

// allowances contains what is left for the Loads and Attaches of each namespace. The zero value is ready to use.
type allowances struct {
	mu   sync.Mutex
	left *lru.Cache // *allowance by namespace
}

type allowance struct {
	space *rate.Limiter // bytes in the daemon's database
	time  *rate.Limiter // milliseconds of the daemon
}

// of returns the allowance of a namespace. It is nil for cluster-scoped objects, which have no limit.
func (a *allowances) of(namespace string) *allowance {
	if namespace == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left == nil {
		a.left = lru.New(mostAllowances)
	}
	if left, known := a.left.Get(namespace); known {
		return left.(*allowance) //nolint:errcheck // the only type of its values
	}
	left := &allowance{
		space: rate.NewLimiter(spacePerHour/rate.Limit(time.Hour.Seconds()), spaceAtOnce),
		time:  rate.NewLimiter(timeShare*rate.Limit(time.Second.Milliseconds()), int(timeAtOnce.Milliseconds())),
	}
	a.left.Add(namespace, left)
	return left
}

// admitLoad returns the status of a Load that has to wait, or nil.
func (a *allowance) admitLoad() error {
	if a != nil && a.space.Tokens() <= 0 {
		return refuse(problem.NamespaceUsedUp, codes.Aborted, "the objects of the namespace have left %d MiB in the node's /run by being loaded again and again, "+
			"and have to wait: they may leave %d MiB more each hour", spaceAtOnce>>20, spacePerHour>>20)
	}
	return a.admitAttach()
}

// admitAttach returns the status of an Attach that has to wait, or nil.
func (a *allowance) admitAttach() error {
	if a == nil || a.time.Tokens() > 0 {
		return nil
	}
	return refuse(problem.NamespaceUsedUp, codes.Aborted, "the objects of the namespace have taken %.0f minutes of the daemon's time to be loaded and attached, "+
		"and have to wait: they may take %.0f%% of its time", timeAtOnce.Minutes(), 100*timeShare)
}

// meterLoad returns a function that takes from the allowance what a Load has cost between the two calls. Root is the path of
// the daemon's file system.
func (a *allowance) meterLoad(root string) (end func()) {
	if a == nil {
		return func() {}
	}
	before, endTime := DatabaseSize(root), a.meterTime()
	return func() {
		a.space.ReserveN(time.Now(), int(max(0, min(DatabaseSize(root)-before, spaceAtOnce))))
		endTime()
	}
}

// meterTime returns a function that takes from the allowance the time between the two calls.
func (a *allowance) meterTime() (end func()) {
	if a == nil {
		return func() {}
	}
	began := time.Now()
	return func() {
		now := time.Now()
		a.time.ReserveN(now, int(min(now.Sub(began), timeAtOnce).Milliseconds()))
	}
}
