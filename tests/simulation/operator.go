// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"fmt"

	"github.com/bpfman/bpfman-operator/operator"
)

// AddOperator adds a replica of the operator with leader election, which isn't started yet.
func (w *World) AddOperator(name string) *Component {
	return w.component("operator/"+name, func(p *process) error {
		config := p.connect(w.Network).config()
		config.QPS = -1 // as the command's, whose limit of requests isn't reached
		manager, err := operator.New(config, operator.Options{Namespace: Namespace, MetricsAddr: "0", HealthAddr: "0", LeaderElection: true})
		if err != nil {
			return fmt.Errorf("create an operator: %w", err)
		}
		return manager.Start(p.ctx)
	}, nil)
}
