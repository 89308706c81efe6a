// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// One program that ends the chain on an interface, one that continues it, and one that cuts off the interface.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "globals.h"
#include "verdicts.h"

SEC("classifier")
int tcx_pass(struct __sk_buff *skb)
{
	return TCX_PASS;
}

SEC("classifier")
int tcx_next(struct __sk_buff *skb)
{
	return TCX_NEXT;
}

SEC("classifier")
int tcx_drop(struct __sk_buff *skb)
{
	return TCX_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
