// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests of chains with TC and TCX: counts packets, and returns the verdict in its
// global.
#include "counter.h"
#include "verdicts.h"

TRAFFIC_MAP(verdict_stats_map);

volatile const __s32 VERDICT = TC_ACT_UNSPEC;

SEC("classifier")
int verdict(struct __sk_buff *skb)
{
	count_packet(&verdict_stats_map, skb->len);
	return VERDICT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
