// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about the daemon and the other node components.
const (
	DaemonUnreachable   Reason = "DaemonUnreachable"
	DaemonUnsupported   Reason = "DaemonUnsupported"
	LoadSlow            Reason = "LoadSlow"
	DaemonBusy          Reason = "DaemonBusy"
	DaemonForgot        Reason = "DaemonForgot"
	DaemonStateUnusable Reason = "DaemonStateUnusable"
	DaemonPanicked      Reason = "DaemonPanicked"
	ComponentFails      Reason = "ComponentFails"
	PortTaken           Reason = "PortTaken"
	ComponentNotReady   Reason = "ComponentNotReady"
	PodsRefused         Reason = "PodsRefused"
	AgentVersion        Reason = "AgentVersion"
	ReportUnreadable    Reason = "ReportUnreadable"
)

var components = []Row{
	{
		Reason: DaemonUnreachable,
		ToDo:   "find out why the daemon's container doesn't run: `kubectl -n bpfman logs daemonset/bpfman-daemon -c bpfman --previous`",
	},
	{
		Reason: DaemonUnsupported,
		ToDo:   "`bpfman.image` in the ConfigMap names a daemon that isn't supported, such as v0.5.x: set it to v0.6.0. The agent stays Ready and retries, and doesn't touch programs that already run",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: LoadSlow,
		ToDo:   "the kernel needs too long to verify the program, and the daemon is restarted each time: make the program smaller, or split it. The agent tries again less and less often, up to every hour, or immediately when the object or its annotation `bpfman.io/restartedAt` changes",
	},
	{
		Reason: DaemonBusy,
		ToDo:   "nothing: the daemon serves one call at a time, and the agent retries. If the daemon hangs, the kubelet restarts it within five minutes",
		Links:  []Link{{"restarts it", "reliability.md#failures-and-their-effects"}},
	},
	{
		Reason: DaemonForgot,
		ToDo:   "nothing: somebody else has unloaded the program, or uses the daemon's database. The agent lists the programs, and retries",
	},
	{
		Reason: DaemonStateUnusable,
		ToDo:   "the daemon can't use its files in `/run/bpfman` on the node: free memory, as this is a file system in memory, or restart the daemon by deleting its pod",
	},
	{
		Reason: DaemonPanicked,
		ToDo:   "report the message as an issue of bpfman: the daemon has a bug. The agent retries",
	},
	{
		Reason: ComponentFails,
		ToDo:   "correct the image or the settings of the node component in the ConfigMap: `kubectl -n bpfman logs` and `kubectl -n bpfman describe pod` say more",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: PortTaken,
		ToDo:   "set the key of the ConfigMap in parentheses to a free port: other software on that node uses this one",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: ComponentNotReady,
		ToDo:   "read the container's log. If it says `Can't listen`, other software uses the port: set the key of the ConfigMap in parentheses to another one. Otherwise correct what the log says",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: PodsRefused,
		ToDo:   "allow the pods in the namespace `bpfman`: a ResourceQuota, a LimitRange, Pod Security, or an admission webhook refuses them. The namespace must have the label for Pod Security, and `bpfman.resources` sets what the containers request",
		Links:  []Link{{"namespace must have the label", "install.md#helm"}, {"`bpfman.resources`", "configuration.md#node-pods"}},
	},
	{
		Reason: AgentVersion,
		ToDo:   "set `bpfman.agent.image` in the ConfigMap to the version of the operator",
		Links:  []Link{{"ConfigMap", "configuration.md"}},
	},
	{
		Reason: ReportUnreadable,
		ToDo:   "delete the report that the message names, and the pod of `bpfman-daemon` on its node: the agent there writes the report again",
	},
}
