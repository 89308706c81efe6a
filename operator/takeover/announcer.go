// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package takeover

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/internal/event"
)

// Announcer informs administrators about what the operator took over, and about other operators. It logs, and
// emits Events on the ConfigMap, where administrators look for the results of their configuration.
type Announcer struct {
	// Client reads the ConfigMap.
	Client   client.Reader
	Recorder events.EventRecorder
	// ConfigMap is the name of the operator's ConfigMap.
	ConfigMap types.NamespacedName
}

// TakenOver announces a completed takeover of something that has no Events of its own.
func (a *Announcer) TakenOver(ctx context.Context, note string) {
	ctrl.LoggerFrom(ctx).Info("Took over from upstream's operator", "what", note)
	a.emit(ctx, corev1.EventTypeNormal, ReasonTakenOver, note)
}

// AnotherOperator announces that another client reverts what the operator writes.
func (a *Announcer) AnotherOperator(ctx context.Context, note string) {
	note += ". Another operator seems to be running: to find it, run `kubectl get deployments -A`. Until it is removed, this operator writes less often"
	ctrl.LoggerFrom(ctx).Info("Another operator seems to be running", "what", note)
	a.emit(ctx, corev1.EventTypeWarning, ReasonAnotherOperator, note)
}

func (a *Announcer) emit(ctx context.Context, severity, reason, note string) {
	configMap := &corev1.ConfigMap{}
	if err := a.Client.Get(ctx, a.ConfigMap, configMap); err != nil {
		return // There is no object for an Event. The log contains the message.
	}
	event.Emit(a.Recorder, configMap, severity, reason, action, note)
}
