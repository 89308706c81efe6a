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
		config := p.config(w.Network)
		config.QPS = -1 // as the command's, whose limit of requests isn't reached
		manager, err := operator.New(config, operator.Options{Namespace: Namespace, MetricsAddr: "0", HealthAddr: "0", LeaderElection: true})
		if err != nil {
			return fmt.Errorf("create an operator: %w", err)
		}
		return manager.Start(p.ctx)
	}, nil)
}

// config returns the configuration of a process's API client.
func (p *process) config(networks ...*Network) *rest.Config {
	c := &connection{process: p, networks: networks, requests: p.world.transport(p.Name, p.alive), watches: p.world.transport(p.Name, p.watching)}
	return &rest.Config{Host: host, UserAgent: p.Name, Transport: c, Dial: c.dial, Proxy: noProxy}
}
