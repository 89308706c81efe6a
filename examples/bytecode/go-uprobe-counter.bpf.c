// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts calls of a function in a process; the example uses go-target's main.getCount.
#include "counter.h"

EVENT_MAP(uprobe_stats_map);

SEC("uprobe")
int uprobe_counter(void *ctx)
{
	count_event(&uprobe_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
