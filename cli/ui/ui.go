// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package ui serves a page about the eBPF programs of a cluster on loopback. It reads the cluster with the rights of
// the user who runs it, and changes nothing. The page is in the directory page, and is built by `make ui`.
package ui

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/ui/view"
	"github.com/bpfman/bpfman-operator/cli/why"
)

//go:embed all:page/dist
var built embed.FS

// Server serves the page. The functions answer questions as the other commands of the plugin do.
type Server struct {
	Cluster *cluster.Cluster
	// Components is the namespace of the operator and the node components.
	Components string
	// Version is the version of the plugin.
	Version string

	Explain   func(ctx context.Context, object v1alpha1.BpfNodeOwner, conflicts []why.Conflict) (why.Facts, why.Page, error)
	Revisions func(ctx context.Context, object v1alpha1.UserObject) ([]view.Revision, error)

	facts    *facts
	sessions *sessions
}

// Listen listens on loopback. Port 0 selects a free port.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	return l, nil
}

// Serve serves the page until the context ends. It calls ready with a function that returns a new address of the page,
// which can be opened once.
func (s *Server) Serve(ctx context.Context, l net.Listener, ready func(address func() string)) error {
	page, err := fs.Sub(built, "page/dist")
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	if _, err := fs.Stat(page, "index.html"); err != nil {
		return errors.New("this build of the plugin doesn't contain the page: to build it with the page, install npm, and run make kubectl-bpfman")
	}
	s.facts, s.sessions = newFacts(), newSessions()
	server := &http.Server{
		Handler: s.handler(page), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	watching := make(chan error, 1)
	go func() { watching <- watchAll(ctx, s.Cluster, s.facts) }()
	go s.followFailures(ctx)
	go s.followComponents(ctx)
	ready(func() string { return "http://" + l.Addr().String() + "/#token=" + s.sessions.token(time.Now()) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return <-watching
}

func (s *Server) handler(page fs.FS) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.HandleFunc("POST /session", s.session)
	mux.HandleFunc("GET /api/cluster", serveStream(s.cluster))
	mux.HandleFunc("GET /api/node", serveStream(s.node))
	mux.HandleFunc("GET /api/object", serveStream(s.object))
	mux.HandleFunc("GET /api/usage", serveStream(s.usage))
	mux.HandleFunc("GET /api/map", serveStream(s.dump))
	return s.sessions.guard(mux)
}

// session exchanges a token for a key.
func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Token string `json:"token"`
	}
	const most = 1024
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, most)).Decode(&asked); err != nil {
		http.Error(w, "no token", http.StatusBadRequest)
		return
	}
	key, ok := s.sessions.exchange(asked.Token, time.Now())
	if !ok {
		http.Error(w, "the address was used before, or is older than ten minutes", http.StatusUnauthorized)
		return
	}
	session := view.Session{Key: key, Context: s.Cluster.Context, Flags: s.Cluster.Flags, Version: s.Version}
	if s.Components != cluster.DefaultComponents {
		session.Components = s.Components
	}
	answer, err := json.Marshal(session)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // fails if the browser has left
}
