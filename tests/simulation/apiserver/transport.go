// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Phase is when an [Interceptor] sees a request.
type Phase int

const (
	// Arrives is before a request takes effect.
	Arrives Phase = iota
	// Answered is after a request took effect, before the client has the response. A watch is answered when it begins.
	Answered
	// Delivers is before a part of the response of a watch, which is about one event, arrives at the client.
	Delivers
)

// Request is a request that an [Interceptor] sees.
type Request struct {
	*http.Request
	// RequestInfo has the verb, such as "list", "watch", "patch", or "deletecollection", the resource, and so on.
	*request.RequestInfo
	Actor string
	Phase Phase
	// AsOf can be set to an earlier resource version when the request arrives: the server answers like one that is that
	// far behind. Requests that demand the newest state, such as a list without a resource version, fail if it is set: see
	// [Request.CanBeStale].
	AsOf uint64
	// Code is the code of the answer, in the phases after Arrives.
	Code int
	// Event is what is delivered, as JSON or protobuf.
	Event []byte
}

// CanBeStale returns whether an API server can answer the request from its cache.
func (q *Request) CanBeStale() bool {
	switch q.Verb {
	case "get", "list", "watch":
		return q.URL.Query().Get("resourceVersion") != "" && q.URL.Query().Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact)
	default:
		return false
	}
}

// Interceptor can delay a request, with the virtual time and the request's context, and can fail it. An error that is an
// [apierrors.APIStatus] is the API server's answer, and any other is the transport's, such as [io.EOF]. In the phase Delivers,
// an error ends the watch: use [io.EOF] or [io.ErrUnexpectedEOF], because after others client-go leaks a goroutine if the
// watch is stopped. A nil Interceptor does nothing. It runs in the request's goroutine.
type Interceptor func(*Request) error

// errCrashed is the error of all requests of a process that has crashed.
var errCrashed = errors.New("the process has crashed")

// Transport returns the transport of an actor: requests fail and watches end when alive ends. Requests that aren't about
// resources, such as discovery, aren't intercepted, except for /version: controller-runtime holds a mutex meanwhile, for
// which no virtual time passes.
func (s *Server) Transport(actor string, alive context.Context, intercept Interceptor) http.RoundTripper { //nolint:revive // the context is the process's life
	if intercept == nil {
		intercept = func(*Request) error { return nil }
	}
	return &transport{s, actor, alive, intercept}
}

type transport struct {
	server    *Server
	actor     string
	alive     context.Context //nolint:containedctx // see Transport
	intercept Interceptor
}

var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Body != nil {
		defer q.Body.Close()
	}
	if t.alive.Err() != nil {
		return nil, errCrashed
	}
	info, err := requests.NewRequestInfo(q)
	if err != nil {
		return nil, fmt.Errorf("understand %s %s: %w", q.Method, q.URL, err)
	}
	ctx, cancel := context.WithCancel(q.Context())
	defer context.AfterFunc(t.alive, cancel)() //nolint:contextcheck // the process's life
	seen := &Request{Request: q.WithContext(ctx), RequestInfo: info, Actor: t.actor}
	if err := t.pass(seen, Arrives); err != nil {
		cancel()
		return t.fail(q, err)
	}
	if seen.AsOf != 0 && !seen.CanBeStale() {
		panic(fmt.Sprintf("%s %s of %s can't be stale", q.Method, q.URL, t.actor))
	}
	response, err := t.server.serve(seen, cancel) //nolint:contextcheck // the request has it
	if err != nil {
		cancel()
		return nil, err
	}
	seen.Code = response.StatusCode
	if err := t.pass(seen, Answered); err != nil {
		_ = response.Body.Close()
		cancel()
		return t.fail(q, err)
	}
	body, isStream := response.Body.(*stream)
	if !isStream {
		cancel()
		return response, nil
	}
	stop := context.AfterFunc(t.alive, func() { body.finish(io.ErrUnexpectedEOF); cancel() }) //nolint:contextcheck // as above
	body.onClose = func() { stop(); cancel() }
	body.deliver = func(part []byte) error {
		seen := *seen
		seen.Event = part
		err := t.pass(&seen, Delivers)
		if errors.Is(err, errCrashed) || errors.Is(err, context.Canceled) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return response, nil
}

func (t *transport) pass(q *Request, phase Phase) error {
	if !q.IsResourceRequest && q.Path != "/version" {
		return nil
	}
	q.Phase = phase
	if err := t.intercept(q); err != nil {
		return err
	}
	if t.alive.Err() != nil {
		return errCrashed
	}
	return q.Context().Err()
}

// fail answers with an error.
func (*transport) fail(q *http.Request, err error) (*http.Response, error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		return nil, err
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w := newRecorder()
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	reply(w, status)
	return w.response(q), nil
}

