// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package agent tests the agent with a real API server and a daemon in memory: what it
// writes, and that no crash makes it lose or duplicate anything.
package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/cluster"
	"github.com/bpfman/bpfman-operator/agent/confirm"
	"github.com/bpfman/bpfman-operator/agent/controller"
	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/metrics"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/kinds"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/registry"
)

// authority is the authority that the agent, which runs in this process, trusts for
// registries.
var authority *registry.Authority

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "authority")
	if err == nil {
		authority, err = registry.NewAuthority(filepath.Join(dir, "ca.crt"))
	}
	// Go reads it once, for the first certificate that it verifies.
	if err = errors.Join(err, os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "ca.crt"))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	envtest.Main(m)
}

// node is the node of a test: its daemon, and an agent that can be crashed and restarted.
type node struct {
	t      *testing.T
	name   string
	client client.Client
	daemon *daemontest.Daemon
	// store is the directory with the objects of images.
	store string
	// writes is called for each write request of the agent, before it is sent and after
	// the response. If it returns an error, the request fails with it.
	// A StatusError is the API server's response.
	writes func(request string, done bool) error

	// registry contains the metrics of the last started agent. kinds contains what it can
	// read.
	registry *prometheus.Registry
	kinds    *kinds.Kinds

	mu sync.Mutex
	// cut, if set, reports whether the node can't reach the API server.
	cut        func() bool
	interfaces map[string]program.Interface
	// containers are the containers of the runtime, or the runtime's error.
	containers    []program.Container
	containersErr error
	lastPID       int
	// outlived are the UIDs of pods that are deleted by force, and whose containers run on.
	outlived map[string]bool
	// podInterfaces are the interfaces in the networks of pods, by the pods' names.
	podInterfaces map[string][]string
	// unreadable is a resource that the agent has no permission to read. undefined is a
	// resource without a definition.
	unreadable, undefined string
	// paused contains, by the names of resources, channels that are closed when they may be read again.
	paused map[string]chan struct{}
	// signed contains the names of the authorities that signed an image, by its digest.
	// unread is the reason why images can't be read. read contains the requests.
	signed map[string][]string
	unread string
	read   []*reader.Request
	// onRead, if set, is called for each of these requests.
	onRead func(context.Context)

	// confirm is the time limit for confirming changes by the next started agent. 0 means that it doesn't.
	confirm       time.Duration
	changes, proc string

	// drift is how often the next started agent compares. 0 means a minute.
	drift time.Duration
	// findKinds is how often it checks unused kinds. 0 means a fifth of a second.
	// relistReports is how often it lists its reports. 0 means almost never.
	findKinds, relistReports time.Duration
	// ended receives the error of the last started agent when it ends.
	ended chan error

	stop    func()
	written []string
	// watched are the resources that the last started agent watches.
	watched map[string]bool
}

// start creates a node with a running agent. The test's name determines the node's name.
func start(t *testing.T) *node {
	t.Helper()
	// It is also the value of a label.
	name := v1alpha1.LabelValue(strings.ToLower(t.Name()))
	return startNamed(t, name, map[string]string{"test": name})
}

func startNamed(t *testing.T, name string, labels map[string]string) *node {
	t.Helper()
	n := &node{t: t, name: name, client: envtest.Client(t, envtest.Config(t)), daemon: daemontest.New(t.TempDir()), store: t.TempDir(), changes: t.TempDir(), interfaces: map[string]program.Interface{"eth0": {Index: 2}}}
	n.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	n.startAgent()
	t.Cleanup(func() { n.stop() })
	return n
}

// crash stops the agent immediately, without further calls or writes.
func (n *node) crash() {
	n.stop()
}

