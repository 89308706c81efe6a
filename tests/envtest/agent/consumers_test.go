// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/consumers"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// NetObserv's operator gets its object, and creates it, or updates all of it, in each pass. Variables that are unset are null.
// If a feature is switched on, it adds programs.
func TestRequestsOfNetObserv(t *testing.T) {
	n := start(t)
	n.mu.Lock()
	n.interfaces = map[string]program.Interface{"lo": {Index: 1}, "eth0": {Index: 2}}
	n.mu.Unlock()
	c := consumers.NetObserv(t)
	n.receives(c, "EbpfManager")
	base := []string{"ClusterBpfApplication/netobserv tcx_egress_flow_parse eth0", "ClusterBpfApplication/netobserv tcx_ingress_flow_parse eth0"}
	n.loadsOf(base...)
	n.daemon.Calls()
	n.receives(c, "EbpfManager")
	n.globalsAre("dns_port", "sampling")
	n.receives(c, "FlowRTT, DNSTracking, PacketDrop")
	dropsAndTimes := append(slices.Clone(base), "ClusterBpfApplication/netobserv kfree_skb skb/kfree_skb", "ClusterBpfApplication/netobserv tcp_rcv_fentry")
	n.loadsOf(dropsAndTimes...)
	n.event("netobserv", "Reloaded", "Reloaded program ")
	n.globalsAre("dns_port", "enable_dns_tracking", "enable_rtt", "sampling")
	n.receives(c, "all features")
	n.loadsOf(append(slices.Clone(dropsAndTimes),
		"ClusterBpfApplication/netobserv network_events_monitoring psample_sample_packet", "ClusterBpfApplication/netobserv track_nat_manip_pkt nf_nat_manip_pkt",
		"ClusterBpfApplication/netobserv xfrm_input_kprobe xfrm_input", "ClusterBpfApplication/netobserv xfrm_input_kretprobe xfrm_input",
		"ClusterBpfApplication/netobserv xfrm_output_kprobe xfrm_output", "ClusterBpfApplication/netobserv xfrm_output_kretprobe xfrm_output")...)
	n.receives(c, "FlowRTT")
	n.loadsOf(append(slices.Clone(base), "ClusterBpfApplication/netobserv tcp_rcv_fentry")...)
	n.loadedTimes(3)
}

// The operator of Ingress Node Firewall writes the direction in small letters, and attaches one function by XDP and another
// by TCX to the same interfaces. Other interfaces are no reload, but another value of the global is one.
func TestRequestsOfIngressNodeFirewall(t *testing.T) {
	n := start(t)
	n.mu.Lock()
	n.interfaces = map[string]program.Interface{"lo": {Index: 1}, "eth0": {Index: 2}, "eth1": {Index: 3}}
	n.mu.Unlock()
	c := consumers.IngressNodeFirewall(t)
	programs := func(on string) []string {
		return []string{
			"ClusterBpfApplication/ingress-node-firewall tcx_ingress_node_firewall_process" + on,
			"ClusterBpfApplication/ingress-node-firewall xdp_ingress_node_firewall_process" + on,
		}
	}
	n.receives(c, "IngressNodeFirewall")
	n.loadsOf(programs(" eth0")...)
	n.daemon.Calls()
	n.receives(c, "interfaces")
	n.loadsOf(programs(" eth0 eth1")...)
	n.loadedTimes(0)
	n.receives(c, "debug")
	n.event("ingress-node-firewall", "Reloaded", "Reloaded program ")
	n.loadsOf(programs(" eth0 eth1")...)
	n.globalsAre("debug_lookup")
	n.loadedTimes(1)
}

// receives sends the request of a consumer, for the test's node and bytecode.
func (n *node) receives(c *consumers.Consumer, step string) {
	n.t.Helper()
	body := c.Request(n.t, step)
	body.SetOwnerReferences(nil) // the definition of the owner isn't installed
	must.Succeed(n.t, unstructured.SetNestedStringMap(body.Object, map[string]string{"test": n.name}, "spec", "nodeSelector", "matchLabels"))
	must.Succeed(n.t, unstructured.SetNestedStringMap(body.Object, map[string]string{"path": "/object.o"}, "spec", "byteCode"))
	envtest.Eventually(n.t, "a pass of the consumer's operator", func(ctx context.Context) error {
		return consumers.Send(ctx, n.client, body.DeepCopy())
	})
	n.t.Cleanup(func() { _ = n.client.Delete(context.Background(), body) })
}

// loadsOf waits until the daemon has exactly these programs, each in the form "owner function link…".
func (n *node) loadsOf(want ...string) {
	n.t.Helper()
	slices.Sort(want)
	n.eventually("the node's programs", func() error {
		var got []string
		for _, p := range n.daemon.Programs() {
			words := []string{p.Metadata[v1alpha1.MetadataKind] + "/" + p.Metadata[v1alpha1.MetadataProgramName], p.Function}
			var hooks []string
			for _, l := range p.Links {
				if hook := program.HookOf(l); hook.Name != "" {
					hooks = append(hooks, hook.Name)
				}
			}
			slices.Sort(hooks)
			got = append(got, strings.Join(append(words, hooks...), " "))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the daemon holds %q, not %q", got, want)
		}
		return nil
	})
}

// globalsAre compares the names of the globals of all programs.
func (n *node) globalsAre(want ...string) {
	n.t.Helper()
	for _, p := range n.daemon.Programs() {
		if got := slices.Sorted(maps.Keys(p.GlobalData)); !slices.Equal(got, want) {
			n.t.Errorf("%s has the globals %q, want %q", p.Function, got, want)
		}
	}
}

// loadedTimes checks the number of loads since the last call.
func (n *node) loadedTimes(want int) {
	n.t.Helper()
	calls := slices.DeleteFunc(n.daemon.Calls(), func(call string) bool { return call != "Load" })
	if len(calls) != want {
		n.t.Errorf("%d loads, want %d", len(calls), want)
	}
}
