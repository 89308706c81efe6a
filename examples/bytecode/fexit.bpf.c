// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts returns from the kernel's do_unlinkat.
#include "counter.h"

EVENT_MAP(fexit_stats_map);

SEC("fexit/do_unlinkat")
int test_fexit(void *ctx)
{
	count_event(&fexit_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
