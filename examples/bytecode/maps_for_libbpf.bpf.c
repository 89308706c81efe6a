// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Has maps with definitions that libbpf completes or changes, and that the daemon's loader passes to the kernel as they
// are. The function in the last section uses a map of a type that the loader can't create.
#include "counter.h"

enum signal { NONE, OTHER };

struct event {
	__u64 time;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
	__type(value, struct event);
} typed_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(value, struct event);
} typed_perf SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} typed_programs SEC(".maps");

int use_maps(void *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} filled_programs SEC(".maps") = { .values = { (void *)&use_maps } };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, enum signal);
	__type(value, struct event);
} by_enum SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, sizeof(struct event));
} half_typed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, sizeof(__u32));
} stacks_without_size SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct event);
} hash_without_size SEC(".maps");

EVENT_MAP(kill_stats_map);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__type(key, __u32);
		__type(value, __u32);
	});
} nested SEC(".maps");

SEC("tp/syscalls/sys_enter_kill")
int use_maps(void *ctx)
{
	struct event event = { 1 };
	__u32 key = OTHER;

	bpf_map_update_elem(&by_enum, &key, &event, BPF_ANY);
	bpf_map_update_elem(&hash_without_size, &key, &event, BPF_ANY);
	bpf_map_lookup_elem(&half_typed, &key);
	bpf_ringbuf_output(&typed_ring, &event, sizeof(event), 0);
	bpf_perf_event_output(ctx, &typed_perf, BPF_F_CURRENT_CPU, &event, sizeof(event));
	bpf_get_stackid(ctx, &stacks_without_size, 0);
	count_event(&kill_stats_map);
	bpf_tail_call(ctx, &typed_programs, 0);
	bpf_tail_call(ctx, &filled_programs, 0);
	return 0;
}

SEC("tp/syscalls/sys_exit_kill")
int use_map_of_maps(void *ctx)
{
	__u32 key = 0;

	bpf_map_lookup_elem(&nested, &key);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
