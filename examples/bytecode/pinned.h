// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests of upgrades: a map that is pinned by name, with values of VALUE_SIZE bytes, of
// which the program writes byte WRITTEN.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#ifndef WRITTEN
#define WRITTEN (VALUE_SIZE - 1)
#endif

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u8[VALUE_SIZE]);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pinned_flows SEC(".maps");

SEC("classifier")
int pinned(struct __sk_buff *skb)
{
	__u32 key = 0;
	__u8 *value = bpf_map_lookup_elem(&pinned_flows, &key);

	if (value)
		value[WRITTEN]++;
	return -1; /* TCX_NEXT */
}

char _license[] SEC("license") = "Dual BSD/GPL";
