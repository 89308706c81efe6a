// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests of faults: the verifier refuses it, as it reads a packet without
// looking where the packet ends.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("classifier")
int rejected(struct __sk_buff *skb)
{
	return *(__u8 *)(long)skb->data;
}

char _license[] SEC("license") = "Dual BSD/GPL";
