// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Drops the IPv4 packets of each address that is in the map, counts them there, and hands
// on all others. A pod decides which addresses these are: cmd/firewall.
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "verdicts.h"

// Octets rather than a number, so that the kernel prints the address as people write it.
struct address {
	__u8 octets[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u64); // packets dropped
} blocked SEC(".maps");

SEC("classifier")
int firewall(struct __sk_buff *skb)
{
	struct address source;
	__u64 *dropped;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return TCX_NEXT;
	// Relative to the IP header: tunnels and WireGuard have no Ethernet header before it.
	if (bpf_skb_load_bytes_relative(skb, offsetof(struct iphdr, saddr), &source, sizeof(source), BPF_HDR_START_NET))
		return TCX_NEXT;
	dropped = bpf_map_lookup_elem(&blocked, &source);
	if (!dropped)
		return TCX_NEXT;
	__sync_fetch_and_add(dropped, 1);
	return TCX_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
