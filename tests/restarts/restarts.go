// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package restarts finds containers that restarted although the test didn't restart them.
package restarts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/tests/node"
)

// containers contains the container of each program of bpfman.
var containers = map[string]string{
	node.Daemon: "bpfman", node.Agent: "bpfman-agent", node.CSI: "bpfman-csi", node.Inspector: "bpfman-inspector",
	node.Registrar: "node-driver-registrar", node.Operator: "bpfman-operator",
}

// Unlimited is a number of restarts that no test reaches.
const Unlimited = 1 << 20

// Log knows how often the containers of a namespace have restarted.
type Log struct {
	pods client.Reader
	name string
	// mutex is for the rest.
	mutex sync.Mutex
	seen  map[instance]int
	// expected are the restarts since the last check, and earlier those before it: the kubelet can report a restart
	// only after the test has found the new process.
	expected, earlier map[string]int
	// delayed means that restarts since the last check can be reported even later.
	delayed bool
	// startErrors is for how many checks containers can have failed to start.
	startErrors int
}

// instance is a container of a pod.
type instance struct {
	pod  types.UID
	name string
}

// NewLog returns a log of a namespace. Restarts before its first check are none of the test's.
func NewLog(pods client.Reader, namespace string) *Log {
	return &Log{pods: pods, name: namespace, expected: map[string]int{}, earlier: map[string]int{}}
}

// Expect announces that the test restarts the container of a program once on n nodes. The registrar can end with the CSI
// plugin: it does if it registers a plugin that doesn't answer.
func (l *Log) Expect(program string, n int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.expected[containers[program]] += n
	if program == node.CSI {
		l.expected[containers[node.Registrar]] += n
	}
}

// ExpectNode announces that the test restarts a node, with all containers there.
func (l *Log) ExpectNode() {
	for program := range containers {
		l.Expect(program, 1)
	}
}

// ExpectStartErrors announces that the test keeps the container runtime from starting containers for a while. A container
// that it couldn't start hasn't restarted by itself.
func (l *Log) ExpectStartErrors() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.startErrors = 2 // the kubelet can report it after the next check
}

// ExpectDelay announces that the test disturbs the kubelet or the container runtime, so that restarts are reported late.
func (l *Log) ExpectDelay() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.delayed = true
}

// Unexpected returns the containers that have restarted since the last check more often than expected.
func (l *Log) Unexpected(ctx context.Context) ([]string, error) {
	var pods corev1.PodList
	if err := l.pods.List(ctx, &pods, client.InNamespace(l.name)); err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", l.name, err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now, again, ends := map[instance]int{}, map[string]int{}, map[string]string{}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			i := instance{pod.UID, c.Name}
			now[i] = int(c.RestartCount)
			end := c.LastTerminationState.Terminated
			if more := now[i] - l.seen[i]; more > 0 && (l.startErrors == 0 || end == nil || end.Reason != "StartError") {
				again[c.Name] += more
				ends[c.Name] = fmt.Sprintf("pod %s: %s", pod.Name, ending(end))
			}
		}
	}
	l.startErrors = max(0, l.startErrors-1)
	first := l.seen == nil
	l.seen = now
	var out []string
	for _, name := range slices.Sorted(maps.Keys(again)) {
		allowed := l.expected[name] + l.earlier[name]
		if !first && again[name] > allowed {
			out = append(out, fmt.Sprintf("container %s restarted %d times, and the test restarted it %d times; the last in %s",
				name, again[name], allowed, ends[name]))
		}
		l.earlier[name], l.expected[name] = max(0, l.earlier[name]-again[name]), max(0, l.expected[name]-max(0, again[name]-l.earlier[name]))
	}
	if l.delayed {
		for name, times := range l.earlier {
			l.expected[name] += times
		}
	}
	l.earlier, l.expected, l.delayed = l.expected, map[string]int{}, false
	return out, nil
}

func ending(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return "its end is unknown"
	}
	return fmt.Sprintf("%s, exit code %d: %s", t.Reason, t.ExitCode, t.Message)
}
