// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package publish

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

// server is an API server with one Node, and its BpfNode if it exists.
type server struct {
	t testing.TB

	mu       sync.Mutex
	object   *v1alpha1.BpfNode
	version  int
	writes   int
	reads    int
	away     bool
	refused  int         // requests while it was away
	received []time.Time // times of writes to the status
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		s.refused++
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	const objects = "/apis/bpfman.io/v1alpha1/bpfnodes"
	switch path := r.Method + " " + r.URL.Path; path {
	case "GET /api/v1/nodes/n":
		s.answer(w, http.StatusOK, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid-of-n"}})
	case "GET " + objects + "/n":
		s.reads++
		s.give(w, http.StatusOK)
	case "POST " + objects:
		s.object = &v1alpha1.BpfNode{}
		s.take(w, r, s.object, http.StatusCreated)
	case "PUT " + objects + "/n/status":
		update := &v1alpha1.BpfNode{}
		if s.object != nil {
			if err := json.NewDecoder(r.Body).Decode(update); err != nil {
				s.t.Error(err)
			}
			if update.ResourceVersion != s.object.ResourceVersion {
				s.refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
				return
			}
			s.received = append(s.received, time.Now())
			s.object.Status = update.Status
			s.version++
			s.writes++
			s.object.ResourceVersion = strconv.Itoa(s.version)
		}
		s.give(w, http.StatusOK)
	case "PATCH " + objects + "/n":
		patch := &v1alpha1.BpfNode{}
		if err := json.NewDecoder(r.Body).Decode(patch); err != nil || patch.ResourceVersion != s.object.ResourceVersion {
			s.t.Errorf("the patch is of version %q: %v", patch.ResourceVersion, err)
		}
		s.object.Annotations = patch.Annotations
		s.version++
		s.writes++
		s.object.ResourceVersion = strconv.Itoa(s.version)
		s.give(w, http.StatusOK)
	default:
		s.t.Errorf("unexpected %s", path)
		http.NotFound(w, r)
	}
}

func (s *server) take(w http.ResponseWriter, r *http.Request, object *v1alpha1.BpfNode, code int) {
	if err := json.NewDecoder(r.Body).Decode(object); err != nil {
		s.t.Error(err)
	}
	s.version++
	s.writes++
	object.ResourceVersion, object.Status = strconv.Itoa(s.version), v1alpha1.BpfNodeStatus{}
	s.give(w, code)
}

func (s *server) give(w http.ResponseWriter, code int) {
	if s.object == nil {
		s.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	s.answer(w, code, s.object)
}

func (s *server) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	s.answer(w, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: string(reason),
	})
}

func (s *server) answer(w http.ResponseWriter, code int, object any) {
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

// do changes the server while it holds its lock.
func (s *server) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// since returns the transition time of the first condition.
func (s *server) since() (since metav1.Time) {
	s.do(func() { since = s.object.Status.Conditions[0].LastTransitionTime })
	return since
}

// await waits until the server is in the expected state.
func (s *server) await(what string, right func() bool) {
	s.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		ok := right()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-deadline:
			s.t.Fatalf("not so: %s: %+v", what, s.object)
		case <-time.After(time.Millisecond):
		}
	}
}

