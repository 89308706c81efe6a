// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Counts the creation of directories, and denies it to processes with one name.
#include "counter.h"

#define NAME_LENGTH 16 // TASK_COMM_LEN, with the zero at the end
#define EPERM 1

const volatile char denied[NAME_LENGTH] = "bpfman-denied";

EVENT_MAP(lsm_stats_map);

SEC("lsm/inode_mkdir")
int deny_mkdir(void *ctx)
{
	char name[NAME_LENGTH];

	count_event(&lsm_stats_map);
	if (bpf_get_current_comm(name, sizeof(name)))
		return 0;
	for (int i = 0; i < NAME_LENGTH; i++) {
		if (name[i] != denied[i])
			return 0;
		if (!name[i])
			break;
	}
	return -EPERM;
}

char _license[] SEC("license") = "Dual BSD/GPL";
