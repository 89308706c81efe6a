// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package event emits Events, and makes sure that their full text reaches the user. The operator and the agent use
// it.
package event

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record/util"

	"github.com/bpfman/bpfman-operator/apis/shorten"
)

// The API's limits for an Event's note and reportingInstance, in bytes.
const (
	maxNote     = 1024
	maxInstance = 128
)

// Recorder emits Events. It is client-go's events.EventRecorder, whose package imports the types of all Kubernetes APIs.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Emit emits an Event about an object. eventType is corev1.EventTypeNormal or corev1.EventTypeWarning.
//
// The recorder aggregates Events that differ only in their note, and keeps the first note. The error of a second
// node would therefore never be visible. To keep them apart, Emit adds a hash of the note to the action, which
// kubectl doesn't show.
func Emit(recorder Recorder, about runtime.Object, eventType, reason, action, note string) {
	// kubectl shows an Event on one line.
	note = shorten.Middle(strings.ReplaceAll(note, "\n", "; "), maxNote)
	hash := fnv.New32a()
	hash.Write([]byte(note))
	recorder.Eventf(about, nil, eventType, reason, fmt.Sprintf("%s-%08x", action, hash.Sum32()), "%s", note)
}

// New returns an Event about an object. The component reports it from an instance, which is a host or a node.
func New(component, instance string, about corev1.ObjectReference, eventType, reason, action, note string) *eventsv1.Event {
	now := time.Now()
	event := &eventsv1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Name: util.GenerateEventName(about.Name, now.UnixNano()), Namespace: about.Namespace},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: component, ReportingInstance: instance[:min(len(instance), maxInstance)],
		Action: action, Reason: reason, Type: eventType, Note: shorten.Middle(note, maxNote), Regarding: about,
	}
	if event.Namespace == "" {
		event.Namespace = metav1.NamespaceDefault // as for all Events about cluster-scoped objects
	}
	return event
}

// Write creates an Event. If it is already a series, Write updates its count instead.
func Write(ctx context.Context, api rest.Interface, event *eventsv1.Event) error {
	path := "/apis/" + eventsv1.SchemeGroupVersion.String() + "/namespaces/" + event.Namespace + "/events"
	if event.Series != nil {
		body, err := json.Marshal(map[string]any{"series": event.Series})
		if err != nil {
			return fmt.Errorf("encode a series of Events: %w", err)
		}
		err = api.Patch(types.MergePatchType).AbsPath(path, event.Name).Body(body).Do(ctx).Error()
		if !apierrors.IsNotFound(err) {
			return err //nolint:wrapcheck // the caller adds context
		}
		// The API server has deleted the Event: create it again.
	}
	body, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode an Event: %w", err)
	}
	err = api.Post().AbsPath(path).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil // by an earlier attempt whose response was lost: names are unique because they contain the time
	}
	return err //nolint:wrapcheck // see above
}
