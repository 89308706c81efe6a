// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Shared definitions of the counting programs. Each map has one slot, with one value per
// CPU, so programs need no atomics. The reader adds up the CPUs.
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

// The value of a map that counts packets.
struct traffic {
	__u64 packets;
	__u64 bytes;
};

#define PERCPU_SLOT(map, value_type)                     \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__uint(max_entries, 1);                  \
		__type(key, __u32);                      \
		__type(value, value_type);               \
	} map SEC(".maps")

#define TRAFFIC_MAP(map) PERCPU_SLOT(map, struct traffic)
#define EVENT_MAP(map) PERCPU_SLOT(map, __u64)

static __always_inline void count_packet(void *map, __u64 bytes)
{
	__u32 slot = 0;
	struct traffic *traffic = bpf_map_lookup_elem(map, &slot);

	if (!traffic)
		return;
	traffic->packets++;
	traffic->bytes += bytes;
}

static __always_inline void count_event(void *map)
{
	__u32 slot = 0;
	__u64 *events = bpf_map_lookup_elem(map, &slot);

	if (events)
		(*events)++;
}

static __always_inline __u64 xdp_bytes(const struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}
