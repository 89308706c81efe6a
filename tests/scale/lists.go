// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// listsOfNodes is the number of nodes whose reports are listed to measure the cost of one list.
const listsOfNodes = 20

// lists compares the ways of reading reports: all of them, as the operator does when it starts, and those of one
// node, as an agent does.
func (b *bench) lists(ctx context.Context) error {
	for _, way := range []string{"list", "pages", "stream"} {
		if err := b.readAll(ctx, way); err != nil {
			return fmt.Errorf("read all reports: %w", err)
		}
	}
	for figure, parameters := range map[string]map[string]string{
		"node_list_cached": {"resourceVersion": "0"}, "node_list_consistent": nil, "node_list_paged": {"limit": "500"},
	} {
		if err := b.listNodes(ctx, figure, parameters); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads all reports like the operator's store, in a separate process.
func (b *bench) readAll(ctx context.Context, way string) error {
	kubeconfig, err := b.control.kubeconfig("operator", b.control.accounts[operatorAccount])
	if err != nil {
		return err
	}
	if _, err := b.control.collected(ctx, 1); err != nil {
		return err
	}
	before, err := b.control.apiServer.memory()
	if err != nil {
		return err
	}
	if err := b.control.apiServer.forgetPeak(); err != nil {
		return err
	}
	reader := exec.CommandContext(ctx, b.reportsTest, "-test.run", "^TestWay$")
	reader.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "BPFMAN_TEST_WAY="+way)
	var out bytes.Buffer
	reader.Stdout, reader.Stderr = &out, &out
	used, _, err := usage(b.control.apiServer, reader.Run)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", way, err, out.Bytes())
	}
	peak, err := b.control.apiServer.memory()
	if err != nil {
		return err
	}
	var count, own int
	var seconds float64
	if _, err := fmt.Sscanf(out.String(), "%d reports in %f s with %d KiB", &count, &seconds, &own); err != nil || count < b.nodes*b.programs {
		return fmt.Errorf("%s: it says %q (%w)", way, out.String(), cmpErr(err))
	}
	b.put("reading_"+way+"_s", seconds)
	b.put("reading_"+way+"_cpu_s", (reader.ProcessState.UserTime() + reader.ProcessState.SystemTime()).Seconds())
	b.put("reading_"+way+"_rss_peak_mb", float64(own)/1024)
	b.put("reading_"+way+"_apiserver_cpu_s", used.Seconds())
	b.put("reading_"+way+"_apiserver_rss_more_mb", peak.peak-before.resident)
	b.say("  %s: %d reports in %.2f s; %.2f s of CPU, %d MiB at most; API server: %.2f s, %.0f MiB more at most", way, count, seconds,
		b.figures["reading_"+way+"_cpu_s"], own/1024, used.Seconds(), peak.peak-before.resident)
	return nil
}

// forgetPeak resets the maximum resident memory of the process.
func (p process) forgetPeak() error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of process %d: %w", p.pid, err)
	}
	return nil
}

// listNodes lists the reports of some nodes like an agent.
func (b *bench) listNodes(ctx context.Context, figure string, parameters map[string]string) error {
	client, err := kubernetes.NewForConfig(b.control.as(agentAccount))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	list := func(i int) error {
		selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelHostname: v1alpha1.LabelValue(nodeName(i))})
		request := client.RESTClient().Get().AbsPath("/apis/"+v1alpha1.GroupVersion.String()+"/bpfprograms").Param("labelSelector", selector.String())
		for name, value := range parameters {
			request.Param(name, value)
		}
		if _, err := request.DoRaw(ctx); err != nil {
			return fmt.Errorf("list the reports of %s: %w", nodeName(i), err)
		}
		return nil
	}
	if err := list(0); err != nil { // connect first
		return err
	}
	used, took, err := usage(b.control.apiServer, func() error {
		for i := range listsOfNodes {
			if err := list(i % b.nodes); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.put(figure+"_ms", float64(took.Microseconds())/1000/listsOfNodes)
	b.put(figure+"_apiserver_cpu_ms", float64(used.Microseconds())/1000/listsOfNodes)
	b.say("  %s: %.0f ms, %.0f ms of the API server's CPU", figure, took.Seconds()*1000/listsOfNodes, used.Seconds()*1000/listsOfNodes)
	return nil
}
