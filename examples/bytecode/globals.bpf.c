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
volatile const int GLOBAL_int = 0;
volatile const _Bool GLOBAL_bool = 0;
volatile const char GLOBAL_text[8] = {};
volatile const __u16 GLOBAL_list[2] = {};
volatile const struct limits {
	__u32 low, high;
} GLOBAL_limits = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 26);
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
	show(12, GLOBAL_int);
	show(13, GLOBAL_bool);
#pragma unroll
	for (__u32 i = 0; i < sizeof(GLOBAL_text); i++)
		show(14 + i, GLOBAL_text[i]);
	show(22, GLOBAL_list[0]);
	show(23, GLOBAL_list[1]);
	show(24, GLOBAL_limits.low);
	show(25, GLOBAL_limits.high);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
