// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package inspectors queries the inspectors of nodes, through exec in their containers. The API server
// authenticates, authorizes, and audits the queries. Package internal/live defines the commands and their output.
package inspectors

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/internal/live"
	"github.com/bpfman/bpfman-operator/internal/restclient"
)

const (
	container = "bpfman-inspector"
	command   = "/bpfman-inspector"
)

// Inspector is the inspector of one node.
type Inspector struct {
	Node string
	pod  string
	from *Found
}

// Found contains the inspectors of a cluster.
type Found struct {
	config    *rest.Config
	namespace string
	byNode    map[string]string
}

// Find finds the running inspectors. namespace is the namespace in which bpfman is installed.
func Find(ctx context.Context, c *cluster.Cluster, namespace string) (*Found, error) {
	found := &Found{config: c.Config, namespace: namespace, byNode: map[string]string{}}
	pods, disabled := 0, 0
	err := cluster.Each(ctx, c, &corev1.PodList{}, func(pod *corev1.Pod) error {
		pods++
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container }) {
			disabled++
			return nil
		}
		if runs(pod) {
			found.byNode[pod.Spec.NodeName] = pod.Name
		}
		return nil
	}, client.InNamespace(namespace), cluster.NodePods)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the inspectors: %w", err)
	case pods == 0:
		return nil, fmt.Errorf("namespace %s has no pods of the node components: if bpfman is installed in another namespace, specify it with --bpfman-namespace", namespace)
	case disabled == pods:
		return nil, errors.New("the inspector is turned off: set bpfman.inspector.enabled to true in the ConfigMap bpfman-config")
	}
	return found, nil
}

// Count returns the number of nodes with a running inspector.
func (i *Found) Count() int { return len(i.byNode) }

// Sample returns at most n of the nodes, spread over their sorted names.
func (i *Found) Sample(n int) []string {
	all := slices.Sorted(maps.Keys(i.byNode))
	if len(all) <= n {
		return all
	}
	sample := make([]string, n)
	for k := range sample {
		sample[k] = all[k*len(all)/n]
	}
	return sample
}

func runs(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == container && s.State.Running != nil
	})
}

