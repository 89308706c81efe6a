// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Sends an event for each call of kill(2) to a ring buffer. If the reader is too slow, the buffer is full, and the
// program counts what it can't send.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* The reader's type is Event in examples/events. */
struct kill_event {
	__u32 pid;
	__s32 target;
	__s32 signal;
	char process[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024); /* bytes */
} kill_events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} kill_events_lost SEC(".maps");

struct kill_arguments {
	__u64 common;
	__s64 number;
	__s64 pid;
	__s64 signal;
};

/* It isn't inlined, so that the object's types include that of the events: kubectl bpfman tail decodes them by it. */
static __noinline void describe(struct kill_event *event, struct kill_arguments *arguments)
{
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->target = arguments->pid;
	event->signal = arguments->signal;
	bpf_get_current_comm(event->process, sizeof(event->process));
}

SEC("tracepoint/syscalls/sys_enter_kill")
int kill_events_sender(struct kill_arguments *arguments)
{
	struct kill_event *event = bpf_ringbuf_reserve(&kill_events, sizeof(*event), 0);

	if (!event) {
		__u32 first = 0;
		__u64 *lost = bpf_map_lookup_elem(&kill_events_lost, &first);

		if (lost)
			(*lost)++;
		return 0;
	}
	describe(event, arguments);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
