// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package bytecode tests the example eBPF programs on the real daemon.
package bytecode

import (
	"cmp"

	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	kernelFunction = "do_unlinkat"
	killTracepoint = "syscalls/sys_enter_kill"
	// forLibbpf and mapsForLibbpf are the objects that the daemon's loader can only load adapted.
	forLibbpf     = "written_for_libbpf"
	mapsForLibbpf = "maps_for_libbpf"
)

// program is a function in an object, and how to attach it.
type program struct {
	function string
	kind     gobpfman.BpfmanProgramType
	attach   *gobpfman.AttachInfo
	// counter is the map that counts the program's runs, if any.
	counter string
	// traced is the function of the kernel that a fentry or fexit program traces. By default, it is kernelFunction.
	traced string
}

func (p program) loadInfo() *gobpfman.LoadInfo {
	info := &gobpfman.LoadInfo{Name: p.function, ProgramType: p.kind}
	if p.kind == gobpfman.BpfmanProgramType_FENTRY {
		info.Info = &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FentryLoadInfo{
			FentryLoadInfo: &gobpfman.FentryLoadInfo{FnName: cmp.Or(p.traced, kernelFunction)},
		}}
	}
	if p.kind == gobpfman.BpfmanProgramType_FEXIT {
		info.Info = &gobpfman.ProgSpecificInfo{Info: &gobpfman.ProgSpecificInfo_FexitLoadInfo{
			FexitLoadInfo: &gobpfman.FexitLoadInfo{FnName: cmp.Or(p.traced, kernelFunction)},
		}}
	}
	return info
}

func xdp(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_XDP, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_XdpAttachInfo{
		XdpAttachInfo: &gobpfman.XDPAttachInfo{Priority: 50, Iface: "lo"},
	}}, counter, ""}
}

func tc(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_TC, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcAttachInfo{
		TcAttachInfo: &gobpfman.TCAttachInfo{Priority: 50, Iface: "lo", Direction: "ingress"},
	}}, counter, ""}
}

func tcx(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_TCX, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TcxAttachInfo{
		TcxAttachInfo: &gobpfman.TCXAttachInfo{Priority: 50, Iface: "lo", Direction: "ingress"},
	}}, counter, ""}
}

func tracepoint(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_TRACEPOINT, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_TracepointAttachInfo{
		TracepointAttachInfo: &gobpfman.TracepointAttachInfo{Tracepoint: killTracepoint},
	}}, counter, ""}
}

func kprobe(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_KPROBE, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_KprobeAttachInfo{
		KprobeAttachInfo: &gobpfman.KprobeAttachInfo{FnName: kernelFunction},
	}}, counter, ""}
}

// uprobe is attached to the function that the target program calls repeatedly.
func uprobe(function, counter, target string) program {
	name := "main.getCount"
	return program{function, gobpfman.BpfmanProgramType_UPROBE, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_UprobeAttachInfo{
		UprobeAttachInfo: &gobpfman.UprobeAttachInfo{FnName: &name, Target: target},
	}}, counter, ""}
}

func fentry(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_FENTRY, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FentryAttachInfo{
		FentryAttachInfo: &gobpfman.FentryAttachInfo{},
	}}, counter, ""}
}

// tracing returns a fentry or fexit program that traces another function of the kernel.
func tracing(function string, p program) program {
	p.traced = function
	return p
}

func fexit(function, counter string) program {
	return program{function, gobpfman.BpfmanProgramType_FEXIT, &gobpfman.AttachInfo{Info: &gobpfman.AttachInfo_FexitAttachInfo{
		FexitAttachInfo: &gobpfman.FexitAttachInfo{},
	}}, counter, ""}
}

// object is a file of example programs, with its globals.
type object struct {
	name     string
	globals  map[string][]byte
	programs []program
}