// On returns the inspectors of the named nodes, or of all nodes that have one. It fails if a named node has none,
// or if there are more than maxAsked.
func (i *Found) On(nodes ...string) ([]Inspector, error) {
	if len(nodes) == 0 {
		for node := range i.byNode {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	var out []Inspector
	for _, node := range slices.Compact(nodes) {
		pod, ok := i.byNode[node]
		if !ok {
			return nil, fmt.Errorf("no inspector runs on node %q", node)
		}
		out = append(out, Inspector{Node: node, pod: pod, from: i})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no inspector runs in namespace %s", i.namespace)
	}
	if len(out) > maxAsked {
		return nil, fmt.Errorf("%d nodes are too many to query at a time: specify at most %d with --node", len(out), maxAsked)
	}
	return out, nil
}

// Dump is the content of a map.
type Dump struct {
	Map     live.Map
	Entries []live.Entry
	End     live.End
}

// AskDump has an inspector dump the map that the arguments specify, and calls take with each whole dump. If every is 0,
// there is one.
func AskDump(ctx context.Context, i Inspector, limit int, every time.Duration, take func(Dump) error, which ...string) error {
	question := []string{live.CommandDump, "--limit", strconv.Itoa(limit)}
	if every != 0 {
		question = append(question, "--every", every.String())
	}
	var d Dump
	return Ask(ctx, i, func(line live.DumpLine) error {
		switch {
		case line.Map != nil:
			d = Dump{Map: *line.Map, Entries: []live.Entry{}}
		case line.Entry != nil:
			d.Entries = append(d.Entries, *line.Entry)
		case line.End != nil:
			d.End = *line.End
			return take(d)
		}
		return nil
	}, append(question, which...)...)
}

// AskLogs returns the errors with which a node's daemon refused to load an object, as far as they are too long for its status.
func AskLogs(ctx context.Context, i Inspector, owner v1alpha1.BpfNodeOwner) ([]string, error) {
	var texts []string
	var text strings.Builder
	err := Ask(ctx, i, func(line live.LogLine) error {
		text.WriteString(line.Text)
		if line.End {
			texts = append(texts, text.String())
			text.Reset()
		}
		return nil
	}, live.CommandLog, "--kind", owner.Kind, "--namespace", owner.Namespace, "--name", owner.Name)
	return texts, err
}

// AskUsage has an inspector count the runs of programs, and calls take with what they used in each interval.
func AskUsage(ctx context.Context, i Inspector, interval time.Duration, take func(live.Usage) error) error {
	return Ask(ctx, i, func(u live.Usage) error {
		if u.Elapsed <= 0 {
			return nil // the first answer only confirms the start
		}
		return take(u)
	}, live.CommandTop, "--interval", interval.String())
}

// Ask runs a command, and calls take with each of its answers. It returns when the command ends. If the context
// ends, it closes the command's standard input, and returns without an error.
func Ask[Answer any](ctx context.Context, i Inspector, take func(Answer) error, arguments ...string) error {
	executor, err := i.executor(arguments)
	if err != nil {
		return err
	}
	// The connection outlives the context briefly, so that the command can end first.
	connected, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	asking, hangUp := context.WithCancel(ctx)
	defer hangUp()
	context.AfterFunc(asking, func() { time.AfterFunc(farewell, cut) })

	input, speak := io.Pipe()
	hear, output := io.Pipe()
	var said bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		err := executor.StreamWithContext(connected, remotecommand.StreamOptions{Stdin: input, Stdout: output, Stderr: &said})
		_ = output.Close()
		_ = input.Close()
		ended <- err
	}()
	go keepAlive(asking, speak)

	err = answers(hear, take)
	hangUp()
	_, _ = io.Copy(io.Discard, hear) // discard the rest
	executed := <-ended
	switch {
	case err != nil:
		return fmt.Errorf("node %s: %w", i.Node, err)
	case ctx.Err() != nil:
		return nil
	case executed != nil:
		return fmt.Errorf("node %s: %w", i.Node, explain(executed, said.String()))
	}
	return nil
}

// farewell is how long a command has to end after its standard input is closed.
const farewell = 3 * time.Second

func (i Inspector) executor(arguments []string) (remotecommand.Executor, error) {
	config := i.from.config
	requests, err := restclient.ForScheme(config, corev1.SchemeGroupVersion, scheme.Scheme)
	if err != nil {
		return nil, err
	}
	url := requests.Post().Namespace(i.from.namespace).Resource("pods").Name(i.pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: append([]string{command}, arguments...), Stdin: true, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	// Like kubectl, use websockets, and fall back to SPDY if the API server or a proxy doesn't support them.
	websocket, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		return nil, fmt.Errorf("prepare exec: %w", err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", url)
	if err != nil {
		return nil, fmt.Errorf("prepare exec: %w", err)
	}
	executor, err := remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("prepare exec: %w", err)
	}
	return executor, nil
}

// ErrAbsent is about a map or a program that isn't on a node.
var ErrAbsent = errors.New("not found")

// explain returns the command's standard error as the error if there is any, instead of the exit code.
func explain(err error, said string) error {
	said = strings.TrimSpace(said)
	first, _, _ := strings.Cut(said, "\n")
	var exit exec.CodeExitError
	switch {
	case errors.As(err, &exit) && exit.Code == live.ExitAbsent:
		return fmt.Errorf("%w: %s", ErrAbsent, said)
	case strings.Contains(said, "flag provided but not defined"), strings.Contains(said, "unexpected arguments"):
		return fmt.Errorf("the inspector is older than this command: update bpfman, or use the kubectl bpfman of its version (%s)", first)
	case said != "":
		return errors.New(said)
	}
	return err
}

// keepAlive writes to the command's standard input until the context ends, so that the command continues.
func keepAlive(ctx context.Context, speak *io.PipeWriter) {
	defer speak.Close()
	ticker := time.NewTicker(live.KeepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := speak.Write([]byte{'\n'}); err != nil {
				return
			}
		}
	}
}

// maxAnswer is the maximum length of a line, in bytes. A line about thousands of programs has some hundred
// kilobytes.
const maxAnswer = 16 << 20

func answers[Answer any](from io.Reader, take func(Answer) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		var answer Answer
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return fmt.Errorf("read the inspector's answer: %w", err)
		}
		if err := take(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// maxAsked is the maximum number of nodes to query at the same time. Each needs a connection through the API
// server.
const maxAsked = 256

// Each calls ask for all inspectors concurrently, and joins the errors. After a failure, the others continue.
func Each(inspectors []Inspector, ask func(Inspector) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(inspectors))
	for n, one := range inspectors {
		all.Go(func() { errs[n] = ask(one) })
	}
	all.Wait()
	return errors.Join(errs...)
}
