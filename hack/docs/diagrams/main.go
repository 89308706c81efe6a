// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command diagrams writes the documentation's diagrams as SVG, each with colours for light and dark pages. Its
// argument is the output directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// diagram is one file. Its title and description are for screen readers.
type diagram struct {
	name, title, description string
	draw                     func() *canvas
}

var diagrams = []diagram{
	{
		"architecture", "Architecture of bpfman-operator",
		"You apply objects to the API server, and read their status there. The operator deploys a DaemonSet, and sums up the nodes' reports. " +
			"On each node, the agent calls the bpfman daemon, which loads and attaches programs in the kernel. " +
			"The CSI plugin puts their maps into your pods. The inspector reads what eBPF the kernel has.",
		architecture,
	},
	{
		"apply", "From kubectl apply to attached",
		"The API server passes your object to the agent of each selected node. The agent resolves and checks the image, has the daemon load and attach the program, " +
			"and reports. The operator sums the reports up in the object's status.",
		apply,
	},
	{
		"volume", "The life of a volume",
		"The kubelet asks the CSI plugin to publish the volume. The plugin asks the daemon for the program's maps, and pins them in a file system of the volume. " +
			"The pod opens them. After a reload, the plugin replaces them. When the pod ends, the volume is unmounted.",
		volume,
	},
	{
		"chain", "The order of programs at a hook",
		"XDP and TC programs run in the daemon's dispatcher in order of priority. The next one runs if the result is in the program's proceedon. " +
			"TCX programs run in the kernel's own list. The next one runs if the result is TCX_NEXT.",
		chain,
	},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: diagrams DIRECTORY")
		os.Exit(2)
	}
	for _, d := range diagrams {
		path := filepath.Join(os.Args[1], d.name+".svg")
		if err := os.WriteFile(path, []byte(d.draw().document(d.title, d.description)), 0o644); err != nil { //nolint:gosec // everyone can read published files
			fmt.Fprintln(os.Stderr, "write a diagram:", err)
			os.Exit(1)
		}
	}
}

// architecture draws all components in one picture.
func architecture() *canvas {
	c := &canvas{width: 760, height: 472}

	c.group(212, 20, 524, 128, "Control plane")
	c.box(24, 56, 132, 74, "user", "You", "kubectl, GitOps")
	c.box(232, 56, 232, 74, "plain", "API server", "your objects and their status,", "reports: BpfPrograms, BpfNodes")
	c.box(566, 56, 150, 74, "ours", "operator", "a Deployment")

	c.both(point{156, 93}, point{232, 93})
	c.label(194, 69, "objects,", "status")
	c.both(point{464, 93}, point{566, 93})
	c.label(515, 69, "reports,", "status")

	c.group(24, 204, 712, 248, "Each node")
	c.box(44, 244, 132, 66, "ours", "inspector", "read-only")
	c.box(232, 244, 132, 66, "ours", "agent", "no capability")
	c.box(424, 244, 116, 66, "plain", "bpfman", "the daemon")
	c.box(600, 244, 116, 66, "ours", "CSI plugin", "csi.bpfman.io")
	c.box(44, 372, 496, 62, "bpf", "Linux kernel", "programs, attached to interfaces and functions; maps")
	c.box(600, 372, 116, 62, "user", "your pod", "no capability")

	c.arrow(point{152, 244}, point{152, 174}, point{262, 174}, point{262, 130})
	c.label(206, 168, "BpfNode")
	c.both(point{318, 130}, point{318, 244})
	c.label(318, 190, "objects, reports")
	c.arrow(point{641, 130}, point{641, 204})
	c.label(641, 180, "deploys, configures")
	c.arrow(point{364, 277}, point{424, 277})
	c.label(394, 267, "gRPC")
	c.arrow(point{600, 277}, point{540, 277})
	c.label(570, 267, "gRPC")
	c.arrow(point{482, 310}, point{482, 372})
	c.label(482, 345, "loads, attaches")
	c.arrow(point{110, 372}, point{110, 310})
	c.label(110, 345, "all eBPF")
	c.arrow(point{658, 310}, point{658, 372})
	c.label(658, 345, "maps, as files")
	return c
}

