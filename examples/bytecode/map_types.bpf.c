// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// On each call of kill, puts one element, with key 7 and value 11, into a map of each type. docs/volumes.md
// documents which maps can be read as files.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define KEYED_MAP(map, map_type)                 \
	struct {                                 \
		__uint(type, map_type);          \
		__uint(max_entries, 8);          \
		__type(key, __u32);              \
		__type(value, struct two_fields); \
	} map SEC(".maps")

struct two_fields {
	__u32 first;
	__s64 second;
};

KEYED_MAP(array_map, BPF_MAP_TYPE_ARRAY);
KEYED_MAP(hash_map, BPF_MAP_TYPE_HASH);
KEYED_MAP(percpu_array_map, BPF_MAP_TYPE_PERCPU_ARRAY);
KEYED_MAP(percpu_hash_map, BPF_MAP_TYPE_PERCPU_HASH);
KEYED_MAP(lru_hash_map, BPF_MAP_TYPE_LRU_HASH);
KEYED_MAP(lru_percpu_map, BPF_MAP_TYPE_LRU_PERCPU_HASH);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct two_fields));
} hash_without_btf SEC(".maps");

struct prefix {
	__u32 length;
	__u32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 8);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct two_fields);
} lpm_trie_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8);
	__type(value, struct two_fields);
} queue_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 8);
	__type(value, struct two_fields);
} stack_map SEC(".maps");

#define TEN(type, m)                                                \
	type m##0; type m##1; type m##2; type m##3; type m##4; \
	type m##5; type m##6; type m##7; type m##8; type m##9;
#define HUNDRED(type, m)                                                              \
	TEN(type, m##0) TEN(type, m##1) TEN(type, m##2) TEN(type, m##3) TEN(type, m##4) \
	TEN(type, m##5) TEN(type, m##6) TEN(type, m##7) TEN(type, m##8) TEN(type, m##9)

// The kernel would print a million numbers for four bytes, and wouldn't end the reader meanwhile.
union hundred { HUNDRED(__u32, a) };
union myriad { HUNDRED(union hundred, b) };
union million { HUNDRED(union myriad, c) };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, union million);
} hash_of_unions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} ring_buffer SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} perf_event_map SEC(".maps");

SEC("tracepoint")
int map_types(void *ctx)
{
	__u32 key = 7;
	struct prefix prefix = { .length = 32, .address = 7 };
	struct two_fields value = {};

	value.first = 11;
	value.second = -1;
	bpf_map_update_elem(&array_map, &key, &value, BPF_ANY);
	bpf_map_update_elem(&hash_map, &key, &value, BPF_ANY);
	bpf_map_update_elem(&percpu_array_map, &key, &value, BPF_ANY);
	bpf_map_update_elem(&percpu_hash_map, &key, &value, BPF_ANY);
	bpf_map_update_elem(&lru_hash_map, &key, &value, BPF_ANY);
	bpf_map_update_elem(&lru_percpu_map, &key, &value, BPF_ANY);
	bpf_map_update_elem(&hash_without_btf, &key, &value, BPF_ANY);
	bpf_map_update_elem(&hash_of_unions, &key, &key, BPF_ANY);
	bpf_map_update_elem(&lpm_trie_map, &prefix, &value, BPF_ANY);
	bpf_map_push_elem(&queue_map, &value, BPF_EXIST);
	bpf_map_push_elem(&stack_map, &value, BPF_EXIST);
	bpf_ringbuf_output(&ring_buffer, &value, sizeof(value), BPF_RB_NO_WAKEUP);
	bpf_perf_event_output(ctx, &perf_event_map, BPF_F_CURRENT_CPU, &value, sizeof(value));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
