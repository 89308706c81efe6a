// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// One program of each type in one object, each with its own map. A BpfApplication loads
// them together.
#include "counter.h"
#include "verdicts.h"

TRAFFIC_MAP(xdp_stats_map);
TRAFFIC_MAP(tc_stats_map);
TRAFFIC_MAP(tcx_stats_map);
EVENT_MAP(kprobe_stats_map);
EVENT_MAP(kretprobe_stats_map);
EVENT_MAP(tracepoint_stats_map);
EVENT_MAP(uprobe_stats_map);
EVENT_MAP(uretprobe_stats_map);
EVENT_MAP(fentry_stats_map);
EVENT_MAP(fexit_stats_map);

SEC("xdp")
int xdp_stats(struct xdp_md *ctx)
{
	count_packet(&xdp_stats_map, xdp_bytes(ctx));
	return XDP_PASS;
}

SEC("classifier")
int stats(struct __sk_buff *skb)
{
	count_packet(&tc_stats_map, skb->len);
	return TC_ACT_PIPE;
}

SEC("classifier")
int tcx_stats(struct __sk_buff *skb)
{
	count_packet(&tcx_stats_map, skb->len);
	return TCX_NEXT;
}

SEC("kprobe/try_to_wake_up")
int kprobe_counter(void *ctx)
{
	count_event(&kprobe_stats_map);
	return 0;
}

SEC("kretprobe/try_to_wake_up")
int kretprobe_counter(void *ctx)
{
	count_event(&kretprobe_stats_map);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_kill")
int tracepoint_kill_recorder(void *ctx)
{
	count_event(&tracepoint_stats_map);
	return 0;
}

SEC("uprobe")
int uprobe_counter(void *ctx)
{
	count_event(&uprobe_stats_map);
	return 0;
}

SEC("uretprobe")
int uretprobe_counter(void *ctx)
{
	count_event(&uretprobe_stats_map);
	return 0;
}

SEC("fentry/do_unlinkat")
int fentry_counter(void *ctx)
{
	count_event(&fentry_stats_map);
	return 0;
}

SEC("fexit/do_unlinkat")
int fexit_counter(void *ctx)
{
	count_event(&fexit_stats_map);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
