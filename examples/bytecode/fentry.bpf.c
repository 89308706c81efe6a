// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts entries into the kernel's do_unlinkat.
#include "counter.h"

EVENT_MAP(fentry_stats_map);

SEC("fentry/do_unlinkat")
int test_fentry(void *ctx)
{
	count_event(&fentry_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
