// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Prints on every kill(2): `kubectl bpfman trace` shows it.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("tracepoint/syscalls/sys_enter_kill")
int print_kill(void *ctx)
{
	bpf_printk("kill by process %d", bpf_get_current_pid_tgid() >> 32);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
