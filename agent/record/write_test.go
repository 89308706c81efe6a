// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/event"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/problem"
)

func TestTransitionTimes(t *testing.T) {
	earlier, now := metav1.Unix(1000, 0), metav1.Unix(2000, 0)
	status := func(c v1alpha1.BpfProgramConditionType, message string, since metav1.Time) *v1alpha1.BpfProgramStatus {
		condition := c.Condition(message)
		condition.LastTransitionTime = since
		return &v1alpha1.BpfProgramStatus{Conditions: []metav1.Condition{condition}}
	}
	before := status(v1alpha1.BpfProgCondNotLoaded, "no", earlier)
	for name, test := range map[string]struct {
		now  *v1alpha1.BpfProgramStatus
		want metav1.Time
	}{
		"the same":          {status(v1alpha1.BpfProgCondNotLoaded, "no", now), earlier},
		"another message":   {status(v1alpha1.BpfProgCondNotLoaded, "never", now), earlier},
		"another condition": {status(v1alpha1.BpfProgCondLoaded, "", now), now},
	} {
		message := test.now.Conditions[0].Message
		keep(test.now, before)
		if c := test.now.Conditions; len(c) != 1 || c[0].Message != message || !c[0].LastTransitionTime.Equal(&test.want) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// roundTripper is an API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// answering returns a response, with the reason of a failure or a content.
func answering(request *http.Request, code int, content string) (*http.Response, error) {
	if code >= http.StatusBadRequest {
		content = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, content, code)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(content)), Request: request}, nil
}

// reportsTo returns the Reports of a node with an API server.
func reportsTo(t *testing.T, server roundTripper) *Reports {
	t.Helper()
	c, err := cluster.New(&rest.Config{Transport: server}, "bpfman-agent", "node", "", logr.Discard())
	if err == nil {
		err = c.Serve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Reports{Cluster: c, NodeName: "node", Changed: func() {}, Differs: func(program.Key) {}}
}

// members returns an application with some tracepoint programs, and its plan.
func members(n int) (program.Owner, plan.Plan) {
	app := &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "uid"}}
	app.Spec.ByteCode.Path = new("/x.o")
	for i := range n {
		app.Spec.Programs = append(app.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: v1alpha1.ProgTypeTracepoint, Tracepoint: &v1alpha1.TracepointProgramInfo{
			BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: fmt.Sprint("f", i)}, Names: []string{"a/x"},
		}})
	}
	owner := program.OwnerOf("BpfApplication", app)
	return owner, plan.Want(owner, program.Node{}, nil)
}

// What the record says after each outcome of a write, and whether all reports are listed because somebody else writes them.
func TestOutcomesOfWrites(t *testing.T) {
	const created = `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfProgram","metadata":{"name":%q,"uid":"u","resourceVersion":"7"}}`
	for name, c := range map[string]struct {
		code              int // 0 for no response
		reason            metav1.StatusReason
		recorded, doubted int
		relisted          bool
		fails             bool
	}{
		"written":            {code: http.StatusOK, recorded: 1},
		"no response":        {doubted: 1, fails: true},
		"of another agent":   {code: http.StatusConflict, reason: metav1.StatusReasonAlreadyExists, doubted: 1, relisted: true, fails: true},
		"of another version": {code: http.StatusConflict, reason: metav1.StatusReasonConflict, doubted: 1, relisted: true, fails: true},
		"deleted by others":  {code: http.StatusNotFound, reason: metav1.StatusReasonNotFound, doubted: 1, relisted: true, fails: true},
		"refused":            {code: http.StatusForbidden, reason: metav1.StatusReasonForbidden, fails: true},
		"invalid":            {code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid, fails: true},
		"an internal error":  {code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError, doubted: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			owner, want := members(1)
			r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
				switch c.code {
				case 0:
					return nil, errors.New("the connection was closed")
				case http.StatusOK:
					return answering(request, c.code, fmt.Sprintf(created, report.Name(owner, owner.Members[0].ID, "node")))
				}
				return answering(request, c.code, string(c.reason))
			})
			asked := make(chan time.Duration, 1)
			r.asked = append(r.asked, asked)
			err := r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{})
			if (err != nil) != c.fails || len(r.known.of(owner.Key)) != c.recorded || len(r.InDoubt(owner.Key)) != c.doubted || (len(asked) > 0) != c.relisted {
				t.Errorf("%v: %d recorded, %d in doubt, listed: %v", err, len(r.known.of(owner.Key)), len(r.InDoubt(owner.Key)), len(asked) > 0)
			}
		})
	}
}

