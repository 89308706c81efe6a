// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package events

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// backlog is how many events a client can be behind.
	backlog = 1024
	// writeTimeout is how long a client can take to receive an event. A client that is gone can leave its connection
	// open.
	writeTimeout = 10 * time.Second
)

// Hub forwards events to clients. It never waits for a client: one that is slow loses events, and is told how many.
// Otherwise the ring buffer would fill, and all clients would lose events.
type Hub struct {
	mu      sync.Mutex
	clients map[*client]bool
}

type client struct {
	events chan Event
	lost   uint64
}

// message is what a client gets: an event, or the number of events that it lost before the next one.
type message struct {
	*Event
	Lost uint64 `json:"lost,omitempty"`
}

// Emit forwards an event to all clients.
func (h *Hub) Emit(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients {
		select {
		case c.events <- e:
		default:
			c.lost++
		}
	}
}

func (h *Hub) add() *client {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients == nil {
		h.clients = map[*client]bool{}
	}
	c := &client{events: make(chan Event, backlog)}
	h.clients[c] = true
	return c
}

func (h *Hub) remove(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
}

// takeLost returns how many events a client has lost since the last call.
func (h *Hub) takeLost(c *client) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := c.lost
	c.lost = 0
	return lost
}

// ServeHTTP sends events as lines of JSON until the client disconnects, or doesn't receive them.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.add()
	defer h.remove(c)
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, control := json.NewEncoder(w), http.NewResponseController(w)
	for {
		// The client learns immediately that it's connected.
		if err := errors.Join(control.SetWriteDeadline(time.Now().Add(writeTimeout)), control.Flush()); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case e := <-c.events:
			if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return
			}
			if lost := h.takeLost(c); lost > 0 {
				if err := out.Encode(message{Lost: lost}); err != nil {
					return
				}
			}
			if err := out.Encode(message{Event: &e}); err != nil {
				return
			}
		}
	}
}
