// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package maptype provides the names that libbpf and bpftool use for the types of eBPF
// maps: the constants of linux/bpf.h in lower case.
package maptype

// names lists the names in the order of the kernel's numbers.
var names = [...]string{
	"unspec", "hash", "array", "prog_array", "perf_event_array", "percpu_hash", "percpu_array", "stack_trace",
	"cgroup_array", "lru_hash", "lru_percpu_hash", "lpm_trie", "array_of_maps", "hash_of_maps", "devmap", "sockmap",
	"cpumap", "xskmap", "sockhash", "cgroup_storage", "reuseport_sockarray", "percpu_cgroup_storage", "queue", "stack",
	"sk_storage", "devmap_hash", "struct_ops", "ringbuf", "inode_storage", "task_storage", "bloom_filter",
	"user_ringbuf", "cgrp_storage", "arena", "insn_array",
}

// Name returns the name of the type with the kernel's number. known is false if the
// kernel is newer than this list.
func Name(number uint32) (name string, known bool) {
	if int64(number) < int64(len(names)) {
		return names[number], true
	}
	return "", false
}
