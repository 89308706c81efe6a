// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Runs on every openat(2).
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "globals.h"

SEC("tracepoint/syscalls/sys_enter_openat")
int enter_openat(void *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
