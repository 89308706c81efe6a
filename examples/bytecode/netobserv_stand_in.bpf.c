// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Replaces the bytecode of NetObserv's agent in its tutorial. It has the functions, maps, and globals that the
// agent uses, with the same names. Instead of flows, it counts packets of each direction.
#include "counter.h"
#include "verdicts.h"

volatile const __u32 sampling = 0;
volatile const __u8 trace_messages = 0;
volatile const __u8 enable_rtt = 0;
volatile const __u8 enable_dns_tracking = 0;
volatile const __u16 dns_port = 0;
volatile const __u8 enable_flows_filtering = 0;
volatile const __u8 enable_network_events_monitoring = 0;
volatile const __u8 network_events_monitoring_groupid = 0;
volatile const __u8 enable_pkt_translation_tracking = 0;
volatile const __u8 enable_ipsec = 0;
volatile const __u8 enable_openssl_tracking = 0;
volatile const __u8 enable_tls_usage_tracking = 0;

#define FLOWS(map, map_type)                   \
	struct {                               \
		__uint(type, map_type);        \
		__uint(max_entries, 16);       \
		__type(key, __u32);            \
		__type(value, struct traffic); \
	} map SEC(".maps")

#define HASH(map) FLOWS(map, BPF_MAP_TYPE_HASH)
#define PERCPU_HASH(map) FLOWS(map, BPF_MAP_TYPE_PERCPU_HASH)

#define RING_BUFFER(map)                            \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, 1 << 16);       \
	} map SEC(".maps")

#define LPM_TRIE(map)                                  \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);   \
		__uint(max_entries, 16);               \
		__uint(map_flags, BPF_F_NO_PREALLOC);  \
		__type(key, struct prefix);            \
		__type(value, __u8);                   \
	} map SEC(".maps")

struct prefix {
	__u32 length;
	__u8 address[16];
};

RING_BUFFER(direct_flows);
RING_BUFFER(packet_record);
RING_BUFFER(ssl_data_event_map);
HASH(aggregated_flows);
PERCPU_HASH(aggregated_flows_dns);
PERCPU_HASH(aggregated_flows_pkt_drop);
PERCPU_HASH(aggregated_flows_network_events);
PERCPU_HASH(aggregated_flows_xlat);
PERCPU_HASH(additional_flow_metrics);
HASH(dns_flows);
HASH(ipsec_ingress_map);
HASH(ipsec_egress_map);
EVENT_MAP(dns_name_map);
EVENT_MAP(global_counters);
LPM_TRIE(filter_map);
LPM_TRIE(peer_filter_map);

static __always_inline void count_flow(void *map, __u32 key, __u64 bytes)
{
	struct traffic first = { .packets = 1, .bytes = bytes };
	struct traffic *traffic = bpf_map_lookup_elem(map, &key);

	if (!traffic) {
		bpf_map_update_elem(map, &key, &first, BPF_NOEXIST);
		return;
	}
	__sync_fetch_and_add(&traffic->packets, 1);
	__sync_fetch_and_add(&traffic->bytes, bytes);
}

SEC("classifier/tcx_ingress_flow_parse")
int tcx_ingress_flow_parse(struct __sk_buff *skb)
{
	count_event(&global_counters);
	count_flow(&aggregated_flows, 0, skb->len);
	return TCX_NEXT;
}

SEC("classifier/tcx_egress_flow_parse")
int tcx_egress_flow_parse(struct __sk_buff *skb)
{
	count_event(&global_counters);
	count_flow(&aggregated_flows, 1, skb->len);
	return TCX_NEXT;
}

SEC("tracepoint/skb/kfree_skb")
int kfree_skb(void *ctx)
{
	count_flow(&aggregated_flows_pkt_drop, 0, 0);
	return 0;
}

SEC("fentry/tcp_rcv_established")
int tcp_rcv_fentry(void *ctx)
{
	count_flow(&additional_flow_metrics, 0, 0);
	return 0;
}

SEC("kprobe/psample_sample_packet")
int network_events_monitoring(void *ctx)
{
	count_flow(&aggregated_flows_network_events, 0, 0);
	return 0;
}

SEC("kprobe/nf_nat_manip_pkt")
int track_nat_manip_pkt(void *ctx)
{
	count_flow(&aggregated_flows_xlat, 0, 0);
	return 0;
}

SEC("kprobe/xfrm_input")
int xfrm_input_kprobe(void *ctx)
{
	count_flow(&ipsec_ingress_map, 0, 0);
	return 0;
}

SEC("kretprobe/xfrm_input")
int xfrm_input_kretprobe(void *ctx)
{
	count_flow(&ipsec_ingress_map, 1, 0);
	return 0;
}

SEC("kprobe/xfrm_output")
int xfrm_output_kprobe(void *ctx)
{
	count_flow(&ipsec_egress_map, 0, 0);
	return 0;
}

SEC("kretprobe/xfrm_output")
int xfrm_output_kretprobe(void *ctx)
{
	count_flow(&ipsec_egress_map, 1, 0);
	return 0;
}

SEC("uprobe/SSL_write")
int probe_entry_SSL_write(void *ctx)
{
	count_event(&global_counters);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
