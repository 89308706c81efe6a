// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests of chains: counts packets, and returns the verdict in its global.
#include "counter.h"

TRAFFIC_MAP(verdict_stats_map);

volatile const __u32 VERDICT = XDP_PASS;

SEC("xdp")
int verdict(struct xdp_md *ctx)
{
	count_packet(&verdict_stats_map, xdp_bytes(ctx));
	return VERDICT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
