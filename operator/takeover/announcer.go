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

	"github.com/bpfman/bpfman-operator/apis/event"
)

// Announcer tells administrators what the operator took over, and whom it found at work beside it: in Events on the
// ConfigMap, which is where they look for what becomes of their configuration, and in the log.
type Announcer struct {
	// Client reads the ConfigMap.
	Client   client.Reader
	Recorder events.EventRecorder
	// ConfigMap is the name of the operator's own.
	ConfigMap types.NamespacedName
}

// TakenOver announces a completed takeover of something that has no Events of its own.
func (a *Announcer) TakenOver(ctx context.Context, note string) {
	ctrl.LoggerFrom(ctx).Info("Took over from upstream's operator", "what", note)
	a.emit(ctx, corev1.EventTypeNormal, ReasonTakenOver, note)
}

// AnotherOperator announces that somebody undoes what the operator writes.
func (a *Announcer) AnotherOperator(ctx context.Context, note string) {
	note += ". Another operator seems to be running: to find it, run `kubectl get deployments -A`. Until it is removed, this operator writes less often"
	ctrl.LoggerFrom(ctx).Info("Another operator seems to be running", "what", note)
	a.emit(ctx, corev1.EventTypeWarning, ReasonAnotherOperator, note)
}

func (a *Announcer) emit(ctx context.Context, severity, reason, note string) {
	configMap := &corev1.ConfigMap{}
	if err := a.Client.Get(ctx, a.ConfigMap, configMap); err != nil {
		return // Nothing to say it on; the log has it.
	}
	event.Emit(a.Recorder, configMap, severity, reason, action, note)
}
