// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Runs where it is attached. The sample uses try_to_wake_up.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "globals.h"

SEC("kprobe/try_to_wake_up")
int my_kprobe(void *ctx)
{
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
