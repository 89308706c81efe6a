// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-operator installs the node components, and summarizes their reports in the status of the users'
// objects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/http/httpproxy"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/internal/logs"
	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/installed"
)

// gcPercent is the default of GOGC. Most of the memory consists of long-lived data about reports, so less garbage
// than Go's default allows costs little CPU time.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// OLM sets the variables of proxies for operators, which pass them to their workloads.
	o := operator.Options{Namespace: os.Getenv("POD_NAMESPACE"), Proxy: *httpproxy.FromEnvironment()}
	flag.StringVar(&o.MetricsAddr, "metrics-bind-address", ":8443", "Address to serve /metrics at, over TLS, to clients that RBAC allows; 0 turns it off.")
	flag.StringVar(&o.HealthAddr, "health-probe-bind-address", ":8175", "Address to serve /healthz and /readyz at.")
	flag.BoolVar(&o.LeaderElection, "leader-elect", false, "Elect a leader, so that only one of several replicas is active.")
	checkFor := flag.Duration("check-installation", 0, "Only wait this long, for example 2m, until the operator and the node components are ready, and fail if they aren't. helm test runs this.")
	version.Flag("bpfman-operator")
	flag.Parse()

	ctrl.SetLogger(logr.FromSlogHandler(logs.Setup(os.Stderr, os.Getenv(logs.Variable)).Handler()))
	if *checkFor > 0 {
		if err := check(o.Namespace, *checkFor); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("The operator and the node components are ready.")
		return
	}
	if err := run(o); err != nil {
		ctrl.Log.Error(err, "Stopped")
		os.Exit(1)
	}
}

var errNoNamespace = errors.New("POD_NAMESPACE is not set: it must be the namespace of the node components")

// check waits until all components are available.
func check(namespace string, timeout time.Duration) error {
	if namespace == "" {
		return errNoNamespace
	}
	config, err := clientConfig()
	if err != nil {
		return err
	}
	client, err := typedappsv1.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create API client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctrl.SetupSignalHandler(), timeout)
	defer cancel()
	return installed.Await(ctx, client, namespace)
}

func run(o operator.Options) error {
	if o.Namespace == "" {
		return errNoNamespace
	}
	config, err := clientConfig()
	if err != nil {
		return err
	}
	mgr, err := operator.New(config, o)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// clientConfig returns the configuration of the API client. It doesn't use the proxy of the environment, which is for the
// node components.
func clientConfig() (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("load the API client's configuration: %w", err)
	}
	if config.Proxy == nil {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return config, nil
}
