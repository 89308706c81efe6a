// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/reference"

	"github.com/bpfman/bpfman-operator/internal/event"
)

const (
	// maxEvents is the maximum number of queued Events. Further Events are dropped.
	maxEvents = 1000
	// seriesGap is the time without Events after which a series ends. After that, the same
	// Event starts a new one.
	seriesGap = 6 * time.Minute
	// seriesTold is the interval of writes of the count of an active series. It must be shorter
	// than the hour after which the API server deletes Events by default.
	seriesTold = 30 * time.Minute
	// eventTries is the number of attempts to send an Event while the API server doesn't
	// respond, at intervals of eventRetry.
	eventTries, eventRetry = 12, 10 * time.Second
)

// Events emits Events, and counts similar Events in series, like client-go's recorder. It
// implements [event.Recorder].
type Events struct {
	api                 rest.Interface
	scheme              *runtime.Scheme
	component, instance string
	log                 logr.Logger

	emitted chan *eventsv1.Event
	recent  map[likeness]*series
}

// likeness contains the fields that are equal in all Events of a series.
type likeness struct {
	eventType, reason, action string
	regarding                 corev1.ObjectReference
}

// series is an Event that was written, possibly with a count of similar Events.
type series struct {
	event *eventsv1.Event
	last  time.Time // time of the last Event
	told  time.Time // time of the last write of the count
}

func newEvents(api rest.Interface, scheme *runtime.Scheme, component string, log logr.Logger) *Events {
	host, _ := os.Hostname() // "" if it is unknown
	return &Events{
		api: api, scheme: scheme, component: component, instance: component + "-" + host, log: log,
		emitted: make(chan *eventsv1.Event, maxEvents), recent: map[likeness]*series{},
	}
}

// Eventf emits an Event about an object. It doesn't use related. It returns before [Events.Run]
// has written the Event.
func (e *Events) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	about, err := reference.GetReference(e.scheme, regarding)
	if err != nil {
		e.log.Error(err, "Failed to emit an Event", "reason", reason)
		return
	}
	event := event.New(e.component, e.instance, *about, eventType, reason, action, fmt.Sprintf(note, args...))
	select {
	case e.emitted <- event:
	default:
		e.log.Info("Dropped an Event, because too many are waiting", "reason", reason, "object", about.Name)
	}
}

// Run writes emitted Events until ctx ends.
func (e *Events) Run(ctx context.Context) {
	tick := time.NewTicker(seriesGap)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-e.emitted:
			e.record(ctx, event)
		case <-tick.C:
			e.tidy(ctx)
		}
	}
}

// record writes an Event, or counts it in its series.
func (e *Events) record(ctx context.Context, event *eventsv1.Event) {
	key := likeness{event.Type, event.Reason, event.Action, event.Regarding}
	known := e.recent[key]
	switch {
	case known == nil:
		e.recent[key] = &series{event: event, last: event.EventTime.Time}
		e.write(ctx, event)
	case known.event.Series == nil:
		known.last, known.told = event.EventTime.Time, time.Now()
		known.event.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: event.EventTime}
		e.write(ctx, known.event)
	default:
		known.last = event.EventTime.Time
		known.event.Series.Count++
		known.event.Series.LastObservedTime = event.EventTime
	}
}

// tidy writes the counts of series, and removes series that have ended.
func (e *Events) tidy(ctx context.Context) {
	for key, known := range e.recent {
		over := time.Since(known.last) > seriesGap
		if known.event.Series != nil && (over || time.Since(known.told) > seriesTold) {
			known.told = time.Now()
			e.write(ctx, known.event)
		}
		if over {
			delete(e.recent, key)
		}
	}
}

// write creates an Event, or updates the count of its series.
func (e *Events) write(ctx context.Context, event *eventsv1.Event) {
	var err error
	for range eventTries {
		err = e.send(ctx, event)
		if err == nil || Answered(err) {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(eventRetry, 0.25)):
		}
	}
	if err != nil {
		e.log.Error(err, "Failed to write an Event", "reason", event.Reason, "object", event.Regarding.Name, "note", event.Note)
	}
}

// Answered reports whether the error of a request is a response of the API server.
func Answered(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

func (e *Events) send(ctx context.Context, emitted *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return event.Write(ctx, e.api, emitted)
}
