// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about which nodes and containers an object selects.
const (
	NoAgents            Reason = "NoAgents"
	NothingMatches      Reason = "NothingMatches"
	NoNodeMatches       Reason = "NoNodeMatches"
	NodesWithoutAgent   Reason = "NodesWithoutAgent"
	NodesUnreachable    Reason = "NodesUnreachable"
	ObjectUnreadable    Reason = "ObjectUnreadable"
	NodeSelectorInvalid Reason = "NodeSelectorInvalid"
	BeingDeleted        Reason = "BeingDeleted"
)

var nodes = []Row{
	{
		Reason: NoAgents,
		ToDo:   "wait, or find out why the node components don't run: `kubectl -n bpfman get pods`, and `kubectl -n bpfman describe configmap bpfman-config`",
	},
	{
		Reason: NothingMatches,
		ToDo:   "nothing, if no container or interface should match on the named nodes; otherwise correct the labels in `containers`, or `interfaceselector`",
	},
	{
		Reason: NoNodeMatches,
		ToDo:   "correct `nodeselector`, or label a node: `kubectl get nodes --show-labels`",
	},
	{
		Reason: NodesWithoutAgent,
		ToDo:   "the DaemonSet's pods aren't scheduled on the named nodes (taints, operating system), and these nodes don't count: nothing, if bpfman shouldn't run there; otherwise change where it runs",
		Links:  []Link{{"change where it runs", "configuration.md"}},
	},
	{
		Reason: NodesUnreachable,
		ToDo:   "find out why the named nodes aren't reachable: `kubectl describe node`. Kubernetes has tainted them `node.kubernetes.io/unreachable`; what was attached there may still be, and they don't count until they are back",
	},
	{
		Reason: ObjectUnreadable,
		ToDo:   "the object was stored by an earlier version, and a field has a value that it can't hold, such as a negative `offset`. Correct the field, which the message names, or delete the object, which unloads its programs",
	},
	{
		Reason: NodeSelectorInvalid,
		ToDo:   "correct `nodeselector`: it isn't a valid label selector",
	},
	{
		Reason: BeingDeleted,
		ToDo:   "another client's finalizer delays the deletion: remove the finalizer, or wait for its owner. The message says whether the nodes have unloaded the programs",
	},
}
