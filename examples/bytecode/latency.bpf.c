// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Measures how long the calls of a function take: one member of an application is attached
// to the function, and the other to its return.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define NANOSECONDS 1000
#define SLOTS 32

// When each thread has called the function. Of calls within calls, only the innermost counts.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} calls SEC(".maps");

// Slot n has the number of calls that took 2^n microseconds or longer, and less than the
// next slot's. The first has those of less than 2 too, the last all that took longer.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} latency SEC(".maps");

SEC("uprobe")
int called(void *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&calls, &thread, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe")
int returned(void *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u64 *began = bpf_map_lookup_elem(&calls, &thread);
	__u64 microseconds, *count;
	__u32 slot = 0;

	if (!began)
		return 0;
	microseconds = (bpf_ktime_get_ns() - *began) / NANOSECONDS;
	bpf_map_delete_elem(&calls, &thread);
	while (slot < SLOTS - 1 && microseconds > 1) {
		microseconds >>= 1;
		slot++;
	}
	count = bpf_map_lookup_elem(&latency, &slot);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
