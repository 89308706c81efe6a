// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/bpfman/bpfman-operator/operator"
)

// AddOperator adds a replica of the operator with leader election, which isn't started yet.
func (w *World) AddOperator(name string) *Component {
	return w.component("operator/"+name, func(p *process) error {
		connected := p.connect(w.Network)
		connected.discovers = true
		config := connected.config()
		config.QPS = -1 // as the command's, whose limit of requests isn't reached
		manager, err := operator.New(config, operator.Options{Namespace: Namespace, MetricsAddr: "0", HealthAddr: "0", LeaderElection: true})
		if err != nil {
			return fmt.Errorf("create an operator: %w", err)
		}
		return manager.Start(p.ctx)
	}, nil)
}

// connect returns a process's connection to the API server.
func (p *process) connect(networks ...*Network) *connection {
	return &connection{process: p, networks: networks, requests: p.world.transport(p.Name, p.alive), watches: p.world.transport(p.Name, p.watching)}
}

// config returns the configuration of an API client with the connection.
func (c *connection) config() *rest.Config {
	return &rest.Config{Host: host, UserAgent: c.Name, Transport: c, Dial: c.dial, Proxy: noProxy}
}
