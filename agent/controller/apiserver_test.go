// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
)

// apiServer is an API server in memory. Its objects don't change, except for reports, which the agent writes.
type apiServer struct {
	// lists contains the items of the lists of other resources.
	lists map[string]string
	// forbidden is a resource that the agent may not read, or "".
	forbidden string
	// failing are resources whose reads fail, with these statuses.
	failing map[string]metav1.Status

	mu      sync.Mutex
	version int
	reports map[string]string // in JSON, by name
	// dropped means that the packets of requests are dropped.
	dropped bool
	// reads counts the lists of each resource.
	reads map[string]int
	// watches are the last watches of each resource, to which events are written.
	watches map[string]*io.PipeWriter
}

// tell sends an event about an object of a resource, in JSON, to its last watch.
func (s *apiServer) tell(resource, event, object string) error {
	s.mu.Lock()
	to := s.watches[resource]
	s.mu.Unlock()
	if to == nil {
		return errors.New("nobody watches " + resource)
	}
	_, err := io.WriteString(to, `{"type":"`+event+`","object":`+object+`}`)
	return err
}

// listed returns how often a resource was listed.
func (s *apiServer) listed(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[resource]
}

// fail has reads of a resource fail with a status, or succeed if that is nil.
func (s *apiServer) fail(resource string, status *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status == nil {
		delete(s.failing, resource)
		return
	}
	s.failing = map[string]metav1.Status{resource: *status}
}

// written returns how often objects were written.
func (s *apiServer) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *apiServer) drop(dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = dropped
}