// While the API server doesn't respond, one write waits for it. What wasn't sent isn't in doubt.
func TestWritesEndAtTheFirstWithoutAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
			sent++
			<-request.Context().Done()
			return nil, request.Context().Err()
		})
		owner, want := members(20)
		start := time.Now()
		for range 3 {
			if err := r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(start); sent != 1 || len(r.InDoubt(owner.Key)) != 1 || took > writeDeadline {
			t.Errorf("%d sent, %d in doubt, after %s", sent, len(r.InDoubt(owner.Key)), took)
		}
	})
}

// At a slow API server, writing the reports of an object takes at most a minute at a time, and goes on where it ended.
func TestSlowWritesEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const programs = 20
		stored := map[string]string{}
		r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
			select {
			case <-time.After(4 * time.Second):
			case <-request.Context().Done():
				return nil, request.Context().Err()
			}
			if request.Method == http.MethodGet {
				_, name, _ := strings.Cut(request.URL.Query().Get("fieldSelector"), "=")
				return answering(request, http.StatusOK, `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfProgramList","metadata":{"resourceVersion":"7"},"items":[`+stored[name]+`]}`)
			}
			content, err := io.ReadAll(request.Body)
			var object v1alpha1.BpfProgram
			if err := errors.Join(err, json.Unmarshal(content, &object)); err != nil {
				t.Error(err)
			}
			stored[object.Name] = string(content)
			return answering(request, http.StatusOK, string(content))
		})
		owner, want := members(programs)
		for calls := 1; ; calls++ {
			_, unsettled := r.Settle(t.Context(), owner.Key)
			start := time.Now()
			err := r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{})
			if took := time.Since(start); took > writeDeadline {
				t.Fatalf("call %d took %s", calls, took)
			}
			if err == nil && unsettled == nil {
				break
			}
			if calls > programs {
				t.Fatalf("after %d calls, %d reports are written: %v", calls, len(stored), errors.Join(unsettled, err))
			}
			<-time.After(time.Minute)
		}
		if got := r.known.of(owner.Key); len(stored) != programs || len(got) != programs {
			t.Errorf("%d reports are written, and %d recorded", len(stored), len(got))
		}
	})
}

// A read that fails leaves its report, and those after it, in doubt.
func TestReadsThatFail(t *testing.T) {
	r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
		return answering(request, http.StatusForbidden, string(metav1.StatusReasonForbidden))
	})
	key := program.Key{Kind: "TcxProgram", Name: "p"}
	r.known.put(key, reportAt("7"), 0)
	if err := r.Read(t.Context(), key, "p-1", "p-2"); err == nil || !strings.Contains(err.Error(), "read BpfProgram p-1: ") {
		t.Errorf("%v", err)
	}
	doubted := r.InDoubt(key)
	slices.Sort(doubted)
	if !slices.Equal(doubted, []string{"p-1", "p-2"}) || len(r.known.of(key)) != 1 {
		t.Errorf("in doubt are %q, of %v", doubted, r.known.of(key))
	}
	if matters, err := r.Settle(t.Context(), key); err == nil || matters {
		t.Errorf("settled: %v, %v", matters, err)
	}
}

