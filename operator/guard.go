// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/operator/deploy"
	"github.com/bpfman/bpfman-operator/operator/states"
)

// ReasonForeignDefinitions is the reason of the Event on the ConfigMap if the operator doesn't start because of
// other definitions.
const ReasonForeignDefinitions = "ForeignDefinitions"

// How often to check the cluster's definitions, before and after the start. Each check is one request, which the
// API server answers from memory.
const (
	lookAgain = 5 * time.Second
	lookLater = 30 * time.Second
)

// guard starts controllers only if the cluster's definitions belong to this API. It keeps installed current.
func guard(mgr ctrl.Manager, recorder events.EventRecorder, namespace string, known *kinds.Kinds, installed *states.Definitions, open func() error) error {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("create discovery client: %w", err)
	}
	g := &definitions.Guard{
		Check: func(ctx context.Context) error {
			served, err := definitions.Served(ctx, api.RESTClient())
			if err != nil {
				return err
			}
			installed.Set(served)
			return cmp.Or(definitions.Foreign(served), definitions.Same(mgr.GetScheme(), served))
		},
		Open: open,
		Report: func(ctx context.Context, refusal error) {
			mgr.GetLogger().Error(refusal, "Not starting the controllers yet")
			if foreign := (*definitions.ForeignError)(nil); errors.As(refusal, &foreign) {
				announce(ctx, mgr.GetAPIReader(), recorder, namespace, foreign)
			}
		},
		Retry: lookAgain, Interval: lookLater,
		Stop: known.Rescoped,
	}
	known.Held = g.Held
	if err := mgr.Add(g); err != nil {
		return fmt.Errorf("add the check for incompatible definitions: %w", err)
	}
	return nil
}

// announce emits the Event on the ConfigMap. The operator has permission to list the ConfigMap by its name.
func announce(ctx context.Context, live client.Reader, recorder events.EventRecorder, namespace string, foreign error) {
	var list corev1.ConfigMapList
	err := live.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": deploy.ConfigMapName})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to emit an Event about incompatible definitions")
	}
	for _, configMap := range list.Items {
		event.Emit(recorder, &configMap, corev1.EventTypeWarning, ReasonForeignDefinitions, "Start", foreign.Error())
	}
}
