// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts calls of a kernel function; the example uses try_to_wake_up.
#include "counter.h"

EVENT_MAP(kprobe_stats_map);

SEC("kprobe/try_to_wake_up")
int kprobe_counter(void *ctx)
{
	count_event(&kprobe_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