func (n *node) startAgent() {
	n.t.Helper()
	config := envtest.Config(n.t)
	config.UserAgent = "bpfman-agent" // the API server derives the writer of a report from it
	ctx, cancel := context.WithCancel(context.Background())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recorder{ctx, n, next} })
	n.mu.Lock()
	n.watched = map[string]bool{}
	n.mu.Unlock()
	server, err := cluster.New(config, "bpfman-agent", n.name, policyNamespace, logr.Discard())
	if err == nil {
		err = server.Serve(nil)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.kinds = server.Kinds
	n.registry = prometheus.NewRegistry()
	measured := metrics.New(n.registry)
	store := &bytecode.Store{Dir: n.store, Limit: 256 << 20}
	var changes *confirm.Changes
	if n.confirm > 0 {
		asker, err := confirm.NewAsker(config, filepath.Join(n.changes, "api-servers"))
		must.Succeed(n.t, err)
		changes = &confirm.Changes{Limit: n.confirm, Ask: asker.Ask, Prepare: asker.Prepare}
		must.Succeed(n.t, changes.Open(n.changes, n.proc))
	}
	agent := controller.New(controller.Options{
		Cluster: server, Inventory: daemon.NewInventory(n.daemon, n.daemon.Root), NodeName: n.name, Drift: cmp.Or(n.drift, time.Minute),
		Interfaces: func() (map[string]program.Interface, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.interfaces, nil
		},
		Containers: n.running, UprobeNamespaces: []string{"*"},
		PodInterfaces: func(containers []program.Container) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for i := range containers {
				containers[i].Interfaces = n.podInterfaces[containers[i].Pod]
			}
		},
		Changes:   changes,
		Metrics:   measured,
		Bpffs:     n.bpffs(),
		Namespace: policyNamespace,
		Bytecode:  &bytecode.Library{Read: n.readImage, Store: store, Observe: measured.Read},
		FindKinds: cmp.Or(n.findKinds, 200*time.Millisecond), RelistReports: n.relistReports,
	})
	if changes != nil {
		go func() { _ = changes.Run(ctx) }()
	}
	connected := func(_ context.Context, f func()) { f() }
	stopped := make(chan struct{})
	n.ended = make(chan error, 1)
	go func(ended chan<- error) {
		defer close(stopped)
		ended <- agent.Run(ctx, connected)
	}(n.ended)
	n.stop = func() { cancel(); <-stopped }
}

// bpffs returns the directory where the node's daemon pins objects.
func (n *node) bpffs() string { return filepath.Join(n.daemon.Root, "run/bpfman/fs") }

// repaired returns the agent's count of repaired programs or links.
func (n *node) repaired(what string) float64 {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "bpfman_agent_drift_repaired_total" && metric.GetLabel()[0].GetValue() == what {
				return metric.GetCounter().GetValue()
			}
		}
	}
	n.t.Fatalf("no count of repaired %ss", what)
	return 0
}

func (n *node) setCut(cut func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *node) isCut() bool {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	return cut != nil && cut()
}

// recorder records an agent's requests.
type recorder struct {
	ctx  context.Context //nolint:containedctx // the lifetime of the agent
	node *node
	next http.RoundTripper
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.node.isCut() {
		return nil, errors.New("no response")
	}
	if request.Method == http.MethodGet {
		r.node.mu.Lock()
		if request.URL.Query().Get("watch") == "true" {
			r.node.watched[path.Base(request.URL.Path)] = true
		}
		unreadable, undefined, paused := r.node.unreadable, r.node.undefined, r.node.paused[path.Base(request.URL.Path)]
		r.node.mu.Unlock()
		if paused != nil {
			select {
			case <-paused:
			case <-request.Context().Done():
				return nil, request.Context().Err()
			}
		}
		if unreadable != "" && strings.HasSuffix(request.URL.Path, "/"+unreadable) {
			return refused(request, apierrors.NewForbidden(v1alpha1.SchemeGroupVersion.WithResource(unreadable).GroupResource(), "", errors.New("a role is missing")))
		}
		if undefined != "" && strings.HasSuffix(request.URL.Path, "/"+undefined) {
			return refused(request, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", v1alpha1.SchemeGroupVersion.WithResource(undefined).GroupResource(), "", "", 0, true))
		}
		return r.next.RoundTrip(request)
	}
	what := request.Method + " " + request.URL.Path
	if r.ctx.Err() != nil {
		return nil, errors.New("the agent has crashed")
	}
	r.node.mu.Lock()
	r.node.written = append(r.node.written, what)
	fault := r.node.writes
	r.node.mu.Unlock()
	if fault == nil {
		return r.next.RoundTrip(request)
	}
	if err := fault(what, false); err != nil {
		if why := (*apierrors.StatusError)(nil); errors.As(err, &why) {
			return refused(request, why)
		}
		return nil, err
	}
	response, err := r.next.RoundTrip(request)
	if err == nil {
		if faultErr := fault(what, true); faultErr != nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			return nil, faultErr
		}
	}
	return response, err
}

