// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Shows its globals: each run copies them into a map, one per slot, in the order of
// their declaration.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

volatile const __u32 sampling = 0;
volatile const __u8 trace_messages = 0;
volatile const __u8 enable_rtt = 0;
volatile const __u8 enable_pca = 0;
volatile const __u8 enable_dns_tracking = 0;
volatile const __u8 enable_flows_filtering = 0;
volatile const __u16 dns_port = 0;
volatile const __u8 enable_network_events_monitoring = 0;
volatile const __u8 network_events_monitoring_groupid = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 9);
	__type(key, __u32);
	__type(value, __u64);
} kprobe_globals_map SEC(".maps");

static __always_inline void show(__u32 slot, __u64 value)
{
	bpf_map_update_elem(&kprobe_globals_map, &slot, &value, BPF_ANY);
}

SEC("kprobe/try_to_wake_up")
int kprobe_globals(void *ctx)
{
	show(0, sampling);
	show(1, trace_messages);
	show(2, enable_rtt);
	show(3, enable_pca);
	show(4, enable_dns_tracking);
	show(5, enable_flows_filtering);
	show(6, dns_port);
	show(7, enable_network_events_monitoring);
	show(8, network_events_monitoring_groupid);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
