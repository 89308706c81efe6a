// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// step is a request that is sent to both servers. In the path and the body, {uid NAME}, {version NAME}, and {continue list} are what the last
// answer about an object of that name had.
type step struct {
	method, path string
	body         string
	agent        string // User-Agent, which becomes the field manager
	content      string // Content-Type: JSON if it is ""
	accept       string // Accept: JSON if it is ""
	// codeOnly compares only the code and the reason: what validation of built-in types says can't be the same.
	codeOnly bool
}

// server is one of the servers that are compared.
type server struct {
	base      string
	transport http.RoundTripper
	uids      map[string]string // a placeholder of each uid
	objects   map[string]map[string]any
}

// pair is the real server, and that of this package.
type pair struct {
	t     *testing.T
	sides [2]*server
}

func newPair(t *testing.T) *pair {
	t.Helper()
	config := envtest.Config(t)
	theirs, err := rest.TransportFor(config)
	must.Succeed(t, err)
	ours := newServer(t).Transport("compare", t.Context(), nil)
	p := &pair{t: t}
	for i, from := range []struct {
		base      string
		transport http.RoundTripper
	}{{strings.TrimSuffix(config.Host, "/"), theirs}, {"http://apiserver", ours}} {
		p.sides[i] = &server{from.base, from.transport, map[string]string{}, map[string]map[string]any{}}
	}
	// The real server refuses watches until it has listed a resource.
	for _, path := range []string{bpfman + "tracepointprograms", "/api/v1/configmaps"} {
		envtest.Eventually(t, "watch "+path, func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			response := p.sides[0].request(t, ctx, step{method: "GET", path: path + "?watch=true&resourceVersion=0"})
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return errors.New(response.Status)
			}
			return nil
		})
	}
	return p
}

// play sends the steps, and compares the answers.
func (p *pair) play(steps ...step) {
	p.t.Helper()
	for _, s := range steps {
		var answers [2]answer
		for i, side := range p.sides {
			answers[i] = side.send(p.t, s)
		}
		if diff := difference(answers[0], answers[1]); diff != "" {
			p.t.Errorf("%s %s %s:%s", s.method, s.path, s.body, diff)
		}
	}
}

// difference lists the fields that differ.
func difference(theirs, ours any) string {
	var text strings.Builder
	all := [2]map[string]string{{}, {}}
	for i, from := range []any{theirs, ours} {
		content, err := json.Marshal(from)
		if err != nil {
			return err.Error()
		}
		var o any
		if err := json.Unmarshal(content, &o); err != nil {
			return err.Error()
		}
		flatten("", o, all[i])
	}
	paths := maps.Clone(all[0])
	maps.Copy(paths, all[1])
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if all[0][path] != all[1][path] {
			fmt.Fprintf(&text, "\n\t%s is %s on the real server, and %s here", path, cmp.Or(all[0][path], "missing"), cmp.Or(all[1][path], "missing"))
		}
	}
	return text.String()
}

func flatten(path string, o any, into map[string]string) {
	switch o := o.(type) {
	case map[string]any:
		for key, value := range o {
			flatten(path+"."+key, value, into)
		}
		if len(o) > 0 {
			return
		}
	case []any:
		for i, value := range o {
			flatten(fmt.Sprintf("%s[%d]", path, i), value, into)
		}
		if len(o) > 0 {
			return
		}
	}
	content, _ := json.Marshal(o) //nolint:errchkjson // it came from JSON
	into[path] = string(content)
}

// answer is what is compared.
type answer struct {
	Code    int
	Header  map[string]string
	Content any
}

var placeholder = regexp.MustCompile(`\{(uid|version|continue) ([^}]*)\}`)

func (s *server) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		metadata := s.objects[parts[2]]
		if metadata == nil {
			return "1" // there was no answer about it
		}
		return fmt.Sprint(metadata[map[string]string{"uid": "uid", "version": "resourceVersion", "continue": "continue"}[parts[1]]])
	})
}

func (s *server) request(t *testing.T, ctx context.Context, q step) *http.Response { //nolint:revive // the test is first in all helpers
	t.Helper()
	var body io.Reader
	if q.body != "" {
		body = strings.NewReader(s.expand(q.body))
	}
	request, err := http.NewRequestWithContext(ctx, q.method, s.base+s.expand(q.path), body)
	must.Succeed(t, err)
	request.Header.Set("User-Agent", cmp.Or(q.agent, "compare"))
	if q.body != "" || q.content != "" {
		request.Header.Set("Content-Type", "application/json")
		if q.content != "" {
			request.Header.Set("Content-Type", q.content)
		}
	}
	request.Header.Set("Accept", "application/json")
	if q.accept != "" {
		request.Header.Set("Accept", q.accept)
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		t.Fatalf("%s %s: %v", q.method, q.path, err)
	}
	return response
}