// refused returns an error response of the API server.
func refused(request *http.Request, why *apierrors.StatusError) (*http.Response, error) {
	status := why.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: int(status.Code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request, ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func (n *node) key() client.ObjectKey { return client.ObjectKey{Name: n.name} }

// writesOf returns the agent's writes since the last call.
func (n *node) writesOf() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	written := n.written
	n.written = nil
	return written
}

func (n *node) create(o client.Object) {
	n.t.Helper()
	must.Succeed(n.t, n.client.Create(context.Background(), o))
	n.t.Cleanup(func() { _ = n.client.Delete(context.Background(), o) })
}

func (n *node) delete(o client.Object) {
	n.t.Helper()
	must.Succeed(n.t, n.client.Delete(context.Background(), o))
}

// change edits an object of a user.
func (n *node) change(o client.Object, edit func()) {
	n.t.Helper()
	n.eventually("edit "+o.GetName(), func() error {
		if err := n.client.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		edit()
		return n.client.Update(context.Background(), o)
	})
}

// eventually waits until check returns nil.
func (n *node) eventually(what string, check func() error) {
	n.t.Helper()
	envtest.Eventually(n.t, what, func(context.Context) error { return check() })
}

// programs returns the reports from this node, of both kinds.
func (n *node) programs() []v1alpha1.ProgramObject {
	n.t.Helper()
	var out []v1alpha1.ProgramObject
	label := client.MatchingLabels{v1alpha1.LabelHostname: v1alpha1.LabelValue(n.name)}
	var cluster v1alpha1.BpfProgramList
	must.Succeed(n.t, n.client.List(context.Background(), &cluster, label))
	for i := range cluster.Items {
		out = append(out, &cluster.Items[i])
	}
	var namespaced v1alpha1.BpfNsProgramList
	must.Succeed(n.t, n.client.List(context.Background(), &namespaced, label))
	for i := range namespaced.Items {
		out = append(out, &namespaced.Items[i])
	}
	return out
}

// reportsOn returns the reports about user objects with a name.
func (n *node) reportsOn(owner string) []v1alpha1.ProgramObject {
	n.t.Helper()
	return slices.DeleteFunc(n.programs(), func(o v1alpha1.ProgramObject) bool {
		ref := metav1.GetControllerOf(o)
		return ref == nil || ref.Name != owner
	})
}

// holds waits until the daemon has exactly these programs, each in the form "owner
// function link…", and until the reports contain the same.
func (n *node) holds(want ...string) {
	n.t.Helper()
	slices.Sort(want)
	n.eventually("the node's programs", func() error {
		held := n.daemon.Programs()
		var got []string
		for _, p := range held {
			if p.Metadata[v1alpha1.MetadataUUID] == "" {
				continue
			}
			words := []string{p.Metadata[v1alpha1.MetadataKind] + "/" + p.Metadata[v1alpha1.MetadataProgramName], p.Function}
			for _, l := range p.Links {
				words = append(words, l.GetTracepointAttachInfo().GetTracepoint()+l.GetTcxAttachInfo().GetIface())
			}
			got = append(got, strings.Join(words, " "))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the daemon holds %q, not %q", got, want)
		}
		return n.reported(held)
	})
}

// reported compares the reports with what the daemon has.
func (n *node) reported(held []daemontest.Loaded) error {
	objects := n.programs()
	links := map[uint32]int{}
	for _, p := range held {
		if p.Metadata[v1alpha1.MetadataUUID] != "" {
			links[p.ID] = len(p.Links)
		}
	}
	for _, o := range objects {
		s := o.GetStatus()
		if len(s.Conditions) == 0 || s.Conditions[0].Type != string(v1alpha1.BpfProgCondLoaded) {
			return fmt.Errorf("%s says %v", o.GetName(), s.Conditions)
		}
		if count, ok := links[s.ProgramID]; !ok || count != len(s.Links) {
			return fmt.Errorf("%s says program %d with %d links, the daemon has %v", o.GetName(), s.ProgramID, len(s.Links), links)
		}
		mapOwner := s.ProgramID
		if s.MapOwnerID != nil {
			mapOwner = *s.MapOwnerID
		}
		if o.GetSpec().Maps["counter"] != fmt.Sprintf("/run/bpfman/fs/maps/%d/counter", mapOwner) {
			return fmt.Errorf("%s has maps %v", o.GetName(), o.GetSpec().Maps)
		}
		delete(links, s.ProgramID)
	}
	if len(links) > 0 {
		return fmt.Errorf("no object tells of %v", links)
	}
	return nil
}

// says waits until a report about an owner has a condition whose message contains a text.
func (n *node) says(owner string, condition v1alpha1.BpfProgramConditionType, text string) {
	n.t.Helper()
	n.eventually(owner+" to say "+text, func() error {
		objects := n.programs()
		var got []metav1.Condition
		for _, o := range objects {
			if ref := metav1.GetControllerOf(o); ref == nil || ref.Name != owner {
				continue
			}
			for _, c := range o.GetStatus().Conditions {
				if c.Type == string(condition) && strings.Contains(c.Message, text) {
					return nil
				}
				got = append(got, c)
			}
		}
		return fmt.Errorf("it says %v", got)
	})
}

// tracepoint returns a program for the test's own node.
func (n *node) tracepoint(name, function string, names ...string) *v1alpha1.TracepointProgram {
	o := &v1alpha1.TracepointProgram{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Spec.BpfFunctionName, o.Spec.Names = function, names
	n.fill(&o.Spec.BpfAppCommon)
	return o
}

func (n *node) fill(common *v1alpha1.BpfAppCommon) {
	path := "/object.o"
	common.ByteCode.Path = &path
	common.NodeSelector.MatchLabels = map[string]string{"test": n.name}
}
