// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package confirm

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"github.com/google/renameio/v2"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// serversPath is the path of the EndpointSlice in which the API servers list themselves.
const serversPath = "apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"

// servers are the addresses of the cluster's API servers, as they were last listed. They are kept on the node's disk: a node
// that is cut off can't list them.
type servers struct {
	file string // or ""
	// local returns the addresses of the node's interfaces.
	local func() ([]net.Addr, error)

	mu    sync.Mutex
	known known
}

// known is what is kept of the API servers.
type known struct {
	Servers []netip.AddrPort `json:"servers"`
	// Heard means that one on another node responded to this node when they were last asked without a change.
	Heard bool `json:"heard"`
}

// openServers reads the file, if there is one. Without it, they are listed.
func openServers(file string) *servers {
	s := &servers{file: file, local: net.InterfaceAddrs}
	if text, err := os.ReadFile(file); err == nil {
		// An earlier version kept a list, which doesn't fit.
		_ = json.Unmarshal(text, &s.known)
	}
	return s
}

// peers returns the API servers on other nodes if this node has one. Otherwise, it returns none: each response comes from
// another node.
func (s *servers) peers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	local, _ := s.local() // without it, each response counts
	var peers []string
	for _, server := range s.known.Servers {
		if !slices.ContainsFunc(local, func(a net.Addr) bool { return isAt(a, server.Addr()) }) {
			peers = append(peers, server.String())
		}
	}
	if len(peers) == len(s.known.Servers) {
		return nil
	}
	return peers
}

// isAt reports whether the address of an interface is an IP address.
func isAt(a net.Addr, ip netip.Addr) bool {
	network, ok := a.(*net.IPNet)
	return ok && network.IP.Equal(net.IP(ip.AsSlice()))
}

// learn remembers the servers in an EndpointSlice.
func (s *servers) learn(ctx context.Context, body []byte) {
	var slice discoveryv1.EndpointSlice
	if err := json.Unmarshal(body, &slice); err != nil {
		return // it is listed again by the next request
	}
	var all []netip.AddrPort
	for _, endpoint := range slice.Endpoints {
		for _, address := range endpoint.Addresses {
			for _, port := range slice.Ports {
				if server, err := netip.ParseAddrPort(net.JoinHostPort(address, portOf(port))); err == nil {
					all = append(all, server)
				}
			}
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(all) == 0 || slices.Equal(all, s.known.Servers) {
		return
	}
	s.known.Servers = all
	s.keep(ctx)
}

// hasHeard reports whether a server on another node is known to respond to this node.
func (s *servers) hasHeard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.Heard
}

func (s *servers) setHeard(ctx context.Context, heard bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.Heard != heard {
		s.known.Heard = heard
		s.keep(ctx)
	}
}

// keep writes the file. The caller holds mu.
func (s *servers) keep(ctx context.Context) {
	if s.file == "" {
		return
	}
	text, err := json.Marshal(s.known)
	if err == nil {
		err = renameio.WriteFile(s.file, text, fileMode)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Failed to record the addresses of the API servers")
	}
}

func portOf(port discoveryv1.EndpointPort) string {
	if port.Port == nil {
		return ""
	}
	return strconv.Itoa(int(*port.Port))
}
