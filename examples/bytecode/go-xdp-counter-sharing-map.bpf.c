// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts packets into a map that is pinned by its name: all programs that are
// loaded from this file count into the same one, in whichever place.
#include "counter.h"
#include "verdicts.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic);
	// The daemon of v0.6.0 shares no other maps with a user of their owner's.
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} shared_stats_map SEC(".maps");

SEC("xdp")
int xdp_stats(struct xdp_md *ctx)
{
	count_packet(&shared_stats_map, xdp_bytes(ctx));
	return XDP_PASS;
}

SEC("classifier")
int tcx_stats(struct __sk_buff *skb)
{
	count_packet(&shared_stats_map, skb->len);
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
