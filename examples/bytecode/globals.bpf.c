// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// For tests: copies globals of each size into a map on each kill(2), one per slot, in
// the order of their declaration. It is a tracepoint, because most kernels support it.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

volatile const __u8 GLOBAL_u8 = 0;
volatile const __u16 GLOBAL_u16 = 0;
volatile const __u32 GLOBAL_u32 = 0;
volatile const __u64 GLOBAL_u64 = 0;
volatile const __u8 GLOBAL_bytes[8] = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 12);
	__type(key, __u32);
	__type(value, __u64);
} globals_map SEC(".maps");

static __always_inline void show(__u32 slot, __u64 value)
{
	bpf_map_update_elem(&globals_map, &slot, &value, BPF_ANY);
}

SEC("tracepoint/syscalls/sys_enter_kill")
int show_globals(void *ctx)
{
	show(0, GLOBAL_u8);
	show(1, GLOBAL_u16);
	show(2, GLOBAL_u32);
	show(3, GLOBAL_u64);
#pragma unroll
	for (__u32 i = 0; i < sizeof(GLOBAL_bytes); i++)
		show(4 + i, GLOBAL_bytes[i]);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
