// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Accepts every packet.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "globals.h"
#include "verdicts.h"

SEC("classifier")
int pass(struct __sk_buff *skb)
{
	return TC_ACT_OK;
}

char _license[] SEC("license") = "Dual BSD/GPL";
