// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts system calls, and how much they read, in maps of the form that ebpf_exporter reads: the key has the labels, and
// the value is a count. Of a histogram, the last label is the bucket, and the bucket after the last one has the sum.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define MAX_BUCKET 20

struct read_key {
	__u64 bucket;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} syscalls_total SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_BUCKET + 2);
	__type(key, struct read_key);
	__type(value, __u64);
} syscall_read_bytes SEC(".maps");

static __always_inline void add(void *map, void *key, __u64 increment)
{
	__u64 *count = bpf_map_lookup_elem(map, key);

	if (!count) {
		__u64 zero = 0;

		bpf_map_update_elem(map, key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(map, key);
		if (!count)
			return;
	}
	__sync_fetch_and_add(count, increment);
}

/* The smallest n for which 2^n isn't less than the value. */
static __always_inline __u64 exp2_bucket(__u64 value)
{
	__u64 bucket = 0;

#pragma unroll
	for (int i = 0; i < MAX_BUCKET; i++)
		if (value > (1ULL << i))
			bucket = i + 1;
	return bucket;
}

struct enter_arguments {
	__u64 common;
	__s64 number;
	__u64 arguments[6];
};

struct exit_arguments {
	__u64 common;
	__s64 number;
	__s64 result;
};

SEC("tracepoint/raw_syscalls/sys_enter")
int count_syscalls(struct enter_arguments *arguments)
{
	__u64 number = arguments->number;

	add(&syscalls_total, &number, 1);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_read")
int measure_reads(struct exit_arguments *arguments)
{
	struct read_key key = {};

	if (arguments->result <= 0)
		return 0;
	key.bucket = exp2_bucket(arguments->result);
	add(&syscall_read_bytes, &key, 1);
	key.bucket = MAX_BUCKET + 1;
	add(&syscall_read_bytes, &key, arguments->result);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