// An object waits for its reports for a limited time, no matter how many there are.
func TestReadsEndInTime(t *testing.T) {
	for name, takes := range map[string]time.Duration{"slow": 4 * time.Second, "silent": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
					select {
					case <-time.After(takes):
						return answering(request, http.StatusOK, `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfProgramList","metadata":{"resourceVersion":"7"},"items":[]}`)
					case <-request.Context().Done():
						return nil, request.Context().Err()
					}
				})
				key, start := program.Key{Kind: "TcxProgram", Name: "p"}, time.Now()
				err := r.Read(t.Context(), key, "p-1", "p-2", "p-3", "p-4")
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > readDeadline || !slices.Contains(r.InDoubt(key), "p-4") {
					t.Errorf("after %s: %v, in doubt are %q", took, err, r.InDoubt(key))
				}
			})
		})
	}
}

// Reports can't be used before they have been listed.
func TestReportsAreReadAfterTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reportsTo(t, func(request *http.Request) (*http.Response, error) {
			if strings.HasSuffix(request.URL.Path, "/bpfnsprograms") {
				return answering(request, http.StatusForbidden, string(metav1.StatusReasonForbidden))
			}
			return answering(request, http.StatusOK, `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfProgramList","metadata":{"resourceVersion":"7"},"items":[]}`)
		})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var listing []func(context.Context)
		r.Start(func(f func(context.Context)) { listing = append(listing, f) })
		for _, namespace := range []string{"", "n"} {
			if _, err := r.Of(program.Key{Namespace: namespace}); !kinds.Unread(err) {
				t.Errorf("before the first list of %q: %v", namespace, err)
			}
		}
		for _, f := range listing {
			go f(ctx)
		}
		<-time.After(time.Minute)
		if _, err := r.Of(program.Key{}); err != nil {
			t.Errorf("after it: %v", err)
		}
		if _, err := r.Of(program.Key{Namespace: "n"}); !kinds.Unread(err) {
			t.Errorf("of a kind that can't be listed: %v", err)
		}
		stop()
		synctest.Wait()
	})
}

// An Event names a report that the API server forbids, and of no other failure.
func TestForbiddenReportsAreTold(t *testing.T) {
	for code, reason := range map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusConflict: metav1.StatusReasonConflict} {
		t.Run(string(reason), func(t *testing.T) {
			r, firstEvent := ofApplication(t, func(request *http.Request) (*http.Response, error) { return answering(request, code, string(reason)) })
			owner, want := members(2)
			if r.Write(t.Context(), owner.Key, &owner, want, nil, report.Outcome{}) == nil {
				t.Error("written")
			}
			first := firstEvent()
			if got := strings.Contains(first, reasonNotReported); got != (code == http.StatusForbidden) {
				t.Errorf("the first Event is %s", first)
			}
		})
	}
}

