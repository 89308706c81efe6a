// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// watchRequest is a watch of an agent.
type watchRequest struct {
	path   string
	query  url.Values
	accept string
}

// recording contains the last watch requests of a client, by resource.
type recording struct {
	mu      sync.Mutex
	watches map[string]watchRequest
}

func (r *recording) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if query := request.URL.Query(); query.Get("watch") == "true" || query.Get("watch") == "1" {
			r.mu.Lock()
			if r.watches == nil {
				r.watches = map[string]watchRequest{}
			}
			r.watches[request.URL.Path] = watchRequest{request.URL.Path, query, request.Header.Get("Accept")}
			r.mu.Unlock()
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// of returns the watches, for another node than the recorded one.
func (r *recording) of(recorded string) func(node string) []watchRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []watchRequest
	for _, w := range r.watches {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b watchRequest) int { return strings.Compare(a.path, b.path) })
	return func(node string) []watchRequest {
		own := make([]watchRequest, len(all))
		for i, w := range all {
			query := url.Values{}
			for key, values := range w.query {
				for _, value := range values {
					query.Add(key, strings.ReplaceAll(value, recorded, node))
				}
			}
			own[i] = watchRequest{w.path, query, w.accept}
		}
		return own
	}
}

// resources returns the watched resources, for the output.
func resources(watches []watchRequest) []string {
	names := make([]string, len(watches))
	for i, w := range watches {
		names[i] = path.Base(w.path)
		for _, parameter := range []string{"labelSelector", "fieldSelector"} {
			if selector := w.query.Get(parameter); selector != "" {
				names[i] += " (" + selector + ")"
			}
		}
	}
	return names
}

const jsonOnly = "application/json"

// everyKind returns watches of all kinds that users write, of the node, and of its pods. The agents that this one
// is compared with have them.
func everyKind(node string) []watchRequest {
	var all []watchRequest
	add := func(gvr schema.GroupVersionResource, query url.Values, accept string) {
		query.Set("watch", "true")
		query.Set("allowWatchBookmarks", "true")
		prefix := "/apis/" + gvr.Group + "/"
		if gvr.Group == "" {
			prefix = "/api/"
		}
		all = append(all, watchRequest{prefix + gvr.Version + "/" + gvr.Resource, query, accept})
	}
	const protobuf = "application/vnd.kubernetes.protobuf"
	own := func(field string) url.Values {
		return url.Values{"fieldSelector": {fields.OneTermEqualSelector(field, node).String()}}
	}
	add(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, own("metadata.name"), protobuf)
	add(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, own("spec.nodeName"), protobuf)
	for _, k := range v1alpha1.UserKinds {
		add(k.GroupVersionResource(), url.Values{}, jsonOnly)
	}
	return all
}

// upstreams returns the watches of an agent of upstream's operator v0.5, which receives the reports of all nodes.
func upstreams(node string) []watchRequest {
	return append(everyKind(node), reportWatches(url.Values{})...)
}

// labeled returns the watches of this project's agent before it stopped watching its own reports, which the API
// server selected by a label.
func labeled(node string) []watchRequest {
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelHostname: v1alpha1.LabelValue(node)})
	return append(everyKind(node), reportWatches(url.Values{"labelSelector": {selector.String()}})...)
}

func reportWatches(query url.Values) []watchRequest {
	all := make([]watchRequest, 0, len(v1alpha1.ProgramKinds))
	for _, k := range v1alpha1.ProgramKinds {
		own := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}}
		maps.Copy(own, query)
		all = append(all, watchRequest{"/apis/" + v1alpha1.GroupVersion.String() + "/" + k.Resource(), own, jsonOnly})
	}
	return all
}

// connections have the same watches as agents, each over one connection, and discard what they receive.
type connections struct {
	control *controlPlane
	account string
	stop    context.CancelFunc
	ctx     context.Context //nolint:containedctx // the lifetime of the connections
	reading sync.WaitGroup
	traffic traffic
	count   int

	mu    sync.Mutex
	ended error
}

