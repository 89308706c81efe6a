// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests: a program whose runs take longer, the more often the global lets it read the
// clock. It is a tracepoint, because most kernels support it.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

volatile const __u8 readings = 1;

SEC("tracepoint/syscalls/sys_enter_openat")
int delay(void *ctx)
{
	for (__u32 i = 0; i < readings; i++)
		bpf_ktime_get_ns();
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
