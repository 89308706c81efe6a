// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts packets in a map that is pinned by name. All programs that are loaded from this
// file count in the same map, no matter where they are attached.
#include "counter.h"
#include "verdicts.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic);
	// The daemon of v0.6.0 shares only maps that are pinned by name.
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
