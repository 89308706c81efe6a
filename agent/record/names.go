// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package record

import (
	"cmp"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Name returns the name of the report of an owner's member on this node. It is [report.Name], unless another report has it.
// A report keeps its name, even if the other one is deleted.
func (r *Reports) Name(owner program.Owner, member string) string {
	name := report.Name(owner, member, r.NodeName)
	if long := report.LongName(owner, member, r.NodeName); r.known.isTaken(owner.Key, name) || !r.known.has(owner.Key, name) && r.known.has(owner.Key, long) {
		return long
	}
	return name
}

// name names an owner's reports. Two of its members can have the same [report.Name], too.
func (r *Reports) name(owner program.Owner, objects []v1alpha1.ProgramObject) {
	members := make(map[string]string, len(owner.Members)) // by their labels
	for _, m := range owner.Members {
		members[v1alpha1.LabelValue(m.ID)] = m.ID
	}
	named := make(map[string]bool, len(objects))
	for _, object := range objects {
		member := members[object.GetLabels()[v1alpha1.LabelAppProgramID]]
		name := r.Name(owner, member)
		if named[name] {
			name = report.LongName(owner, member, r.NodeName)
		}
		named[name] = true
		object.SetName(name)
	}
}

// isForeign reports whether a report is about another owner, or about another node. Its labels don't matter, because others
// can have changed them, unless the agent that created it hasn't written its status yet.
func (r *Reports) isForeign(key program.Key, object v1alpha1.ProgramObject) bool {
	if of, owned := ownerKey(object); owned && of != key {
		return true
	}
	label := v1alpha1.LabelValue(r.NodeName)
	if node := object.GetStatus().Node; node != "" {
		return node != r.NodeName
	}
	return cmp.Or(object.GetLabels()[v1alpha1.LabelHostname], label) != label
}