// objects returns all objects. Each must load on a kernel that supports its types of
// programs. target is the program to probe.
func objects(target string) []object {
	globals := map[string][]byte{"GLOBAL_u8": {1}, "GLOBAL_u32": {13, 12, 11, 10}}
	verdict := map[string][]byte{"VERDICT": {0, 0, 0, 0}}
	passes := map[string][]byte{"VERDICT": {2, 0, 0, 0}}
	return []object{
		{"xdp_pass", globals, []program{xdp("pass", "")}},
		{"tc_pass", globals, []program{tc("pass", "")}},
		{"tcx_test", globals, []program{tcx("tcx_next", ""), tcx("tcx_pass", "")}},
		{"tracepoint", globals, []program{tracepoint("enter_openat", "")}},
		{"kprobe", globals, []program{kprobe("my_kprobe", "")}},
		{"kprobe_globals", kprobeGlobals(), []program{kprobe("kprobe_globals", "")}},
		{"uprobe", globals, []program{uprobe("my_uprobe", "", target)}},
		{"fentry", nil, []program{fentry("test_fentry", "fentry_stats_map")}},
		{"fexit", nil, []program{fexit("test_fexit", "fexit_stats_map")}},
		{"go-xdp-counter", nil, []program{xdp("xdp_stats", "xdp_stats_map")}},
		{"go-xdp-counter-sharing-map", nil, []program{tcx("tcx_stats", "shared_stats_map"), xdp("xdp_stats", "shared_stats_map")}},
		{"go-tc-counter", nil, []program{tc("stats", "tc_stats_map")}},
		{"go-tcx-counter", nil, []program{tcx("tcx_stats", "tcx_stats_map")}},
		{"go-tracepoint-counter", nil, []program{tracepoint("tracepoint_kill_recorder", "tracepoint_stats_map")}},
		{"go-kprobe-counter", nil, []program{kprobe("kprobe_counter", "kprobe_stats_map")}},
		{"go-uprobe-counter", nil, []program{uprobe("uprobe_counter", "uprobe_stats_map", target)}},
		{"go-uretprobe-counter", nil, []program{uprobe("uretprobe_counter", "uretprobe_stats_map", target)}},
		{forLibbpf, nil, []program{tracepoint("kill_without_signal", "kill_stats_map")}},
		{mapsForLibbpf, nil, []program{tracepoint("use_maps", "kill_stats_map")}},
		{"print", nil, []program{tracepoint("print_kill", "")}},
		{"map_types", nil, []program{tracepoint("map_types", "")}},
		{"kill_statistics", map[string][]byte{"only_signal": {0, 0, 0, 0}}, []program{tracepoint("kill_statistics", "")}},
		{"syscalls", nil, []program{tracepoint("count_syscalls", ""), tracepoint("measure_reads", "")}},
		{"kill_events", nil, []program{tracepoint("kill_events_sender", "")}},
		{"netobserv_stand_in", map[string][]byte{"enable_dns_tracking": {1}, "enable_flows_filtering": {1}, "enable_openssl_tracking": {1}}, []program{
			tcx("tcx_ingress_flow_parse", ""), tcx("tcx_egress_flow_parse", ""), tracepoint("kfree_skb", ""),
			uprobe("probe_entry_SSL_write", "global_counters", target),
		}},
		{"netobserv_stand_in", map[string][]byte{"sampling": {50, 0, 0, 0}, "dns_port": {53, 0}, "enable_ipsec": {1}}, []program{
			kprobe("network_events_monitoring", ""), kprobe("track_nat_manip_pkt", ""),
			kprobe("xfrm_input_kprobe", ""), kprobe("xfrm_input_kretprobe", ""), kprobe("xfrm_output_kprobe", ""), kprobe("xfrm_output_kretprobe", ""),
		}},
		{"netobserv_stand_in", map[string][]byte{"enable_rtt": {1}}, []program{tracing("tcp_rcv_established", fentry("tcp_rcv_fentry", ""))}},
		{"ingress_node_firewall_stand_in", map[string][]byte{"debug_lookup": {1, 0, 0, 0}}, []program{tcx("tcx_ingress_node_firewall_process", "")}},
		{"ingress_node_firewall_stand_in", nil, []program{xdp("xdp_ingress_node_firewall_process", "")}},
		{"delay", map[string][]byte{"readings": {100}}, []program{tracepoint("delay", "")}},
		{"globals", widthGlobals(), []program{tracepoint("show_globals", "")}},
		{"xdp_verdict", passes, []program{xdp("verdict", "verdict_stats_map")}},
		{"firewall", nil, []program{tcx("firewall", "")}},
		{"latency", nil, []program{uprobe("called", "", target), uprobe("returned", "", target)}},
		{"tc_verdict", verdict, []program{tcx("verdict", "verdict_stats_map")}},
		application(target),
		{"go-app-counter", nil, []program{
			kprobe("kprobe_counter", "kprobe_stats_map"),
			kprobe("kretprobe_counter", "kretprobe_stats_map"),
		}},
		{"go-app-counter", nil, []program{
			tc("stats", "tc_stats_map"),
			xdp("xdp_stats", "xdp_stats_map"),
			fentry("fentry_counter", "fentry_stats_map"),
			fexit("fexit_counter", "fexit_stats_map"),
		}},
	}
}

// application is the part of the object with all types of programs that most kernels
// support.
func application(target string) object {
	return object{"go-app-counter", nil, []program{
		tcx("tcx_stats", "tcx_stats_map"),
		tracepoint("tracepoint_kill_recorder", "tracepoint_stats_map"),
		uprobe("uprobe_counter", "uprobe_stats_map", target),
		uprobe("uretprobe_counter", "uretprobe_stats_map", target),
	}}
}

func kprobeGlobals() map[string][]byte {
	return map[string][]byte{
		"sampling": {1, 2, 3, 4}, "trace_messages": {5}, "enable_rtt": {6}, "enable_pca": {7},
		"enable_dns_tracking": {8}, "enable_flows_filtering": {9}, "dns_port": {10, 11},
		"enable_network_events_monitoring": {12}, "network_events_monitoring_groupid": {13},
	}
}

func widthGlobals() map[string][]byte {
	return map[string][]byte{
		"GLOBAL_u8": {1}, "GLOBAL_u16": {1, 2}, "GLOBAL_u32": {1, 2, 3, 4},
		"GLOBAL_u64": {1, 2, 3, 4, 5, 6, 7, 8}, "GLOBAL_bytes": {9, 8, 7, 6, 5, 4, 3, 2},
	}
}
