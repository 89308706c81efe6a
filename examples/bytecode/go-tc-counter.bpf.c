// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts packets and passes them to the next classifier.
#include "counter.h"
#include "verdicts.h"

TRAFFIC_MAP(tc_stats_map);

SEC("classifier")
int stats(struct __sk_buff *skb)
{
	count_packet(&tc_stats_map, skb->len);
	return TC_ACT_PIPE;
}

char _license[] SEC("license") = "Dual BSD/GPL";
