// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Replaces the bytecode of Ingress Node Firewall in its tutorial. Its functions, maps, keys, and values have the same
// names and layouts. It only applies rules for TCP and UDP ports of IPv4 packets, sends no events, logs no lookups,
// and doesn't pin its maps by name.
#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counter.h"
#include "verdicts.h"

#define RULES 100 // of an entry
#define IDS 1024

volatile const __u32 debug_lookup = 0;

enum action { NONE = 0, DENY = XDP_DROP, ALLOW = XDP_PASS };

struct source {
	__u32 prefixLen; // of what follows, in bits
	__u32 ingress_ifindex;
	__u8 ip_data[16];
} __attribute__((packed));

struct rule {
	__u32 ruleId; // from 1 on
	__u8 protocol; // 0: any
	__u16 dstPortStart;
	__u16 dstPortEnd; // the first port that doesn't match, or 0 for one port
	__u8 icmpType;
	__u8 icmpCode;
	__u8 action;
} __attribute__((packed));

struct entry {
	struct rule rules[RULES];
};

struct statistics {
	struct traffic allow_stats;
	struct traffic deny_stats;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, IDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source);
	__type(value, struct entry);
} ingress_node_firewall_table_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, IDS);
	__type(key, __u32); // the rule's id
	__type(value, struct statistics);
} ingress_node_firewall_statistics_map SEC(".maps");

// The daemon of Ingress Node Firewall opens these maps too.
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} ingress_node_firewall_events_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, IDS);
	__type(key, struct source);
	__type(value, struct source);
} ingress_node_firewall_dbg_map SEC(".maps");

static __always_inline bool matches(const struct rule *rule, __u8 protocol, __u16 port)
{
	if (!rule->ruleId)
		return false;
	if (!rule->protocol)
		return true;
	if (rule->protocol != protocol)
		return false;
	return rule->dstPortEnd ? port >= rule->dstPortStart && port < rule->dstPortEnd : port == rule->dstPortStart;
}

static __always_inline void count(__u32 id, enum action action, __u64 bytes)
{
	struct statistics *statistics = bpf_map_lookup_elem(&ingress_node_firewall_statistics_map, &id);

	if (!statistics)
		return;
	struct traffic *traffic = action == DENY ? &statistics->deny_stats : &statistics->allow_stats;

	traffic->packets++;
	traffic->bytes += bytes;
}

// decide applies the first rule that matches the packet, among those for the longest prefix of its source.
static __always_inline enum action decide(void *data, void *end, __u32 interface, __u64 bytes)
{
	struct source source = { .prefixLen = 64, .ingress_ifindex = interface };
	struct iphdr *ip = data + ETH_HLEN;
	__be16 *ports = (void *)(ip + 1); // of an IP header without options

	if ((void *)(ports + 2) > end || ((struct ethhdr *)data)->h_proto != bpf_htons(ETH_P_IP))
		return NONE;
	if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
		return NONE;
	__builtin_memcpy(source.ip_data, &ip->saddr, sizeof(ip->saddr));

	__u8 protocol = ip->protocol;
	__u16 port = bpf_ntohs(ports[1]);
	struct entry *entry = bpf_map_lookup_elem(&ingress_node_firewall_table_map, &source);

	if (!entry)
		return NONE;
	for (int i = 0; i < RULES; i++) {
		struct rule *rule = &entry->rules[i];

		if (matches(rule, protocol, port)) {
			count(rule->ruleId, rule->action, bytes);
			return rule->action;
		}
	}
	return NONE;
}

SEC("xdp")
int xdp_ingress_node_firewall_process(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return decide(data, end, ctx->ingress_ifindex, xdp_bytes(ctx)) == DENY ? XDP_DROP : XDP_PASS;
}

SEC("classifier")
int tcx_ingress_node_firewall_process(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	return decide(data, end, skb->ifindex, skb->len) == DENY ? TCX_DROP : TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