func newConnections(ctx context.Context, c *controlPlane, account string) *connections {
	ctx, stop := context.WithCancel(ctx)
	return &connections{control: c, account: account, ctx: ctx, stop: stop}
}

// connect adds connections of the nodes from first to last, with the watches of each.
func (c *connections) connect(first, last int, watches func(node string) []watchRequest) error {
	connecting, ctx := errgroup.WithContext(c.ctx)
	connecting.SetLimit(writers)
	var versions sync.Map
	for i := first; i < last; i++ {
		connecting.Go(func() error {
			config := c.control.as(c.account)
			c.traffic.count(config)
			transport, err := rest.HTTPClientFor(config)
			if err != nil {
				return fmt.Errorf("make a connection: %w", err)
			}
			for _, w := range watches(nodeName(i)) {
				if err := c.start(w, &versions); err != nil {
					return err
				}
				if err := c.hold(ctx, transport, w); err != nil {
					return err
				}
			}
			return nil
		})
	}
	c.count += last - first
	return connecting.Wait()
}

// start makes a watch start from the current version, unless it also requests the existing objects. An agent's
// preceding list isn't repeated.
func (c *connections) start(w watchRequest, versions *sync.Map) error {
	w.query.Del("timeoutSeconds") // by default, it is half an hour or more
	if w.query.Get("sendInitialEvents") == "true" {
		return nil
	}
	version, known := versions.Load(w.path)
	if !known {
		raw, err := c.control.core.RESTClient().Get().AbsPath(w.path).Param("limit", "1").
			SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(c.ctx).Raw()
		if err != nil {
			return fmt.Errorf("list %s: %w", w.path, err)
		}
		if version, err = versionOf(raw); err != nil {
			return fmt.Errorf("list %s: %w", w.path, err)
		}
		versions.Store(w.path, version)
	}
	w.query.Set("resourceVersion", fmt.Sprint(version))
	return nil
}

func versionOf(list []byte) (string, error) {
	var meta struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(list, &meta); err != nil {
		return "", fmt.Errorf("decode a list: %w", err)
	}
	return meta.Metadata.ResourceVersion, nil
}

// hold opens a watch, and reads it until the connections end.
func (c *connections) hold(ctx context.Context, transport *http.Client, w watchRequest) error {
	at, _, err := rest.DefaultServerUrlFor(c.control.admin)
	if err != nil {
		return fmt.Errorf("load the API client's configuration: %w", err)
	}
	at.Path, at.RawQuery = w.path, w.query.Encode()
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, at.String(), http.NoBody) //nolint:contextcheck // it outlives the call
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.path, err)
	}
	request.Header.Set("Accept", w.accept)
	response, err := transport.Do(request)
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.path, err)
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		_ = response.Body.Close()
		return fmt.Errorf("watch %s: %s: %s", w.path, response.Status, body)
	}
	c.reading.Go(func() {
		defer response.Body.Close()
		_, err := io.Copy(io.Discard, response.Body)
		if c.ctx.Err() == nil {
			c.mu.Lock()
			c.ended = errors.Join(c.ended, fmt.Errorf("watch %s ended: %w", w.path, cmpErr(err)))
			c.mu.Unlock()
		}
	})
	return ctx.Err()
}

// end ends all connections. The error contains the watches that the API server ended earlier.
func (c *connections) end() error {
	c.stop()
	c.reading.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// settle waits until the API server has no more watches than before.
func (c *controlPlane) settle(ctx context.Context, before map[string]int) error {
	return poll(ctx, "the API server to end the watches", time.Minute, func(ctx context.Context) (bool, error) {
		now, err := c.watches(ctx)
		if err != nil {
			return false, err
		}
		for resource, count := range now {
			if count > before[resource] {
				return false, nil
			}
		}
		return true, nil
	})
}