func (s *server) send(t *testing.T, q step) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	response := s.request(t, ctx, q)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	a := answer{Code: response.StatusCode, Header: map[string]string{}}
	for _, name := range []string{"Content-Type", "Retry-After", "Warning"} {
		a.Header[name] = response.Header.Get(name)
	}
	if a.Header["Content-Type"] == runtime.ContentTypeProtobuf {
		content = fromProtobuf(t, content)
	} else if !strings.HasPrefix(a.Header["Content-Type"], "application/json") {
		a.Content = fmt.Sprintf("%d bytes of %s", len(content), a.Header["Content-Type"])
		if strings.HasPrefix(a.Header["Content-Type"], "text/plain") {
			a.Content = string(content)
		}
		return a
	}
	a.Content = s.normalize(t, content)
	if status, ok := a.Content.(map[string]any); ok && q.codeOnly {
		a.Content = status["reason"]
	}
	return a
}

// fromProtobuf returns an object as JSON.
func fromProtobuf(t *testing.T, content []byte) []byte {
	t.Helper()
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	must.Succeed(t, err)
	content, err = json.Marshal(o)
	must.Succeed(t, err)
	return content
}

// protobuf returns an object as protobuf.
func protobuf(t *testing.T, o runtime.Object, of schema.GroupVersion) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	content, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, of), o)
	must.Succeed(t, err)
	return string(content)
}

// normalize replaces what differs between any two servers: uids by their order, versions, and times.
func (s *server) normalize(t *testing.T, content []byte) any {
	t.Helper()
	var o any
	if err := json.Unmarshal(content, &o); err != nil {
		t.Fatalf("decode %q: %v", content, err)
	}
	s.note(o)
	return s.replace("", o)
}

// note keeps the metadata of objects.
func (s *server) note(o any) {
	switch o := o.(type) {
	case map[string]any:
		if metadata, ok := o["metadata"].(map[string]any); ok && metadata["name"] != nil && metadata["uid"] != nil {
			s.objects[fmt.Sprint(metadata["name"])] = metadata
			uid := fmt.Sprint(metadata["uid"])
			if s.uids[uid] == "" {
				s.uids[uid] = fmt.Sprintf("uid-%d", len(s.uids))
			}
		} else if ok && o["items"] != nil {
			s.objects["list"] = metadata
		}
		for _, name := range slices.Sorted(maps.Keys(o)) {
			s.note(o[name])
		}
	case []any:
		for _, each := range o {
			s.note(each)
		}
	}
}

var (
	number    = regexp.MustCompile(`\d{2,}`)
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]*Z`)
)

func (s *server) replace(name string, o any) any {
	switch o := o.(type) {
	case map[string]any:
		replaced := map[string]any{}
		for key, value := range o {
			if key != "preventPodSchedulingIfMissing" { // a default since Kubernetes 1.37
				replaced[key] = s.replace(key, value)
			}
		}
		return replaced
	case []any:
		replaced := []any{}
		for _, value := range o {
			replaced = append(replaced, s.replace(name, value))
		}
		if name == "causes" { // before Kubernetes 1.37, some are there twice
			replaced = slices.CompactFunc(replaced, reflect.DeepEqual)
		}
		if name == "managedFields" { // in the order of their seconds
			slices.SortFunc(replaced, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return replaced
	case string:
		o = timestamp.ReplaceAllString(o, "TIME")
		for uid, as := range s.uids {
			o = strings.ReplaceAll(o, uid, as)
		}
		switch {
		case name == "resourceVersion" && o != "0":
			return "VERSION"
		case name == "continue":
			return "CONTINUE"
		case name == "message":
			return number.ReplaceAllString(o, "N")
		}
		return o
	default:
		return o
	}
}

// watch plays steps while both servers are watched, and compares the events up to that of the object "end".
func (p *pair) watch(watched step, steps ...step) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	var bodies [2]*json.Decoder
	for i, side := range p.sides {
		response := side.request(p.t, ctx, watched)
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			content, _ := io.ReadAll(response.Body)
			p.t.Fatalf("watch %s: %s", watched.path, content)
		}
		bodies[i] = json.NewDecoder(response.Body)
	}
	p.play(steps...)
	var seen [2][]any
	for i, side := range p.sides {
		seen[i] = side.events(p.t, bodies[i])
	}
	if diff := difference(seen[0], seen[1]); diff != "" {
		p.t.Errorf("watch %s:%s", watched.path, diff)
	}
}

// events reads the events of a watch up to that of the object "end", or to an error, without bookmarks that kube-apiserver sends
// from time to time.
func (s *server) events(t *testing.T, from *json.Decoder) []any {
	t.Helper()
	var all []any
	for {
		var event json.RawMessage
		if err := from.Decode(&event); err != nil {
			return append(all, "ended: "+err.Error())
		}
		if bytes.Contains(event, []byte(`"type":"BOOKMARK"`)) && !bytes.Contains(event, []byte(metav1.InitialEventsAnnotationKey)) {
			continue
		}
		all = append(all, s.normalize(t, event))
		if bytes.Contains(event, []byte(`"name":"end"`)) || bytes.Contains(event, []byte(`"type":"ERROR"`)) {
			return all
		}
	}
}
