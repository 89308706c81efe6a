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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// netobserv is the object of NetObserv's operator (netobserv-operator 724fe37e), as its Go types write it, for the test's
// node and bytecode. %s are the label of the node, and further programs.
const netobserv = `{
  "apiVersion": "bpfman.io/v1alpha1", "kind": "ClusterBpfApplication",
  "metadata": {"name": "netobserv", "creationTimestamp": null, "labels": {"app": "netobserv", "netobserv-managed": "true"}},
  "spec": {
    "nodeSelector": {"matchLabels": {"test": %q}},
    "globalData": {
      "sampling": "MgAAAA==", "trace_messages": null, "enable_rtt": null, "enable_dns_tracking": "AQ==", "dns_port": "NQA=",
      "enable_flows_filtering": null, "enable_network_events_monitoring": null, "network_events_monitoring_groupid": null,
      "enable_pkt_translation_tracking": null, "enable_ipsec": null, "enable_openssl_tracking": null
    },
    "byteCode": {"path": "/object.o"},
    "programs": [
      {"name": "tcx_ingress_flow_parse", "type": "TCX", "tcx": {"links": [
        {"interfaceSelector": {"interfacesDiscoveryConfig": {"interfaceAutoDiscovery": true}}, "direction": "Ingress"}]}},
      {"name": "tcx_egress_flow_parse", "type": "TCX", "tcx": {"links": [
        {"interfaceSelector": {"interfacesDiscoveryConfig": {"interfaceAutoDiscovery": true}}, "direction": "Egress"}]}}%s
    ]
  },
  "status": {}
}`

// netobservFeatures are the programs of the features round-trip time, packet drops, and network events.
const netobservFeatures = `,
      {"name": "tcp_rcv_fentry", "type": "FEntry", "fentry": {"function": "tcp_rcv_established", "links": [{"mode": "Attach"}]}},
      {"name": "kfree_skb", "type": "TracePoint", "tracepoint": {"links": [{"name": "skb/kfree_skb"}]}},
      {"name": "network_events_monitoring", "type": "KProbe", "kprobe": {"links": [{"function": "psample_sample_packet", "offset": 0}]}}`

// NetObserv's operator gets its object, and creates it, or updates all of it, in each pass. Variables that are unset are null.
// If a feature is switched on, it adds programs.
func TestRequestsOfNetObserv(t *testing.T) {
	n := start(t)
	n.mu.Lock()
	n.interfaces = map[string]program.Interface{"lo": {Index: 1}, "eth0": {Index: 2}}
	n.mu.Unlock()
	o := &unstructured.Unstructured{}
	pass := func(features string) {
		t.Helper()
		n.eventually("a pass of NetObserv's operator", func() error {
			must.Succeed(t, o.UnmarshalJSON(fmt.Appendf(nil, netobserv, n.name, features)))
			now := o.DeepCopy()
			switch err := n.client.Get(context.Background(), client.ObjectKeyFromObject(o), now); {
			case apierrors.IsNotFound(err):
				return n.client.Create(context.Background(), o)
			case err != nil:
				return err
			}
			o.SetResourceVersion(now.GetResourceVersion())
			return n.client.Update(context.Background(), o)
		})
	}
	pass("")
	t.Cleanup(func() { _ = n.client.Delete(context.Background(), o) })
	base := []string{"ClusterBpfApplication/netobserv tcx_egress_flow_parse eth0", "ClusterBpfApplication/netobserv tcx_ingress_flow_parse eth0"}
	n.loadsOf(base)
	n.daemon.Calls()
	pass("")
	for _, p := range n.daemon.Programs() {
		if got := slices.Sorted(maps.Keys(p.GlobalData)); !slices.Equal(got, []string{"dns_port", "enable_dns_tracking", "sampling"}) {
			t.Errorf("%s has the globals %q", p.Function, got)
		}
	}
	pass(netobservFeatures)
	n.loadsOf(append(slices.Clone(base), "ClusterBpfApplication/netobserv kfree_skb skb/kfree_skb",
		"ClusterBpfApplication/netobserv network_events_monitoring psample_sample_packet", "ClusterBpfApplication/netobserv tcp_rcv_fentry"))
	n.event("netobserv", "Reloaded", "Reloaded program ")
	pass("")
	n.loadsOf(base)
	calls := slices.DeleteFunc(n.daemon.Calls(), func(call string) bool { return call == "List" })
	if loads := len(slices.DeleteFunc(calls, func(call string) bool { return call != "Load" })); loads != 2 {
		t.Errorf("%d loads after the first, want one for each change of the features", loads)
	}
}

// loadsOf waits until the daemon has exactly these programs, each in the form "owner function link…", and their reports are
// there: one for each link, and one more for the pods of a link that discovers everywhere.
func (n *node) loadsOf(want []string) {
	n.t.Helper()
	slices.Sort(want)
	n.eventually("the node's programs", func() error {
		var got []string
		for _, p := range n.daemon.Programs() {
			words := []string{p.Metadata[v1alpha1.MetadataKind] + "/" + p.Metadata[v1alpha1.MetadataProgramName], p.Function}
			for _, l := range p.Links {
				if hook := program.HookOf(l); hook.Name != "" {
					words = append(words, hook.Name)
				}
			}
			got = append(got, strings.Join(words, " "))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the daemon holds %q, not %q", got, want)
		}
		return nil
	})
}
