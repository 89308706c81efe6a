// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts calls of kill(2).
#include "counter.h"

EVENT_MAP(tracepoint_stats_map);

SEC("tracepoint/syscalls/sys_enter_kill")
int tracepoint_kill_recorder(void *ctx)
{
	count_event(&tracepoint_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
