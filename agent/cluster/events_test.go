// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// transport responds to requests in place of an API server.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

func answer(request *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: request}
}

func newCluster(t *testing.T, api transport) *Cluster {
	t.Helper()
	c, err := New(&rest.Config{Transport: api}, "bpfman-agent", "node", "bpfman", logr.Discard())
	if err == nil {
		err = c.Serve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// recorded contains the requests about Events that an API server received, each as "METHOD
// namespace count".
type recorded struct {
	mu       sync.Mutex
	requests []string
	last     eventsv1.Event
	// fails responds to a request instead, unless it is nil.
	fails func(*http.Request) (*http.Response, error)
}

func (r *recorded) answer(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var event eventsv1.Event
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = event
	count := int32(1)
	if event.Series != nil {
		count = event.Series.Count
	}
	path := strings.Split(request.URL.Path, "/")
	r.requests = append(r.requests, fmt.Sprint(request.Method, " ", path[5], " ", count))
	if r.fails != nil {
		if response, err := r.fails(request); response != nil || err != nil {
			return response, err
		}
	}
	return answer(request, http.StatusOK, `{"apiVersion":"events.k8s.io/v1","kind":"Event"}`), nil
}

func (r *recorded) fail(by func(*http.Request) (*http.Response, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = by
}

// emit runs a recorder of Events with synctest's fake time.
func emit(t *testing.T, api *recorded, do func(say func(note string), wants func(requests ...string))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		events := newCluster(t, api.answer).Events
		ctx, stop := context.WithCancel(t.Context())
		go events.Run(ctx)
		defer synctest.Wait()
		defer stop()
		owner := &v1alpha1.TcxProgram{ObjectMeta: metav1.ObjectMeta{Name: "counter", UID: "uid"}}
		say := func(note string) {
			events.Eventf(owner, nil, corev1.EventTypeWarning, "NotLoaded", "Load-"+note, "%s", note)
			synctest.Wait()
		}
		do(say, func(requests ...string) {
			t.Helper()
			synctest.Wait()
			api.mu.Lock()
			defer api.mu.Unlock()
			if !slices.Equal(api.requests, requests) {
				t.Errorf("requests are %q, not %q", api.requests, requests)
			}
			api.requests = nil
		})
	})
}

func TestEvent(t *testing.T) {
	var api recorded
	emit(t, &api, func(say func(string), wants func(...string)) {
		say("no such function: 100 %")
		wants("POST default 1")
	})
	e := api.last
	about := corev1.ObjectReference{APIVersion: "bpfman.io/v1alpha1", Kind: "TcxProgram", Name: "counter", UID: "uid"}
	if e.Regarding != about || e.Reason != "NotLoaded" || e.Type != corev1.EventTypeWarning || e.Note != "no such function: 100 %" ||
		e.ReportingController != "bpfman-agent" || !strings.HasPrefix(e.ReportingInstance, "bpfman-agent-") ||
		!strings.HasPrefix(e.Name, "counter.") || e.EventTime.IsZero() {
		t.Errorf("it is %+v", e)
	}
}

// Similar Events are a series, with a count that is written rarely.
func TestEventsInSeries(t *testing.T) {
	emit(t, &recorded{}, func(say func(string), wants func(...string)) {
		say("a")
		say("b")
		wants("POST default 1", "POST default 1")
		say("a")
		wants("PATCH default 2")
		for range 12 { // for 36 minutes, in which the series continues
			time.Sleep(3 * time.Minute) //nolint:forbidigo // in the bubble, the clock isn't real
			say("a")
		}
		wants("PATCH default 13")
		time.Sleep(2 * seriesGap) //nolint:forbidigo // in the bubble, the clock isn't real
		wants("PATCH default 14")
		say("a")
		say("b")
		wants("POST default 1", "POST default 1")
	})
}

func TestASeriesWhoseEventIsGone(t *testing.T) {
	api := recorded{fails: func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodPatch {
			return answer(request, http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), nil
		}
		return nil, nil
	}}
	emit(t, &api, func(say func(string), wants func(...string)) {
		say("a")
		say("a")
		wants("POST default 1", "PATCH default 2", "POST default 2")
	})
}

// If the API server doesn't respond, an Event is sent again, and the following Events wait.
// An Event that the API server rejects isn't sent again.
func TestEventsThatCannotBeWritten(t *testing.T) {
	var api recorded
	emit(t, &api, func(say func(string), wants func(...string)) {
		api.fail(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		say("a")
		say("b")
		wants("POST default 1")
		api.fail(nil)
		time.Sleep(2 * eventRetry) //nolint:forbidigo // in the bubble, the clock isn't real
		wants("POST default 1", "POST default 1")

		api.fail(func(request *http.Request) (*http.Response, error) {
			return answer(request, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`), nil
		})
		say("c")
		time.Sleep(2 * eventRetry) //nolint:forbidigo // in the bubble, the clock isn't real
		wants("POST default 1")
	})
}
