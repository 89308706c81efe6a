// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Runs where it is attached. The samples use functions of libc.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "globals.h"

SEC("uprobe")
int my_uprobe(void *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
