// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package operator combines the operator's controllers.
package operator

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/scrape"
	"github.com/bpfman/bpfman-operator/operator/bpfnodes"
	"github.com/bpfman/bpfman-operator/operator/contest"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/hints"
	"github.com/bpfman/bpfman-operator/operator/kindcache"
	"github.com/bpfman/bpfman-operator/operator/nodes"
	"github.com/bpfman/bpfman-operator/operator/policies"
	"github.com/bpfman/bpfman-operator/operator/reports"
	"github.com/bpfman/bpfman-operator/operator/rollout"
	"github.com/bpfman/bpfman-operator/operator/states"
	"github.com/bpfman/bpfman-operator/operator/status"
	"github.com/bpfman/bpfman-operator/operator/takeover"
)

const (
	name             = "bpfman-operator"
	leaderElectionID = "8730d955.bpfman.io"
	openShiftGroup   = "route.openshift.io"
	// A Lease that isn't renewed expires in less than this time.
	leasePoll = 20 * time.Second
)

// Options are the options of the command.
type Options struct {
	// Namespace is the namespace of the ConfigMap and the node components.
	Namespace string
	// MetricsAddr is the address for metrics, which are served over TLS to users that RBAC allows. "0" disables
	// the server. The same applies to HealthAddr.
	MetricsAddr string
	HealthAddr  string
	// LeaderElection makes only one of several replicas work at a time.
	LeaderElection bool
	// Proxy is the proxy that the node components use for the registries of bytecode.
	Proxy httpproxy.Config
}

// New returns a manager with all controllers. After the manager starts, the controllers start as soon as the
// cluster's definitions belong to this API.
func New(config *rest.Config, o Options) (ctrl.Manager, error) {
	if o.Namespace == "" {
		return nil, errors.New("the namespace of the node components is not set")
	}
	openShift, served, err := discover(config)
	if err != nil {
		return nil, err
	}
	known := &kinds.Kinds{Log: ctrl.Log, Rescoped: make(chan error, 1)}
	mgr, err := newManager(config, o, openShift, served, known)
	if err != nil {
		return nil, err
	}
	pods := &deploy.NodePods{Client: mgr.GetClient(), Namespace: o.Namespace, Leads: mgr.Elected(), Clock: clock.RealClock{}}
	for _, collector := range []prometheus.Collector{known, pods} {
		// A test can start several operators in one process.
		if err := metrics.Registry.Register(collector); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	recorder := mgr.GetEventRecorder(name)
	announcer := &takeover.Announcer{Client: mgr.GetClient(), Recorder: recorder, ConfigMap: types.NamespacedName{Namespace: o.Namespace, Name: deploy.ConfigMapName}}
	lease := &takeover.Lease{
		Live: mgr.GetAPIReader(), Announcer: announcer, Lease: types.NamespacedName{Namespace: o.Namespace, Name: leaderElectionID}, Poll: leasePoll,
	}
	if err := lease.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up %T: %w", lease, err)
	}
	installed := &states.Definitions{Kinds: v1alpha1.StateKindsOf(mgr.GetScheme())}
	err = guard(mgr, recorder, o.Namespace, known, installed, func() error {
		known.Optional(corev1.SchemeGroupVersion.WithKind("Event")) // they only say why there are no pods
		return setUp(mgr, controllers(mgr, known, installed, recorder, announcer, openShift, o.Proxy))
	})
	if err != nil {
		return nil, err
	}
	if o.HealthAddr != "0" {
		server := scrape.Server(known.Probes())
		server.Addr = o.HealthAddr
		if err := mgr.Add(&manager.Server{Name: "probes", Server: server, ShutdownTimeout: new(time.Second)}); err != nil {
			return nil, fmt.Errorf("add probes: %w", err)
		}
	}
	return mgr, nil
}

type controller interface{ SetupWithManager(ctrl.Manager) error }

// setUp sets up controllers with a manager that can already run, and starts none before all of them are complete.
func setUp(mgr ctrl.Manager, all []controller) error {
	complete := &collector{Manager: mgr}
	for _, controller := range all {
		if err := controller.SetupWithManager(complete); err != nil {
			return fmt.Errorf("set up %T: %w", controller, err)
		}
	}
	for _, runnable := range complete.runnables {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("start %T: %w", runnable, err)
		}
	}
	return nil
}

// collector is a manager that starts nothing. The builder of a controller adds it to the manager before it adds the
// controller's watches. A controller that starts in between waits for no list, and decides as if there were no objects.
type collector struct {
	ctrl.Manager

	runnables []manager.Runnable
}

// Add implements [ctrl.Manager].
func (c *collector) Add(runnable manager.Runnable) error {
	c.runnables = append(c.runnables, runnable)
	return nil
}

