// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// connections100 measures writes with the real agents connected, and with additional connections that have
// the same watches.
func (b *bench) connections100(ctx context.Context) error {
	cost, err := b.rounds(ctx, b.writes, roundNodes)
	if err != nil {
		return err
	}
	b.putCost("apiserver", b.agents, cost)
	watches := b.real.requests.of(nodeName(1))
	b.say("  an agent watches %s", strings.Join(resources(watches(nodeName(1))), ", "))
	b.put("agent_watches", float64(len(watches(nodeName(1)))))
	return b.compare(ctx, agentAccount, "apiserver", roundNodes, b.agents, watches)
}

func (b *bench) putCost(figure string, agents int, cost writeCost) {
	b.put(fmt.Sprintf("%s_us_per_report_write_%d", figure, agents), cost.cpu)
	b.put(fmt.Sprintf("%s_kb_allocated_per_report_write_%d", figure, agents), cost.allocated)
}

// compare adds connections up to the wanted number, and measures memory and writes.
func (b *bench) compare(ctx context.Context, account, figure string, nodes, have int, watches func(string) []watchRequest) error {
	before, err := b.control.load(ctx)
	if err != nil {
		return err
	}
	held := newConnections(ctx, b.control, account)
	if err := held.connect(1+have, 1+b.connections, watches); err != nil { //nolint:contextcheck // newConnections has a context
		return errors.Join(err, held.end())
	}
	if err := b.perAgent(ctx, figure+"_kb_per_agent", held.count, before); err != nil {
		return errors.Join(err, held.end())
	}
	cost, err := b.rounds(ctx, b.writes, nodes)
	if err := errors.Join(err, held.end()); err != nil {
		return err
	}
	b.putCost(figure, have+held.count, cost)
	return b.control.settle(ctx, before.watches)
}

// alternatives measures the same with other watches that agents could use, without the real agents.
func (b *bench) alternatives(ctx context.Context) error {
	if err := b.real.end(); err != nil {
		return err
	}
	for _, way := range []struct {
		figure  string
		nodes   int
		watches func(string) []watchRequest
	}{{"upstream", roundNodesToAll, upstreams}, {"labeled", roundNodes, labeled}} {
		b.say("  %s", way.figure)
		few := newConnections(ctx, b.control, comparedAccount)
		if err := few.connect(1, 1+b.agents, way.watches); err != nil { //nolint:contextcheck // as in compare
			return errors.Join(err, few.end())
		}
		cost, err := b.rounds(ctx, b.writes, way.nodes)
		if err := errors.Join(err, few.end()); err != nil {
			return err
		}
		b.putCost(way.figure+"_apiserver", b.agents, cost)
		if err := b.compare(ctx, comparedAccount, way.figure+"_apiserver", way.nodes, 0, way.watches); err != nil {
			return err
		}
	}
	return nil
}
