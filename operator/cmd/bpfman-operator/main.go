// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-operator installs the node components and sums up their reports into the status of the users' objects.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/status"
)

const (
	name             = "bpfman-operator"
	leaderElectionID = "8730d955.bpfman.io"
)

type flags struct {
	metricsAddr    string
	healthAddr     string
	leaderElection bool
}

func main() {
	var f flags
	flag.StringVar(&f.metricsAddr, "metrics-bind-address", ":8443", "Where metrics are served, over TLS and to whom RBAC allows; 0 turns them off.")
	flag.StringVar(&f.healthAddr, "health-probe-bind-address", ":8175", "Where /healthz and /readyz are served.")
	flag.BoolVar(&f.leaderElection, "leader-elect", false, "Let one of several replicas work at a time.")
	flag.Parse()

	ctrl.SetLogger(logger(os.Getenv("GO_LOG")))
	if err := run(f, os.Getenv("POD_NAMESPACE")); err != nil {
		ctrl.Log.Error(err, "the operator ends")
		os.Exit(1)
	}
}

func run(f flags, namespace string) error {
	if namespace == "" {
		return errors.New("POD_NAMESPACE is not set: it names the namespace that the node components live in")
	}
	mgr, err := newManager(f, namespace)
	if err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder(name)
	for _, controller := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&deploy.Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: recorder, Namespace: namespace},
		&status.Reconciler{Client: mgr.GetClient(), Recorder: recorder, Clock: clock.RealClock{}},
		&status.Leftovers{Client: mgr.GetClient(), Live: mgr.GetAPIReader()},
	} {
		if err := controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", controller, err)
		}
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func newManager(f flags, namespace string) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	byObject := deploy.CacheByObject(namespace)
	maps.Copy(byObject, status.CacheByObject(namespace, deploy.PodLabels()))
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                       metricsserver.Options{BindAddress: f.metricsAddr, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization},
		HealthProbeBindAddress:        f.healthAddr,
		LeaderElection:                f.leaderElection,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("build manager: %w", err)
	}
	return mgr, nil
}

// logger follows GO_LOG as upstream does: "debug" and "trace" write for people, anything else JSON.
func logger(level string) logr.Logger {
	switch level {
	case "debug":
		return zap.New(zap.UseDevMode(true))
	case "trace":
		return zap.New(zap.UseDevMode(true), zap.Level(zapcore.Level(-2)))
	}
	return zap.New(zap.UseDevMode(false))
}
