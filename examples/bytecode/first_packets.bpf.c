// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts numbered packets: UDP to port 4242, with the number in the first four bytes of
// the payload, in network byte order.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "verdicts.h"

#define PORT 4242
#define MAX_NUMBERS 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_NUMBERS);
	__type(key, __u32);
	__type(value, __u64);
} numbers SEC(".maps");

SEC("classifier")
int first_packets(struct __sk_buff *skb)
{
	struct {
		struct ethhdr eth;
		struct iphdr ip;
		struct udphdr udp;
		__be32 number;
	} __attribute__((packed)) packet;

	if (bpf_skb_load_bytes(skb, 0, &packet, sizeof(packet)))
		return TCX_NEXT;
	if (packet.eth.h_proto != bpf_htons(ETH_P_IP) || packet.ip.protocol != IPPROTO_UDP || packet.udp.dest != bpf_htons(PORT))
		return TCX_NEXT;

	__u32 number = bpf_ntohl(packet.number);
	__u64 *count = bpf_map_lookup_elem(&numbers, &number);

	if (count)
		__sync_fetch_and_add(count, 1);
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
