// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package operator puts the operator's controllers together.
package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/status"
)

const (
	name             = "bpfman-operator"
	leaderElectionID = "8730d955.bpfman.io"
	openShiftGroup   = "route.openshift.io"
)

// Options are what a user of the command can choose.
type Options struct {
	// Namespace is where the ConfigMap and the node components live.
	Namespace string
	// MetricsAddr serves metrics over TLS, to whom RBAC allows. "0" turns them off, as it does HealthAddr.
	MetricsAddr string
	HealthAddr  string
	// LeaderElection lets one of several replicas work at a time.
	LeaderElection bool
}

// New returns a manager with all controllers, ready to start. They start where the cluster's definitions are this API's.
func New(config *rest.Config, o Options) (ctrl.Manager, error) {
	if o.Namespace == "" {
		return nil, errors.New("no namespace is given for the node components")
	}
	openShift, err := isOpenShift(config)
	if err != nil {
		return nil, err
	}
	mgr, err := newManager(config, o, openShift)
	if err != nil {
		return nil, err
	}
	recorder := mgr.GetEventRecorder(name)
	err = guard(mgr, recorder, o.Namespace, func() error {
		for _, controller := range []interface{ SetupWithManager(ctrl.Manager) error }{
			&deploy.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: recorder, Namespace: o.Namespace, OpenShift: openShift},
			&status.Reconciler{Client: mgr.GetClient(), Recorder: recorder, Clock: clock.RealClock{}},
			&status.Leftovers{Client: mgr.GetClient(), Live: mgr.GetAPIReader()},
		} {
			if err := controller.SetupWithManager(mgr); err != nil {
				return fmt.Errorf("set up %T: %w", controller, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("add health checks: %w", err)
	}
	return mgr, nil
}

// isOpenShift tells by the group of APIs that OpenShift alone serves.
func isOpenShift(config *rest.Config) (bool, error) {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make discovery client: %w", err)
	}
	groups, err := c.ServerGroups()
	if err != nil {
		return false, fmt.Errorf("ask which APIs the cluster serves: %w", err)
	}
	return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == openShiftGroup }), nil
}

func newManager(config *rest.Config, o Options, openShift bool) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	byObject := deploy.CacheByObject(o.Namespace, openShift)
	maps.Copy(byObject, status.CacheByObject(o.Namespace, deploy.PodLabels()))
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics: metricsserver.Options{
			BindAddress:    o.MetricsAddr,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		HealthProbeBindAddress:        o.HealthAddr,
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
