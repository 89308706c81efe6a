// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts the packets that an interface receives, before the network stack sees them.
#include "counter.h"

TRAFFIC_MAP(xdp_stats_map);

SEC("xdp")
int xdp_stats(struct xdp_md *ctx)
{
	count_packet(&xdp_stats_map, xdp_bytes(ctx));
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