// serve executes a request.
func (s *Server) serve(q *Request, cancel context.CancelFunc) (*http.Response, error) {
	ctx := context.WithValue(q.Context(), serverKey{}, caller{s, q.Actor, q.AsOf})
	ctx = audit.WithAuditContext(request.WithRequestInfo(ctx, q.RequestInfo))
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: q.Actor})
	incoming := q.WithContext(ctx)
	if incoming.Body == nil {
		incoming.Body = http.NoBody
	}
	if q.Verb == "watch" {
		if refused := s.refuseWatchList(q); refused != nil {
			return (*transport)(nil).fail(q.Request, refused)
		}
		return s.stream(incoming, cancel)
	}
	w := newRecorder()
	s.serial.Lock()
	defer s.serial.Unlock()
	filters.WithWarningRecorder(s.handler(q.RequestInfo)).ServeHTTP(w, incoming)
	return w.response(q.Request), nil
}

// refuseWatchList returns the answer of a server without watches with initial events.
func (s *Server) refuseWatchList(q *Request) error {
	if !s.WithoutWatchList || !q.URL.Query().Has("sendInitialEvents") {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
	})
}

func (s *Server) handler(info *request.RequestInfo) http.HandlerFunc {
	group := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	switch {
	case !info.IsResourceRequest:
		return s.handlers.discover
	case group == reviewResource.GroupResource() && info.APIVersion == reviewResource.Version:
		return s.handlers.reviews
	case s.handlers.resources[group] == nil || s.handlers.builtins[group] != nil && s.handlers.builtins[group].scope.Kind.Version != info.APIVersion:
		return s.handlers.serveUnknown
	case s.handlers.builtins[group] != nil:
		return s.handlers.builtins[group].ServeHTTP
	default:
		return s.handlers.serveCustom
	}
}

// recorder is a response that isn't a watch.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (w *recorder) Header() http.Header { return w.header }
func (w *recorder) Flush()              {}

// CloseNotify implements [http.CloseNotifier], which the handlers require beside [http.Flusher]. They don't use it.
func (*recorder) CloseNotify() <-chan bool { return nil }

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *recorder) response(q *http.Request) *http.Response {
	w.WriteHeader(http.StatusOK)
	return newResponse(q, w.code, w.header, io.NopCloser(&w.body), int64(w.body.Len()))
}

func newResponse(q *http.Request, code int, header http.Header, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Header: header, Body: body, ContentLength: length,
		Request: q, Proto: "HTTP/2.0", ProtoMajor: 2,
	}
}

// stream is the response of a watch. A read waits until the handler has written.
type stream struct {
	header  http.Header
	begun   chan struct{} // closed when the code is known
	onClose func()
	deliver func([]byte) error

	mu    sync.Mutex // never held while anything waits
	code  int
	parts [][]byte
	ended error
	wake  chan struct{}

	rest []byte // of the part that is being read
}

// stream executes a watch. It returns when its first byte, or its code, is known.
func (s *Server) stream(q *http.Request, cancel context.CancelFunc) (*http.Response, error) {
	w := &stream{header: http.Header{}, begun: make(chan struct{}), wake: make(chan struct{}, 1), onClose: cancel, deliver: func([]byte) error { return nil }}
	info, _ := request.RequestInfoFrom(q.Context())
	go func() {
		s.handler(info)(w, q)
		w.WriteHeader(http.StatusOK)
		w.finish(io.EOF)
	}()
	select {
	case <-w.begun:
		return newResponse(q, w.code, w.header, w, -1), nil
	case <-q.Context().Done():
		return nil, q.Context().Err()
	}
}

func (w *stream) Header() http.Header { return w.header }
func (w *stream) Flush()              { w.WriteHeader(http.StatusOK) }

// CloseNotify implements [http.CloseNotifier], as above.
func (*stream) CloseNotify() <-chan bool { return nil }

func (w *stream) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.code == 0 {
		w.code = code
		close(w.begun)
	}
}

func (w *stream) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return 0, w.ended
	}
	w.parts = append(w.parts, bytes.Clone(p))
	w.signal()
	return len(p), nil
}

func (w *stream) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// finish ends the stream, after what is already written if the end is in order.
func (w *stream) finish(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return
	}
	w.ended = err
	if !errors.Is(err, io.EOF) {
		w.parts = nil
	}
	w.signal()
}

func (w *stream) next() (part []byte, wait bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.parts) > 0 {
		part, w.parts = w.parts[0], w.parts[1:]
		return part, false, nil
	}
	return nil, w.ended == nil, w.ended
}

// Read implements [io.Reader].
func (w *stream) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		part, wait, err := w.next()
		switch {
		case wait:
			<-w.wake
		case err != nil:
			w.signal() // for the next read
			return 0, err
		default:
			if err := w.deliver(part); err != nil {
				w.finish(err)
				return 0, err
			}
			w.rest = part
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// Close implements [io.Closer].
func (w *stream) Close() error {
	w.onClose()
	w.finish(io.ErrUnexpectedEOF)
	return nil
}
