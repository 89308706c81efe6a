// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// bookmarkEvery is the interval of bookmarks, like that of a watch cache.
const bookmarkEvery = time.Minute

// watcher passes the changes of a resource that a client has selected. It implements [watch.Interface].
type watcher struct {
	server  *Server
	r       *resource
	key     string
	exact   bool // key is the key of one object, and not a prefix
	options storage.ListOptions
	// after is the version after which there are events.
	after uint64

	// Guarded by the server's mu:
	queue []watch.Event
	ended bool

	wake   chan struct{}
	result chan watch.Event
	stop   context.CancelFunc
}

// watch starts to watch. Failures after the request was understood are events, as from a watch cache.
func (s *Server) watch(ctx context.Context, r *resource, key string, options storage.ListOptions) (watch.Interface, error) {
	version, err := versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if options.Recursive && !strings.HasSuffix(key, "/") {
		key += "/"
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{
		server: s, r: r, key: key, exact: !options.Recursive, options: options,
		wake: make(chan struct{}, 1), result: make(chan watch.Event), stop: cancel,
	}
	s.mu.Lock()
	w.begin(callerOf(ctx), version)
	s.watchers[w] = true
	s.mu.Unlock()
	go w.run(ctx)
	return w, nil
}

// begin queues the events before the first change. The caller holds mu.
func (w *watcher) begin(caller caller, version uint64) {
	initial := w.options.SendInitialEvents
	var err error
	if initial != nil && *initial || initial == nil && version == 0 {
		err = w.addAll(caller)
	} else {
		err = w.continueFrom(version)
	}
	if err != nil {
		w.fail(err)
		return
	}
	for _, c := range w.server.log {
		w.add(c)
	}
}

// continueFrom makes the watch begin after a version, or after the current one if it is 0.
func (w *watcher) continueFrom(version uint64) error {
	w.after = version
	if version == 0 {
		w.after = w.server.version
	}
	if w.after < w.server.compacted {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, w.server.compacted))
	}
	return nil
}

// addAll queues the objects that exist as if they had been created, and a bookmark if the client asked for it.
func (w *watcher) addAll(caller caller) error {
	at, err := w.server.readable(caller, w.options.ResourceVersion)
	if err != nil {
		return err
	}
	w.after = at
	c := w.server.at(w.r.prefix, at)
	for _, k := range c.keys {
		if w.covers(k) && w.matches(c.objects[k]) {
			w.push(watch.Added, w.r.show(c.objects[k]))
		}
	}
	if w.options.SendInitialEvents != nil && w.options.Predicate.AllowWatchBookmarks {
		w.bookmark(at, true)
	}
	return nil
}

func (w *watcher) covers(key string) bool {
	return key == w.key || !w.exact && strings.HasPrefix(key, w.key)
}

func (w *watcher) matches(o *stored) bool {
	if o == nil {
		return false
	}
	matches, err := w.options.Predicate.Matches(o.Object)
	return err == nil && matches
}

// add queues the event of a change. To a watch with a selector, an object that is selected no longer is deleted. The
// caller holds mu.
func (w *watcher) add(c change) {
	if w.ended || c.version <= w.after || c.prefix != w.r.prefix || !w.covers(c.key) {
		return
	}
	was, is := w.matches(c.before), w.matches(c.after)
	switch {
	case is && was:
		w.push(watch.Modified, w.r.show(c.after))
	case is:
		w.push(watch.Added, w.r.show(c.after))
	case was:
		last := w.r.show(c.before)
		setVersion(last, c.version)
		w.push(watch.Deleted, last)
	}
}

func (w *watcher) push(kind watch.EventType, o runtime.Object) {
	w.queue = append(w.queue, watch.Event{Type: kind, Object: o})
	w.signal()
}

// bookmark queues an event that only has a version.
func (w *watcher) bookmark(version uint64, endOfInitial bool) {
	o := w.r.newObject()
	setVersion(o, version)
	if endOfInitial {
		if m, err := meta.Accessor(o); err == nil {
			m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	}
	w.push(watch.Bookmark, o)
}

// fail ends the watch with an error.
func (w *watcher) fail(err error) {
	status := apierrors.NewInternalError(err).ErrStatus
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	w.push(watch.Error, &status)
	w.ended = true
}

func (w *watcher) end() {
	w.ended, w.queue = true, nil
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) take() (events []watch.Event, ended bool) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	events, w.queue = w.queue, nil
	return events, w.ended
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.result)
	defer func() {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		delete(w.server.watchers, w)
	}()
	var bookmarks <-chan time.Time
	if w.options.Predicate.AllowWatchBookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		bookmarks = ticker.C
	}
	for {
		events, ended := w.take()
		for _, e := range events {
			select {
			case w.result <- e:
			case <-ctx.Done():
				return
			}
		}
		if ended {
			return
		}
		select {
		case <-w.wake:
		case <-bookmarks:
			w.server.mu.Lock()
			w.bookmark(max(w.server.version, w.after), false)
			w.server.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// ResultChan implements [watch.Interface].
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements [watch.Interface].
func (w *watcher) Stop() { w.stop() }
