// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts calls of kill(2) without a signal. It needs what libbpf does and the daemon's loader doesn't: the element of an
// array in a structure of the kernel, a value of the kernel's configuration, and a short name of a section. The program in
// the last section has a type for which bpfman has no kind.
#include "counter.h"

struct syscall_trace_enter {
	unsigned long args[6];
} __attribute__((preserve_access_index));

extern int LINUX_KERNEL_VERSION __kconfig;

EVENT_MAP(kill_stats_map);

SEC("tp/syscalls/sys_enter_kill")
int kill_without_signal(struct syscall_trace_enter *ctx)
{
	if (ctx->args[1] == 0 && LINUX_KERNEL_VERSION >= 0x40000)
		count_event(&kill_stats_map);
	return 0;
}

SEC("iter/task")
int list_tasks(void *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