func controllers(
	mgr ctrl.Manager, known *kinds.Kinds, installed *states.Definitions, recorder events.EventRecorder, announcer *takeover.Announcer,
	openShift bool, proxy httpproxy.Config,
) []controller {
	c, live, namespace := mgr.GetClient(), mgr.GetAPIReader(), announcer.ConfigMap.Namespace
	stored := reports.NewStore(known, v1alpha1.StateKindsOf(mgr.GetScheme()))
	upstreams := &takeover.Reports{Client: c, Reports: stored, Live: live, Announcer: announcer, Namespace: namespace, AgentLabels: deploy.PodLabels()}
	finalizers := &contest.Ledger[types.UID]{Clock: clock.RealClock{}}
	published := &hints.Reconciler{Client: c, Namespace: namespace, Clock: clock.RealClock{}}
	all := []controller{
		stored,
		published,
		&deploy.Reconciler{
			Client: c, Live: live, Recorder: recorder, Namespace: namespace, OpenShift: openShift, Proxy: proxy,
			Announcer: announcer, Contests: &contest.Ledger[string]{Clock: clock.RealClock{}},
		},
		&status.Reconciler{
			Client: c, Live: live, Reports: stored, Recorder: recorder, Clock: clock.RealClock{},
			Announcer: announcer, Contests: &contest.Ledger[types.UID]{Clock: clock.RealClock{}},
			Agents: published, Revisions: &rollout.History{Client: c, Reader: live, Namespace: namespace},
		},
		&status.Leftovers{Client: c, Reports: stored, Live: live},
		&nodes.Reconciler{
			Client: c, Recorder: recorder, ConfigMap: announcer.ConfigMap, Version: version.Version, Clock: clock.RealClock{},
		},
		&bpfnodes.Reconciler{Client: c, Namespace: namespace},
		&policies.Reconciler{Client: c, Reports: stored, Live: live, Namespace: namespace, Clock: clock.RealClock{}},
		&policies.Rollouts{Client: c},
		upstreams,
		&takeover.Roles{Client: c, Live: live, Announcer: announcer, Namespace: namespace},
	}
	for _, kind := range v1alpha1.StateKindsOf(mgr.GetScheme()) {
		all = append(all, &states.Reconciler{
			Kind: kind, Client: c, Reports: stored, Clock: clock.RealClock{}, Definitions: installed, Known: known, Upstream: upstreams, Announcer: announcer,
			Contests: &contest.Ledger[types.UID]{Clock: clock.RealClock{}},
		})
	}
	for _, kind := range v1alpha1.UserKindsOf(mgr.GetScheme()) {
		all = append(all, &takeover.Objects{Client: c, Recorder: recorder, Announcer: announcer, Contests: finalizers, Kind: kind})
	}
	return all
}

// discover reports whether the API server has an API group that only OpenShift serves, and which kinds of this API it has.
func discover(config *rest.Config) (openShift bool, served []metav1.APIResource, err error) {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, nil, fmt.Errorf("create discovery client: %w", err)
	}
	groups, err := c.ServerGroups()
	if err != nil {
		return false, nil, fmt.Errorf("discover the cluster's APIs: %w", err)
	}
	openShift = slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == openShiftGroup })
	version := v1alpha1.SchemeGroupVersion.String()
	list, err := c.ServerResourcesForGroupVersion(version)
	if apierrors.IsNotFound(err) {
		return openShift, nil, nil // no kind is defined
	}
	if err != nil {
		return false, nil, fmt.Errorf("discover the cluster's kinds in %s: %w", version, err)
	}
	return openShift, list.APIResources, nil
}

// cacheOptions returns what the cache contains. Its transforms must be idempotent: client-go applies them twice to the
// first objects of a watch.
func cacheOptions(scheme *runtime.Scheme, namespace string, openShift bool) cache.Options {
	byObject := deploy.CacheByObject(namespace, openShift)
	maps.Copy(byObject, status.CacheByObject(scheme, namespace, deploy.PodLabels()))
	return cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()}
}

func newManager(config *rest.Config, o Options, openShift bool, served []metav1.APIResource, known *kinds.Kinds) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), definitions.Install(scheme, served)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	// Reports are the most numerous objects. They are read from the store, because the cache would contain them
	// completely.
	var uncached []client.Object
	for _, kind := range v1alpha1.ProgramKinds {
		uncached = append(uncached, kind.New())
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:         scheme,
		Client:         client.Options{Cache: &client.CacheOptions{DisableFor: uncached}},
		NewCache:       kindcache.New(known),
		MapperProvider: kindcache.Mapper(scheme),
		Cache:          cacheOptions(scheme, o.Namespace, openShift),
		Metrics: metricsserver.Options{
			BindAddress:    o.MetricsAddr,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		Controller: ctrlconfig.Controller{
			SkipNameValidation: new(true), // tests run several in one process
			// A controller waits for what it reads. A timeout would stop all controllers.
			CacheSyncTimeout: math.MaxInt64,
		},
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("build manager: %w", err)
	}
	return mgr, nil
}
