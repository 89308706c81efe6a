// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Keeps its results in global variables instead of maps, as some tools do: statistics of calls of kill(2). The
// compiler puts them into the sections .bss, .data, and .rodata.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#define SIGNALS 4

struct last_kill {
	__u32 pid;
	char process[16];
};

/* .bss: what the program writes */
__u64 kills;
__u64 kills_by_signal[SIGNALS];
struct last_kill last;
static volatile __u64 others;

/* .data: what a reader may change while the program runs */
volatile __u64 limit = 1000000;

/* .rodata: what the object sets in globaldata */
const volatile __u32 only_signal = 0;

struct kill_arguments {
	__u64 common;
	__s64 number;
	__s64 pid;
	__s64 signal;
};

SEC("tracepoint/syscalls/sys_enter_kill")
int kill_statistics(struct kill_arguments *arguments)
{
	__u64 signal = arguments->signal;

	if ((only_signal && signal != only_signal) || kills >= limit)
		return 0;
	__sync_fetch_and_add(&kills, 1);
	if (signal < SIGNALS)
		__sync_fetch_and_add(&kills_by_signal[signal], 1);
	else
		others++;
	last.pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(last.process, sizeof(last.process));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