// An Event reports a program that recovers or is reloaded, and one that starts to violate a policy in mode warn. One whose image is
// read from its registry again hasn't recovered.
func TestChangesAreTold(t *testing.T) {
	is := func(c metav1.Condition, id uint32) v1alpha1.BpfProgramStatus {
		return v1alpha1.BpfProgramStatus{Conditions: []metav1.Condition{c}, ProgramID: id}
	}
	judged := func(verdict v1alpha1.PolicyVerdict, message string) v1alpha1.BpfProgramStatus {
		s := is(v1alpha1.BpfProgCondLoaded.Condition(), 7)
		s.Bytecode = &v1alpha1.BpfProgramBytecode{Policies: []v1alpha1.BpfProgramPolicy{{Name: "signed", Verdict: verdict, Message: message}}}
		return s
	}
	failed, read := is(v1alpha1.BpfProgCondBytecodeSelectorError.Condition("no route to host"), 0), is(v1alpha1.BpfProgCondNone.Condition("waiting for its registry"), 0)
	loaded := is(v1alpha1.BpfProgCondLoaded.Condition(), 7)
	known := failed
	known.Problem = string(problem.RegistryUnreachable)
	const nothing = "the last Event"
	for name, c := range map[string]struct {
		was, is v1alpha1.BpfProgramStatus
		want    string
	}{
		"recovers":              {failed, loaded, "recovered"},
		"is read again":         {failed, read, nothing},
		"fails after the read":  {read, failed, "no route to host"},
		"fails at first":        {v1alpha1.BpfProgramStatus{}, failed, "no route to host"},
		"with a log":            {read, is(v1alpha1.BpfProgCondNotLoaded.Condition("the verifier refuses it\n0: R1=ctx()"), 0), `the verifier refuses it"`},
		"for a known reason":    {v1alpha1.BpfProgramStatus{}, known, " (RegistryUnreachable): no route to host"},
		"loaded after the read": {read, loaded, nothing},
		"stays loaded":          {loaded, loaded, nothing},
		"is reloaded":           {loaded, is(v1alpha1.BpfProgCondLoaded.Condition(), 8), "program 8 replaced program 7"},
		"violates a policy":     {loaded, judged(v1alpha1.VerdictWarned, "no signature"), "Policy signed would deny program"},
		"violates it still":     {judged(v1alpha1.VerdictWarned, "no signature"), judged(v1alpha1.VerdictWarned, "no signature"), nothing},
		"in another way":        {judged(v1alpha1.VerdictWarned, "no signature"), judged(v1alpha1.VerdictWarned, "a wrong key"), "a wrong key"},
		"is allowed":            {loaded, judged(v1alpha1.VerdictAllowed, ""), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			r, firstEvent := ofApplication(t, func(request *http.Request) (*http.Response, error) {
				return nil, fmt.Errorf("%s is written", request.URL)
			})
			owner, _ := members(1)
			r.tell(owner.Key, &v1alpha1.BpfProgram{Status: c.is}, &c.was)
			if first := firstEvent(); !strings.Contains(first, c.want) {
				t.Errorf("the first Event is %s, want %q", first, c.want)
			}
		})
	}
}

// ofApplication returns the Reports of a node that knows the application of members, and a function that returns the first
// Event, or one that says that it is the last.
func ofApplication(t *testing.T, written roundTripper) (r *Reports, firstEvent func() string) {
	t.Helper()
	events := make(chan string, 10)
	r = reportsTo(t, func(request *http.Request) (*http.Response, error) {
		switch {
		case request.URL.Query().Get("watch") != "": // so that the reflector falls back to a list
			return answering(request, http.StatusInternalServerError, string(metav1.StatusReasonInternalError))
		case strings.HasSuffix(request.URL.Path, "/events"):
			content, err := io.ReadAll(request.Body)
			events <- string(content)
			return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: request}, err
		case request.Method == http.MethodGet:
			return answering(request, http.StatusOK, `{"apiVersion":"bpfman.io/v1alpha1","kind":"BpfApplicationList","metadata":{"resourceVersion":"7"},
				"items":[{"metadata":{"name":"app","uid":"uid"},"spec":{}}]}`)
		}
		return written(request)
	})
	listed := make(chan struct{})
	r.Cluster.Watch(t.Context(), v1alpha1.SchemeGroupVersion.WithKind("BpfApplication"), noHandler{}, func() { close(listed) })
	<-listed
	return r, func() string {
		event.Emit(r.Cluster.Events, &v1alpha1.BpfApplication{ObjectMeta: metav1.ObjectMeta{Name: "app"}}, corev1.EventTypeNormal, "Last", "Report", "the last Event")
		go r.Cluster.Events.Run(t.Context())
		return <-events
	}
}

// noHandler handles no events.
type noHandler struct{}

func (noHandler) OnAdd(any, bool)   {}
func (noHandler) OnUpdate(any, any) {}
func (noHandler) OnDelete(any)      {}
