// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/cli/inspectors"
	"github.com/bpfman/bpfman-operator/cli/ui/view"
	"github.com/bpfman/bpfman-operator/internal/live"
)

const (
	// interval is the interval of live figures.
	interval = 2 * time.Second
	// maxMeasured is the maximum number of nodes that are measured for the view of the cluster. Each takes a
	// connection through the API server.
	maxMeasured = 16
	// maxEntries is the maximum number of entries of a map.
	maxEntries = 2000
)

// usage sends what the programs of a node use, or those of some nodes of the cluster.
func (s *Server) usage(ctx context.Context, r *http.Request, send func(any) error) error {
	found, err := inspectors.Find(ctx, s.Cluster, s.Components)
	if err != nil {
		return err
	}
	node := r.URL.Query().Get("node")
	var nodes []string
	if node == "" {
		nodes = found.Sample(maxMeasured)
	} else {
		nodes = []string{node}
	}
	asked, err := found.On(nodes...)
	if err != nil {
		return err
	}
	m := &measurement{key: s.keyOf(node), of: found.Count(), asked: len(asked), send: send}
	rounds := inspectors.Rounds[live.Usage]{Asked: len(asked), Show: m.show}
	ctx, end := context.WithCancel(ctx)
	defer end()
	return inspectors.Each(asked, func(i inspectors.Inspector) error {
		for pause := firstAgain; ; pause = min(2*pause, lastAgain) {
			err := inspectors.AskUsage(ctx, i, interval, func(u live.Usage) error {
				pause = firstAgain // it has answered
				return rounds.Answered(i.Node, u)
			})
			if err := rounds.Ended(i.Node, cmp.Or(err, fmt.Errorf("node %s: %w", i.Node, errEnded))); err != nil {
				end() // none of the others answers either, or the browser has left
				return err
			}
			if i, err = s.restarted(ctx, i.Node, pause); err != nil {
				return nil //nolint:nilerr // the view ends
			}
		}
	})
}

// How long to wait before an inspector that has ended is looked for, the first time and at most. A search lists the pods
// of all nodes.
const (
	firstAgain = 10 * time.Second
	lastAgain  = 5 * time.Minute
)

// restarted waits until a node has an inspector again, which it looks for at an interval. It returns an error when the
// context ends.
func (s *Server) restarted(ctx context.Context, node string, every time.Duration) (found inspectors.Inspector, err error) {
	err = wait.PollUntilContextCancel(ctx, every, false, func(ctx context.Context) (bool, error) {
		all, err := inspectors.Find(ctx, s.Cluster, s.Components)
		if err != nil {
			return false, nil //nolint:nilerr // the next attempt can succeed
		}
		on, err := all.On(node)
		if err != nil {
			return false, nil //nolint:nilerr // the same
		}
		found = on[0]
		return true, nil
	})
	return found, err
}

var errEnded = errors.New("the inspector no longer answers")

// keyOf returns a function that returns the key of a program: its ID on one node, or the key of its row in the view of
// the cluster.
func (s *Server) keyOf(node string) func(node string) func(id uint32) string {
	if node != "" {
		return func(string) func(uint32) string {
			return func(id uint32) string { return strconv.FormatUint(uint64(id), 10) }
		}
	}
	return func(node string) func(uint32) string {
		keys := map[uint32]string{}
		if i := s.facts.inventory(node); i != nil {
			for _, p := range i.Programs {
				keys[p.ID] = p.Sort.Value().Key()
			}
		}
		return func(id uint32) string { return keys[id] }
	}
}

// measurement sends what programs used in each round.
type measurement struct {
	key       func(node string) func(uint32) string
	of, asked int
	send      func(any) error
}

// show sends the answers of the nodes. If no inspector answers anymore, it returns the error of one.
func (m *measurement) show(answers map[string]live.Usage, failed map[string]error) error {
	v := view.Usage{Nodes: len(answers), Of: m.of, Programs: map[string]view.Used{}}
	if nodes := slices.Sorted(maps.Keys(failed)); len(nodes) > 0 {
		err := failed[nodes[0]]
		if len(answers) == 0 {
			return err
		}
		v.Problem = fmt.Sprintf("%d of %d nodes don't answer; %v", len(failed), m.asked, err)
	}
	for node, u := range answers {
		key := m.key(node)
		for _, p := range u.Programs {
			k := key(p.ID)
			if k == "" {
				continue
			}
			sum := v.Programs[k]
			runs := float64(p.Runs) / u.Elapsed.Seconds()
			cpu := 100 * p.RunTime.Seconds() / u.Elapsed.Seconds()
			sum.CPU, sum.Runs = sum.CPU+cpu, sum.Runs+runs
			if sum.Runs > 0 {
				const nanosecondsPerPercent = 1e7 // of a second
				sum.PerRun = sum.CPU * nanosecondsPerPercent / sum.Runs
			}
			v.Programs[k] = sum
		}
	}
	return m.send(v)
}

// dump sends the content of a map: one on a node by its ID, or one by the path of its pin.
func (s *Server) dump(ctx context.Context, r *http.Request, send func(any) error) error {
	q := r.URL.Query()
	found, err := inspectors.Find(ctx, s.Cluster, s.Components)
	if err != nil {
		return err
	}
	asked, err := found.On(q.Get("node"))
	if err != nil {
		return err
	}
	which := []string{"--pin", q.Get("pin")}
	if id := q.Get("id"); id != "" {
		which = []string{"--map", id}
	}
	return inspectors.AskDump(ctx, asked[0], maxEntries, interval, func(d inspectors.Dump) error {
		return send(view.Dump{Node: asked[0].Node, Map: &d.Map, Entries: d.Entries, End: d.End, At: time.Now()})
	}, which...)
}
