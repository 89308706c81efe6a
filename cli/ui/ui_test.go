// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
)

func TestTokens(t *testing.T) {
	s, now := newSessions(), time.Now()
	token := s.token(now)
	if _, ok := s.exchange(token+"x", now); ok {
		t.Error("an unknown token works")
	}
	key, ok := s.exchange(token, now)
	if !ok || key == "" || key == token {
		t.Fatalf("the token: %q, %t", key, ok)
	}
	if _, ok := s.exchange(token, now); ok {
		t.Error("a token works twice")
	}
	if _, ok := s.exchange(s.token(now), now.Add(tokenLife+time.Second)); ok {
		t.Error("an old token works")
	}
}

func TestGuard(t *testing.T) {
	s := newSessions()
	key, _ := s.exchange(s.token(time.Now()), time.Now())
	guarded := s.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for _, c := range []struct {
		path, host, origin, key string
		want                    int
	}{
		{"/", "127.0.0.1:80", "", "", http.StatusOK},
		{"/", "localhost:80", "", "", http.StatusOK},
		{"/", "[::1]:80", "", "", http.StatusOK},
		{"/", "127.0.0.1.attacker.example:80", "", "", http.StatusMisdirectedRequest},
		{"/", "attacker.example", "", "", http.StatusMisdirectedRequest},
		{"/", "", "", "", http.StatusMisdirectedRequest},
		{"/api/x", "127.0.0.1:80", "", "", http.StatusUnauthorized},
		{"/api/x", "127.0.0.1:80", "", key[1:], http.StatusUnauthorized},
		{"/api/x", "127.0.0.1:80", "", key, http.StatusOK},
		{"/api/x", "127.0.0.1:80", "http://127.0.0.1:80", key, http.StatusOK},
		{"/api/x", "127.0.0.1:80", "http://127.0.0.1:81", key, http.StatusForbidden},
		{"/api/x", "127.0.0.1:80", "null", key, http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.key != "" {
			r.Header.Set("Authorization", "Bearer "+c.key)
		}
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
		if w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%+v: headers %v", c, w.Header())
		}
	}
}

// apiServer serves lists and watches without objects, except for one TcxNsProgram in the namespace team. A user may
// only read that namespace, and no nodes.
func apiServer(t *testing.T) (c *cluster.Cluster, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		namespaced := strings.Contains(r.URL.Path, "/namespaces/team/")
		switch {
		case strings.HasSuffix(r.URL.Path, "/nodes"), strings.Contains(r.URL.Path, "nsprograms") && !namespaced:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"it is forbidden","reason":"Forbidden","code":403}`)
		case r.URL.Query().Get("watch") != "":
			if strings.HasSuffix(r.URL.Path, "/namespaces/team/tcxnsprograms") {
				_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"namespace":"team","name":"mine","resourceVersion":"1"}}}`+"\n")
			}
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, `{"items":[],"metadata":{"resourceVersion":"1"}}`)
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	flags := genericclioptions.NewConfigFlags(false)
	namespace := "team"
	flags.APIServer, flags.Namespace = &server.URL, &namespace
	c, err := cluster.With(flags)()
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(paths)
	}
}

// A user who can't read the whole cluster sees the own namespace, and what can't be read.
func TestWatchWithFewRights(t *testing.T) {
	c, asked := apiServer(t)
	f := newFacts()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- watchAll(ctx, c, f) }()
	mine := v1alpha1.BpfNodeOwner{Kind: "TcxNsProgram", Namespace: "team", Name: "mine"}
	await(t, f, func() error {
		all := f.now()
		unseen := strings.Join(all.Unseen, "\n")
		switch {
		case all.Objects[mine] == nil:
			return fmt.Errorf("no object; asked for %q", asked())
		case !strings.Contains(unseen, "nodes: it is forbidden"), !strings.Contains(unseen, "tcxnsprograms: only those in namespace team can be read"):
			return fmt.Errorf("unseen: %s", unseen)
		case strings.Contains(unseen, "tcxprograms"), slices.Contains(all.Reading, "tcxprograms"):
			return fmt.Errorf("unseen: %s; reading %q", unseen, all.Reading)
		}
		return nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// await waits for facts.
func await(t *testing.T, f *facts, check func() error) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		changed := f.next()
		err := check()
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// Views follow changes, and are sent as server-sent events until the browser leaves.
func TestStream(t *testing.T) {
	f := newFacts()
	shown := 0
	server := httptest.NewServer(serveStream(func(ctx context.Context, _ *http.Request, send func(any) error) error {
		return f.onChange(ctx, time.Hour, func(*facts) error {
			shown++
			if shown == 2 {
				return fmt.Errorf("no more")
			}
			return send(map[string]int{"n": shown})
		})
	}))
	defer server.Close()
	response, err := server.Client().Get(server.URL) //nolint:noctx // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, len("event: view\ndata: {\"n\":1}\n\n"))
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "event: view\ndata: {\"n\":1}\n\n" {
		t.Fatalf("%q, %v", first, err)
	}
	f.change(func() {})
	rest, err := io.ReadAll(response.Body)
	if err != nil || string(rest) != "event: problem\ndata: \"no more\"\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

// What others chose can't change the direction of a line of the page, and stays readable otherwise.
func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"eth0":                   "eth0",
		"äöü → größer":           "äöü → größer",
		"a\u202egnp.exe":         `a\u202egnp.exe`,
		"zero\u200bwidth":        `zero\u200bwidth`,
		"two\nlines, \"quoted\"": "two\nlines, \"quoted\"",
		`already \u202e`:         `already \u202e`,
		"a tag \U000e0041":       `a tag \U000e0041`,
	} {
		encoded, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal(visible(encoded), &got); err != nil || got[want] != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