// RoundTrip implements [http.RoundTripper].
func (s *apiServer) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	watch := request.URL.Query().Get("watch") == "true"
	if s.dropped {
		s.mu.Unlock()
		defer s.mu.Lock()
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	resource := strings.Split(strings.TrimPrefix(strings.TrimPrefix(request.URL.Path, "/api/v1/"), "/apis/bpfman.io/v1alpha1/"), "/")
	if resource[0] == "namespaces" {
		resource = resource[2:]
	}
	if resource[0] == s.forbidden {
		return respond(request, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden","reason":"Forbidden","code":403}`), nil
	}
	if status, fails := s.failing[resource[0]]; fails {
		status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
		content, _ := json.Marshal(status) //nolint:errchkjson // a struct of strings and numbers
		return respond(request, int(status.Code), string(content)), nil
	}
	if watch {
		if request.URL.Query().Get("sendInitialEvents") != "" {
			return respond(request, http.StatusUnprocessableEntity, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`), nil
		}
		events, from := io.Pipe()
		s.watches[resource[0]] = from
		context.AfterFunc(request.Context(), func() { events.Close() })
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: events, Request: request}, nil
	}
	switch request.Method {
	case http.MethodGet:
		items := s.lists[resource[0]]
		s.reads[resource[0]]++
		if name, one := strings.CutPrefix(request.URL.Query().Get("fieldSelector"), "metadata.name="); resource[0] == "bpfprograms" && one {
			items = s.reports[name]
		}
		return respond(request, http.StatusOK, `{`+listOf(resource[0])+`,"metadata":{"resourceVersion":"`+strconv.Itoa(s.version)+`"},"items":[`+items+`]}`), nil
	case http.MethodPost, http.MethodPut:
		var object map[string]any
		if err := json.NewDecoder(request.Body).Decode(&object); err != nil {
			return nil, err
		}
		s.version++
		metadata := object["metadata"].(map[string]any) //nolint:errcheck // an object has it
		metadata["resourceVersion"] = strconv.Itoa(s.version)
		content, _ := json.Marshal(object) //nolint:errchkjson // a map of values from JSON
		if resource[0] == "bpfprograms" {
			s.reports[metadata["name"].(string)] = string(content) //nolint:errcheck // an object has it
		}
		return respond(request, http.StatusOK, string(content)), nil
	}
	return respond(request, http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), nil
}

// listOf returns the type of a list of a resource, in JSON.
func listOf(resource string) string {
	for _, kind := range v1alpha1.AllKinds() {
		if kind.Resource() == resource {
			return `"apiVersion":"bpfman.io/v1alpha1","kind":"` + kind.Name + `List"`
		}
	}
	return map[string]string{
		"nodes": `"apiVersion":"v1","kind":"NodeList"`, "configmaps": `"apiVersion":"v1","kind":"ConfigMapList"`, "pods": `"apiVersion":"v1","kind":"PodList"`,
	}[resource]
}

func respond(request *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: request}
}

// host is the node of a Controller, whose daemon is in memory.
type host struct {
	*Controller

	daemon *daemontest.Daemon

	mu         sync.Mutex
	interfaces map[string]program.Interface
}

// startController starts a Controller on a node with interface eth0, until the test ends. Options can change its options.
func startController(tb testing.TB, server *apiServer, change func(*Options)) (h *host, stop func()) {
	tb.Helper()
	server.reports, server.reads, server.watches, server.version = map[string]string{}, map[string]int{}, map[string]*io.PipeWriter{}, 1
	server.lists["nodes"] = `{"metadata":{"name":"node"}}`
	c, err := cluster.New(&rest.Config{Transport: server}, "bpfman-agent", "node", "bpfman", logr.Discard())
	if err == nil {
		err = c.Serve(nil)
	}
	if err != nil {
		tb.Fatal(err)
	}
	h = &host{daemon: daemontest.New(tb.TempDir()), interfaces: map[string]program.Interface{"eth0": {Index: 2}}}
	options := Options{
		Cluster: c, Inventory: daemon.NewInventory(h.daemon, h.daemon.Root), NodeName: "node", Namespace: "bpfman", Bpffs: filepath.Join(h.daemon.Root, "run/bpfman/fs"),
		Interfaces: func() (map[string]program.Interface, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return maps.Clone(h.interfaces), nil
		},
		Containers:    func(context.Context, []corev1.Pod) ([]program.Container, error) { return nil, nil },
		PodInterfaces: func([]program.Container) {}, UprobeNamespaces: []string{"*"},
		Bytecode: &bytecode.Library{Store: &bytecode.Store{Dir: tb.TempDir(), Limit: 1 << 20}},
	}
	if change != nil {
		change(&options)
	}
	h.Controller = New(options)
	ctx, cancel := context.WithCancel(tb.Context())
	var group sync.WaitGroup
	background := func(f func(context.Context)) { group.Go(func() { f(ctx) }) }
	background(c.Events.Run)
	h.watch(ctx, background)
	h.work(background)
	return h, func() {
		cancel()
		group.Wait()
		h.reporter.finish(ctx)
	}
}

// appears adds an interface to the node, as the kernel announces it.
func (h *host) appears(ctx context.Context, name string) {
	h.mu.Lock()
	h.interfaces[name] = program.Interface{Index: len(h.interfaces) + 2}
	h.mu.Unlock()
	h.interfacesChanged(ctx)
}

// links returns the number of the daemon's links.
func (h *host) links() int {
	n := 0
	for _, p := range h.daemon.Programs() {
		n += len(p.Links)
	}
	return n
}

// within waits until a condition is met, for at most a time.
func within(tb testing.TB, limit time.Duration, what string, met func() bool) {
	tb.Helper()
	for end := time.Now().Add(limit); !met(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %s", what, limit)
		}
	}
}

// discovering returns TcxPrograms that are attached to each interface of the node, in JSON.
func discovering(names ...string) string {
	objects := make([]string, len(names))
	for n, name := range names {
		objects[n] = `{"metadata":{"name":"` + name + `","uid":"uid-` + name + `"},"spec":{"bpffunctionname":"f","direction":"ingress","priority":50,
			"interfaceselector":{"interfacesdiscoveryconfig":{"interfaceautodiscovery":true}},"bytecode":{"path":"/object.o"},"nodeselector":{}}}`
	}
	return strings.Join(objects, ",")
}

// reportsAgree reports whether the API server has as many links in its reports as the daemon.
func (h *host) reportsAgree(s *apiServer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, content := range s.reports {
		var report v1alpha1.BpfProgram
		if json.Unmarshal([]byte(content), &report) == nil {
			n += len(report.Status.Links)
		}
	}
	return n == h.links()
}
