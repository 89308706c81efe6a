// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts returns from a function in a process.
#include "counter.h"

EVENT_MAP(uretprobe_stats_map);

SEC("uretprobe")
int uretprobe_counter(void *ctx)
{
	count_event(&uretprobe_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
