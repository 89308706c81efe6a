// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package kernel

import (
	"strconv"

	"github.com/bpfman/bpfman-operator/internal/maptype"
)

// The names that libbpf, and therefore bpftool, uses for the kernel's numbers, in the
// kernel's order. They are the constants of linux/bpf.h in lower case.

var programTypes = [...]string{
	"unspec", "socket_filter", "kprobe", "sched_cls", "sched_act", "tracepoint", "xdp", "perf_event", "cgroup_skb",
	"cgroup_sock", "lwt_in", "lwt_out", "lwt_xmit", "sock_ops", "sk_skb", "cgroup_device", "sk_msg", "raw_tracepoint",
	"cgroup_sock_addr", "lwt_seg6local", "lirc_mode2", "sk_reuseport", "flow_dissector", "cgroup_sysctl",
	"raw_tracepoint_writable", "cgroup_sockopt", "tracing", "struct_ops", "ext", "lsm", "sk_lookup", "syscall",
	"netfilter",
}

var attachTypes = [...]string{
	"cgroup_inet_ingress", "cgroup_inet_egress", "cgroup_inet_sock_create", "cgroup_sock_ops", "sk_skb_stream_parser",
	"sk_skb_stream_verdict", "cgroup_device", "sk_msg_verdict", "cgroup_inet4_bind", "cgroup_inet6_bind",
	"cgroup_inet4_connect", "cgroup_inet6_connect", "cgroup_inet4_post_bind", "cgroup_inet6_post_bind",
	"cgroup_udp4_sendmsg", "cgroup_udp6_sendmsg", "lirc_mode2", "flow_dissector", "cgroup_sysctl", "cgroup_udp4_recvmsg",
	"cgroup_udp6_recvmsg", "cgroup_getsockopt", "cgroup_setsockopt", "trace_raw_tp", "trace_fentry", "trace_fexit",
	"modify_return", "lsm_mac", "trace_iter", "cgroup_inet4_getpeername", "cgroup_inet6_getpeername",
	"cgroup_inet4_getsockname", "cgroup_inet6_getsockname", "xdp_devmap", "cgroup_inet_sock_release", "xdp_cpumap",
	"sk_lookup", "xdp", "sk_skb_verdict", "sk_reuseport_select", "sk_reuseport_select_or_migrate", "perf_event",
	"trace_kprobe_multi", "lsm_cgroup", "struct_ops", "netfilter", "tcx_ingress", "tcx_egress", "trace_uprobe_multi",
	"cgroup_unix_connect", "cgroup_unix_sendmsg", "cgroup_unix_recvmsg", "cgroup_unix_getpeername",
	"cgroup_unix_getsockname", "netkit_primary", "netkit_peer", "trace_kprobe_session", "trace_uprobe_session",
	"trace_fsession",
}

// ProgramType returns bpftool's name for a type of program.
func ProgramType(number uint32) string { return nameOf(programTypes[:], number) }

// MapType returns bpftool's name for a type of map.
func MapType(number uint32) string {
	if name, known := maptype.Name(number); known {
		return name
	}
	return strconv.FormatUint(uint64(number), 10)
}

// nameOf returns the number as the name if the kernel is newer than the names.
func nameOf(names []string, number uint32) string {
	if number < uint32(len(names)) { //nolint:gosec // the tables are short
		return names[number]
	}
	return strconv.FormatUint(uint64(number), 10)
}
