// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests of long messages: the verifier rejects its last access, at byte 98 of a
// value of 96 bytes, after a log of many thousand lines.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[96]);
} flows SEC(".maps");

SEC("classifier")
int rejected_late(struct __sk_buff *skb)
{
	__u32 key = 0;
	volatile __u8 *value = bpf_map_lookup_elem(&flows, &key);

	if (!value)
		return 0;
#pragma unroll
	for (int i = 0; i < 700; i++)
		value[i % 96] += i;
	value[98] = 1;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
