// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts packets and passes them to the next program.
#include "counter.h"
#include "verdicts.h"

TRAFFIC_MAP(tcx_stats_map);

SEC("classifier")
int tcx_stats(struct __sk_buff *skb)
{
	count_packet(&tcx_stats_map, skb->len);
	return TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