// publisher returns a publisher that runs until the test ends.
func publisher(t *testing.T, s *server, pace Pace) *Publisher {
	t.Helper()
	p, err := New(&rest.Config{Transport: s}, "n", pace, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func status(programs int32, inspected metav1.ConditionStatus) *v1alpha1.BpfNodeStatus {
	return &v1alpha1.BpfNodeStatus{ProgramCount: programs, Conditions: []metav1.Condition{{Type: v1alpha1.BpfNodeInspected, Status: inspected, Reason: "Test"}}}
}

func TestPublish(t *testing.T) {
	s := &server{t: t}
	p := publisher(t, s, Pace{Write: time.Millisecond, Check: time.Hour, Retry: time.Millisecond})
	p.Publish(status(1, metav1.ConditionTrue))
	s.await("created, the Node's, with its status", func() bool {
		return s.object != nil && s.object.Status.ProgramCount == 1 && len(s.object.OwnerReferences) == 1 && s.object.OwnerReferences[0].UID == "uid-of-n"
	})
	since := s.since()
	if since.IsZero() {
		t.Error("a condition has no time")
	}
	p.Publish(status(2, metav1.ConditionTrue))
	s.await("updated", func() bool { return s.object.Status.ProgramCount == 2 })
	if now := s.since(); !now.Equal(&since) {
		t.Errorf("a condition that hasn't changed is since %v, was since %v", now, since)
	}
	s.do(func() { s.object = nil })
	p.Publish(status(3, metav1.ConditionFalse))
	s.await("created again", func() bool { return s.object != nil && s.object.Status.ProgramCount == 3 })
	s.do(func() { s.version++; s.object.ResourceVersion = strconv.Itoa(s.version) })
	p.Publish(status(4, metav1.ConditionFalse))
	s.await("written over another's change", func() bool { return s.object.Status.ProgramCount == 4 })
}

func TestNoWriteWithoutChange(t *testing.T) {
	s := &server{t: t}
	p := publisher(t, s, Pace{Write: time.Millisecond, Check: 20 * time.Millisecond, Retry: time.Millisecond})
	p.Publish(status(1, metav1.ConditionTrue))
	s.await("written", func() bool { return s.object != nil && s.object.Status.ProgramCount == 1 })
	writes, reads := 0, 0
	s.do(func() { writes, reads = s.writes, s.reads })
	p.Publish(status(1, metav1.ConditionTrue))
	s.await("read again and again", func() bool { return s.reads > reads+5 })
	s.do(func() {
		if s.writes != writes {
			t.Errorf("%d writes of what hadn't changed", s.writes-writes)
		}
		s.object = nil
	})
	s.await("there again though nothing was published", func() bool { return s.object != nil && s.object.Status.ProgramCount == 1 })
}

// The annotation has the conflicts of objects, and since when they have been reported. A restart doesn't change that.
func TestHealth(t *testing.T) {
	s := &server{t: t}
	pace := Pace{Write: time.Millisecond, Check: time.Hour, Retry: time.Millisecond}
	with := func(programs int32, messages ...string) *v1alpha1.BpfNodeStatus {
		status := status(programs, metav1.ConditionTrue)
		for _, message := range messages {
			status.Conflicts = append(status.Conflicts, v1alpha1.BpfNodeConflict{Type: v1alpha1.BpfNodeEventNearLimit, Message: message, Owner: &v1alpha1.BpfNodeOwner{Kind: "TcxProgram", Name: "flows"}})
		}
		return status
	}
	// health returns the messages of conflicts in the annotation. With other, their times have to be another one.
	health := func(not metav1.Time) (messages []string) {
		h, err := rollout.ParseHealth(s.object.Annotations[v1alpha1.AnnotationObjectHealth])
		if err != nil {
			t.Error(err)
		}
		for _, c := range h.Conflicts {
			if c.Name == "flows" && !c.Since.IsZero() && !c.Since.Equal(&not) {
				messages = append(messages, c.Message)
			}
		}
		return messages
	}
	p := publisher(t, s, pace)
	p.Publish(with(1))
	s.await("written without an annotation", func() bool { return s.object != nil && s.object.Status.ProgramCount == 1 })
	p.Publish(with(1, "first"))
	s.await("annotated", func() bool { return slices.Equal(health(metav1.Time{}), []string{"first"}) })

	long := metav1.NewTime(time.Unix(1_700_000_000, 0))
	s.do(func() {
		if s.object.Status.Conflicts[0].Since == nil {
			t.Error("the status doesn't say since when")
		}
		s.object.Status.Conflicts[0].Since = &long
	})
	again := publisher(t, s, pace)
	again.Publish(with(2, "first", "second"))
	s.await("the second is new", func() bool { return slices.Equal(health(long), []string{"second"}) && len(health(metav1.Time{})) == 2 })
	again.Publish(with(2))
	s.await("none", func() bool {
		return len(s.object.Status.Conflicts) == 0 && s.object.Annotations[v1alpha1.AnnotationObjectHealth] == ""
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pace = 200 * time.Millisecond
		s := &server{t: t}
		p := publisher(t, s, Pace{Write: pace, Check: time.Hour, Retry: time.Millisecond})
		for i := range int32(200) {
			p.Publish(status(i+1, metav1.ConditionTrue))
			<-time.After(5 * time.Millisecond)
		}
		s.await("the last", func() bool { return s.object != nil && s.object.Status.ProgramCount == 200 })
		var received []time.Time
		s.do(func() { received = s.received })
		for i, at := range received[1:] {
			if gap := at.Sub(received[i]); gap < pace {
				t.Errorf("%v between two writes", gap)
			}
		}
		if len(received) < 3 {
			t.Errorf("%d writes in more than a second", len(received))
		}
	})
}

func TestServerAway(t *testing.T) {
	s := &server{t: t, away: true}
	p := publisher(t, s, Pace{Write: time.Millisecond, Check: time.Second, Retry: time.Millisecond})
	if before, err := p.Read(t.Context()); before != nil || err == nil || !strings.Contains(err.Error(), "read BpfNode n") {
		t.Errorf("read %+v, %v", before, err)
	}
	p.Publish(status(1, metav1.ConditionTrue))
	<-time.After(20 * time.Millisecond)
	s.do(func() { s.away = false })
	s.await("written when it is back", func() bool { return s.object != nil && s.object.Status.ProgramCount == 1 })
}

// Changes don't shorten the wait after failures: those of all nodes would keep a server that is overloaded so.
func TestChangesWhileTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, away: true}
		p := publisher(t, s, Pace{Write: time.Second, Check: 30 * time.Second, Retry: time.Second})
		for i := range int32(600) {
			p.Publish(status(i+1, metav1.ConditionTrue))
			<-time.After(100 * time.Millisecond)
		}
		s.do(func() {
			if s.refused != 6 { // after 0, 1, 3, 7, 15, and 31 seconds
				t.Errorf("%d requests in a minute", s.refused)
			}
			s.away = false
		})
		s.await("the last", func() bool { return s.object != nil && s.object.Status.ProgramCount == 600 })
		p.Publish(status(601, metav1.ConditionTrue))
		<-time.After(time.Second)
		s.await("the next one, at the normal pace", func() bool { return s.object.Status.ProgramCount == 601 })
	})
}