// apply draws the steps from an object to its attached program.
func apply() *canvas {
	const (
		you = iota
		api
		operator
		agent
		daemon
		kernel
	)
	return sequence(760, []participant{
		{"user", "You", ""},
		{"plain", "API server", ""},
		{"ours", "operator", ""},
		{"ours", "agent", "each node"},
		{"plain", "bpfman", "each node"},
		{"bpf", "kernel", "each node"},
	}, []phase{
		{"Declare", []step{
			{you, api, []string{"apply"}},
			{api, agent, []string{"the object changed"}},
			{agent, agent, []string{"which interfaces, pods, and", "functions of this node?"}},
		}},
		{"Load", []step{
			{agent, agent, []string{"which digest has the image,", "and do policies allow it?"}},
			{agent, daemon, []string{"Load"}},
			{daemon, kernel, []string{"verify, load,", "pin the maps"}},
			{agent, api, []string{"BpfProgram: its maps"}},
		}},
		{"Attach", []step{
			{agent, daemon, []string{"Attach, for", "each attach point"}},
			{daemon, kernel, []string{"link"}},
			{agent, api, []string{"BpfProgram: its links"}},
		}},
		{"Report", []step{
			{api, operator, []string{"reports"}},
			{operator, api, []string{"status"}},
			{api, you, []string{"Reconcile-", "Success"}},
		}},
	})
}

// volume draws the steps of a volume from the start to the end of its pod.
func volume() *canvas {
	const (
		pod = iota
		kubelet
		plugin
		daemon
		bpffs
	)
	return sequence(760, []participant{
		{"user", "your pod", "no capability"},
		{"plain", "kubelet", ""},
		{"ours", "CSI plugin", "csi.bpfman.io"},
		{"plain", "bpfman", "the daemon"},
		{"bpf", "kernel", "maps, bpffs"},
	}, []phase{
		{"The pod starts", []step{
			{kubelet, plugin, []string{"NodePublishVolume"}},
			{plugin, daemon, []string{"List"}},
			{plugin, plugin, []string{"may this pod have the maps?"}},
			{plugin, bpffs, []string{"new bpffs with the maps,", "for the pod's group: 0660 or 0440"}},
			{plugin, pod, []string{"mount it, complete, at the pod's path"}},
		}},
		{"The pod runs", []step{
			{pod, bpffs, []string{"open a map: read, write (the kernel checks the file's mode)"}},
		}},
		{"The program is reloaded", []step{
			{plugin, bpffs, []string{"rename the new maps over the old ones"}},
			{pod, bpffs, []string{"open the map again: the new one"}},
		}},
		{"The pod ends", []step{
			{kubelet, plugin, []string{"NodeUnpublish-", "Volume"}},
			{plugin, bpffs, []string{"unmount: the file system ends with its pins"}},
		}},
	})
}

// chain draws how the programs at a hook are ordered, and when a chain ends.
func chain() *canvas {
	c := &canvas{width: 760, height: 464}
	bpfman := []hooked{{"bpf", "firewall", "priority 10"}, {"bpf", "counter", "priority 50"}, {"bpf", "sampler", "priority 1000"}}

	c.group(24, 24, 712, 200, "XDP and TC: the daemon's dispatcher runs at most ten programs")
	c.hook(74, bpfman, "any other result is the packet's verdict", "result in", "proceedon")

	c.group(24, 240, 712, 200, "TCX: the kernel runs its own list")
	c.hook(290, append(bpfman[:2:2], hooked{"plain", "other software", "not bpfman's"}), "any other result is the packet's verdict, TCX_PASS too", "result", "TCX_NEXT")
	return c
}

// hooked is a program at a hook.
type hooked struct{ class, name, note string }

// hook draws three programs from left to right, starting at y, with what makes the next one run, and what ends the
// chain.
func (c *canvas) hook(y int, programs []hooked, end string, next ...string) {
	const (
		width, height, first, pitch = 132, 60, 124, 230
	)
	c.text(44, y+34, "label", "packet")
	c.arrow(point{90, y + 30}, point{first, y + 30})
	for i, p := range programs {
		x := first + i*pitch
		c.box(x, y, width, height, p.class, p.name, p.note)
		c.arrow(point{x + width/2, y + height}, point{x + width/2, y + height + 32})
		if i > 0 {
			c.arrow(point{x - pitch + width, y + 30}, point{x, y + 30})
			c.label(x-(pitch-width)/2-2, y+22-lineHeight, next...)
		}
	}
	c.box(first, y+height+32, 2*pitch+width, 34, "user", end)
}
