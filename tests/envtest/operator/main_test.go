// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package operator tests the operator on a real kube-apiserver, with only the permissions in config/rbac. Nothing
// else runs there: no DaemonSet controller, no garbage collector, and no agent. The tests simulate them.
package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/operator"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/upstream"
)

const (
	namespace = "bpfman"
	admin     = "test"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	envtest.Main(m)
}

var (
	start = sync.OnceValues(deployAndRun)
	// ended receives the operator's error when it ends.
	ended = make(chan error, 1)
	// stop ends the operator.
	stop context.CancelFunc
	// config is the administrator's configuration. It is set before the start.
	config *rest.Config
)

// cluster returns an administrator's client for a cluster where config/default is deployed and the operator runs.
func cluster(t *testing.T) client.Client {
	t.Helper()
	config = envtest.Config(t)
	c, err := start()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the operator ended: %v", err)
	default:
		return c
	}
	return nil
}

func deployAndRun() (client.Client, error) {
	c, err := client.New(config, client.Options{Scheme: envtest.Scheme()})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	// Upstream's installation existed before: see TestUpstreamRoles.
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, err
	}
	for _, o := range append(upstream.Roles(namespace), upstream.Only(namespace)...) {
		if err := c.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return nil, err
		}
	}
	// The tests also act as the agent, which others are forbidden to do.
	if err := envtest.Apply(ctx, c, "config/default", "Deployment", "ValidatingAdmissionPolicyBinding"); err != nil {
		return nil, err
	}
	return c, run()
}

// run starts an operator.
func run() error {
	mgr, err := operator.New(envtest.As(config, namespace, "bpfman-operator"), operator.Options{Namespace: namespace, MetricsAddr: "0", HealthAddr: "0", LeaderElection: true})
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, stop = context.WithCancel(context.Background())
	go func() { ended <- mgr.Start(ctx) }()
	return nil
}

// restart ends the operator, and starts another one.
func restart(t *testing.T) {
	t.Helper()
	stop()
	must.Succeed(t, <-ended)
	must.Succeed(t, run())
}

func gone(c client.Client, object client.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s is still there", object.GetName()), err)
	}
}

// hasEvent looks for an Event of the operator about the object. Without a UID, it matches any object with the
// name.
func hasEvent(c client.Client, about client.Object, reason string, note func(string) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := c.List(ctx, &list); err != nil {
			return err
		}
		var notes []string
		for _, event := range list.Items {
			same := event.Regarding.UID == about.GetUID() || about.GetUID() == "" && event.Regarding.Name == about.GetName()
			if same && event.Reason == reason {
				if note(event.Note) {
					return nil
				}
				notes = append(notes, event.Note)
			}
		}
		return fmt.Errorf("no such Event %s about %s, only %q", reason, about.GetName(), notes)
	}
}

// addNode creates a node, with the DaemonSet's pod on it.
func addNode(t *testing.T, c client.Client, name string, labels map[string]string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	create(t, c, node)
	create(t, c, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + name, Namespace: namespace, Labels: deploy.PodLabels()},
		Spec: corev1.PodSpec{
			NodeName:           name,
			ServiceAccountName: "bpfman-daemon",
			Containers:         []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	})
}

// create creates an object that is deleted when the test ends.
func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), envtest.Patience)
		defer cancel()
		if err := c.Delete(ctx, object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		}
	})
}
