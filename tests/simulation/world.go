// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package simulation runs a cluster in one process and in virtual time: operators, the agents of several nodes, CSI plugins,
// and inspectors, which are the product's own code, over an API server and bpfman daemons in memory. Each component can be
// stopped, crash, and start again at any event, and faults of the API server, the network, the daemons, and the nodes happen
// on demand. See docs/development.md.
package simulation

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/simulation/apiserver"
)

// Namespace is the namespace of the operator and the node components.
const Namespace = "bpfman"

// Options are the options of a World. The zero value is a cluster with a fast network.
type Options struct {
	// Seed is the seed of the latencies. The order of goroutines isn't seeded.
	Seed uint64
	// Alone means that operators have no leader election, as with one replica. A renewal every two seconds is most of what
	// happens in a cluster that is idle.
	Alone bool
	// Latency is the longest time that a request takes. The zero value stands for 20 milliseconds.
	Latency time.Duration
	// BytecodeSize is how much the agents store. The zero value stands for their default.
	BytecodeSize int64
	// Log gets what the components log. The zero value discards it.
	Log logr.Logger
}

// World is a cluster. It belongs to one bubble of testing/synctest.
type World struct {
	// API is the API server, without faults. Network is the one through which all components reach it.
	API     *apiserver.Server
	Network *Network
	// Registry has the images of bytecode.
	Registry *Registry
	// Client is a client of an administrator, whom no fault affects.
	Client client.Client

	tb     testing.TB
	dir    string
	elect  bool
	slow   time.Duration
	stored int64
	log    logr.Logger
	events events
	// ctx ends with the world.
	ctx    context.Context //nolint:containedctx // a world is a lifetime
	finish context.CancelFunc
	// processes are those that haven't ended yet, dead or alive.
	processes sync.WaitGroup

	mu         sync.Mutex
	rand       *rand.Rand
	components []*Component
	nodes      []*Node
	over       bool
}

// New returns a cluster with the operator's namespace and ConfigMap, and without nodes and operators. All its components end
// with the test.
func New(tb testing.TB, o Options) *World {
	tb.Helper()
	quiet()
	server, err := apiserver.New()
	if err != nil {
		tb.Fatal(err)
	}
	server.WithoutLeaseManagers = true // an idle cluster does little but renew them
	w := &World{
		API: server, Network: newNetwork(), Registry: &Registry{}, elect: !o.Alone, slow: cmp.Or(o.Latency, fast), stored: cmp.Or(o.BytecodeSize, bytecodeSize), tb: tb, dir: memory(tb), log: o.Log,
		rand: rand.New(rand.NewPCG(o.Seed, 0)), //nolint:gosec // a seed makes it repeatable
	}
	w.ctx, w.finish = context.WithCancel(context.Background())
	scheme := runtime.NewScheme()
	w.must(clientgoscheme.AddToScheme(scheme))
	w.must(v1alpha1.Install(scheme))
	admin, err := client.New(&rest.Config{Host: host, Transport: server.Transport(Admin, w.ctx, nil), QPS: -1}, client.Options{Scheme: scheme})
	w.must(err)
	w.Client = admin
	w.processes.Go(func() { server.RunControllers(w.ctx) })
	w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}})
	w.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: deploy.ConfigMapName}, Data: map[string]string{
		deploy.KeyDaemonImage: "daemon:v1", deploy.KeyAgentImage: "agent:v1", deploy.KeyCSIImage: "csi:v1", deploy.KeyInspectorImage: "inspector:v1",
	}})
	tb.Cleanup(w.end)
	return w
}

// gcPercent makes the garbage collector run less often than by default: a world has little that lives long.
const gcPercent = 400

// quiet makes process-wide state of libraries fit for virtual time.
var quiet = sync.OnceFunc(func() {
	debug.SetGCPercent(gcPercent)
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil //nolint:reassign // they delay errors by the process's real time
})

// memory returns a directory in memory, where there is one: agents sync what they store, and a disk takes real time for that, in
// which no virtual time passes.
func memory(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "simulation-") //nolint:usetesting // its directories are on the disk
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// fast is the longest time that a request takes by default.
const fast = 20 * time.Millisecond

// Admin is the actor of World.Client.
const Admin = "admin"

// host is the address of the API server.
const host = "http://api.simulation"

func (w *World) must(err error) {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
}

// Create creates an object as the administrator.
func (w *World) Create(o client.Object) {
	w.tb.Helper()
	w.must(w.Client.Create(w.tb.Context(), o))
}

// Await waits until a condition holds, and fails the test if it doesn't within a limit. It returns how long it took.
func (w *World) Await(limit time.Duration, what string, holds func() bool) time.Duration {
	w.tb.Helper()
	const poll = 100 * time.Millisecond
	start := time.Now()
	for !holds() {
		if time.Since(start) > limit {
			w.tb.Fatalf("not within %s: %s", limit, what)
		}
		<-time.After(poll)
	}
	return time.Since(start)
}

// Pass lets time pass.
func (*World) Pass(d time.Duration) { <-time.After(d) }

// Nodes returns the nodes that were added, in order.
func (w *World) Nodes() []*Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*Node(nil), w.nodes...)
}

// latency returns the time that a request or call takes.
func (w *World) latency() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(1+w.rand.IntN(int(w.slow.Milliseconds()))) * time.Millisecond
}

// end ends all components, and what they left.
func (w *World) end() {
	w.mu.Lock()
	w.over = true
	components := append([]*Component(nil), w.components...)
	w.mu.Unlock()
	w.Network.Set(Up)
	w.finish()
	for _, n := range w.Nodes() {
		n.end()
	}
	var stopping sync.WaitGroup
	for _, c := range components {
		stopping.Go(c.Stop)
	}
	stopping.Wait()
	w.processes.Wait()
}

func (w *World) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}
