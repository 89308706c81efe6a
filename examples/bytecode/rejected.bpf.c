// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests of failures: the verifier rejects it, because it reads a packet without
// checking where the packet ends.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("classifier")
int rejected(struct __sk_buff *skb)
{
	return *(__u8 *)(long)skb->data;
}

char _license[] SEC("license") = "Dual BSD/GPL";
