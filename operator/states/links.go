// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package states

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// links adds the links of an application on a node to its programs.
type links struct {
	application types.UID
	node        string
	// each is the maximum number of links of a program.
	each int
	// added and left are the numbers of links that were added, and left out.
	added, left int
}

// note says for the end of a message how many links are left out.
func (l *links) note() string {
	if l.left == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %d links are listed", l.added, l.added+l.left)
}

// uuid identifies a link: it is the same as long as the application, the node, the member, and the attach point are.
func (l *links) uuid(m member, at v1alpha1.BpfProgramLink) string {
	space, err := uuid.Parse(string(l.application))
	if err != nil { // Kubernetes' are UUIDs
		space = uuid.NameSpaceOID
	}
	return uuid.NewSHA1(space, []byte(strings.Join([]string{l.node, m.Member, at.AttachPoint}, "\x00"))).String()
}

// add adds the links of a program. It leaves out those without fields, because their attach points are only known as text:
// those that the application doesn't select anymore, and those that an older agent reports.
func (l *links) add(state *v1alpha1.ApplicationProgramState, p Program, of []member) {
	var own []link
	for _, m := range of {
		for _, at := range m.Links {
			if at.Hook == nil {
				l.left++
				continue
			}
			own = append(own, link{at.Hook, common{ShouldAttach: true, UUID: l.uuid(m, at), LinkID: idOf(at), LinkStatus: linkStatus(at)}})
		}
		l.left += m.Left
	}
	listed := own[:min(len(own), l.each)]
	l.added += len(listed)
	l.left += len(own) - len(listed)
	if set := fields[p.Type]; set != nil { // otherwise, this version doesn't know the type
		set(state, p, listed)
	}
}

func idOf(at v1alpha1.BpfProgramLink) *uint32 {
	if at.LinkID == 0 {
		return nil
	}
	return &at.LinkID
}

func linkStatus(at v1alpha1.BpfProgramLink) v1alpha1.ApplicationLinkStatus {
	switch {
	case at.State == v1alpha1.LinkAttached:
		return v1alpha1.ApplicationLinkAttached
	case at.Error != "":
		return v1alpha1.ApplicationLinkAttachError
	}
	return v1alpha1.ApplicationLinkNotAttached
}

type common = v1alpha1.ApplicationLinkState

// link is where a program is attached, or should be, and whether it is.
type link struct {
	*v1alpha1.BpfProgramHook
	common
}

// fields set the field of a program that its type names.
var fields = map[v1alpha1.ApplicationProgramType]func(*v1alpha1.ApplicationProgramState, Program, []link){
	v1alpha1.ApplicationXDP: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) {
		s.XDP = &v1alpha1.XdpLinkStates{Links: each(all, func(l link) v1alpha1.XdpLinkState {
			return v1alpha1.XdpLinkState{NetworkLinkState: l.network(), ProceedOn: v1alpha1.XdpLinkResultsOf(l.ProceedOn)}
		})}
	},
	v1alpha1.ApplicationTC: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) {
		s.TC = &v1alpha1.TcLinkStates{Links: each(all, func(l link) v1alpha1.TcLinkState {
			return v1alpha1.TcLinkState{NetworkLinkState: l.network(), Direction: v1alpha1.LinkDirectionOf(l.Direction), ProceedOn: v1alpha1.TcLinkResultsOf(l.ProceedOn)}
		})}
	},
	v1alpha1.ApplicationTCX: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) {
		s.TCX = &v1alpha1.TcxLinkStates{Links: each(all, func(l link) v1alpha1.TcxLinkState {
			return v1alpha1.TcxLinkState{NetworkLinkState: l.network(), Direction: v1alpha1.LinkDirectionOf(l.Direction)}
		})}
	},
	v1alpha1.ApplicationFEntry: func(s *v1alpha1.ApplicationProgramState, p Program, all []link) { s.FEntry = traced(p, all) },
	v1alpha1.ApplicationFExit:  func(s *v1alpha1.ApplicationProgramState, p Program, all []link) { s.FExit = traced(p, all) },
	v1alpha1.ApplicationKProbe: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) {
		s.KProbe = &v1alpha1.KprobeLinkStates{Links: each(all, func(l link) v1alpha1.KprobeLinkState {
			return v1alpha1.KprobeLinkState{ApplicationLinkState: l.common, Function: l.Function, Offset: l.Offset}
		})}
	},
	v1alpha1.ApplicationKRetProbe: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) {
		s.KRetProbe = &v1alpha1.KretprobeLinkStates{Links: each(all, func(l link) v1alpha1.KretprobeLinkState {
			return v1alpha1.KretprobeLinkState{ApplicationLinkState: l.common, Function: l.Function}
		})}
	},
	v1alpha1.ApplicationUProbe:    func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) { s.UProbe = uprobes(all) },
	v1alpha1.ApplicationURetProbe: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) { s.URetProbe = uprobes(all) },
	v1alpha1.ApplicationTracePoint: func(s *v1alpha1.ApplicationProgramState, _ Program, all []link) {
		s.TracePoint = &v1alpha1.TracepointLinkStates{Links: each(all, func(l link) v1alpha1.TracepointLinkState {
			return v1alpha1.TracepointLinkState{ApplicationLinkState: l.common, Name: l.Tracepoint}
		})}
	},
}

func each[L any](all []link, of func(link) L) []L {
	var out []L
	for _, l := range all {
		out = append(out, of(l))
	}
	return out
}

func (l link) network() v1alpha1.NetworkLinkState {
	return v1alpha1.NetworkLinkState{ApplicationLinkState: l.common, InterfaceName: l.Interface, NetnsPath: l.NetNS, Priority: ptr.Deref(l.Priority, 0)}
}

func traced(p Program, all []link) *v1alpha1.FunctionLinkStates {
	return &v1alpha1.FunctionLinkStates{Function: p.Traced, Links: each(all, func(l link) common { return l.common })}
}

func uprobes(all []link) *v1alpha1.UprobeLinkStates {
	return &v1alpha1.UprobeLinkStates{Links: each(all, func(l link) v1alpha1.UprobeLinkState {
		return v1alpha1.UprobeLinkState{
			ApplicationLinkState: l.common, Function: l.Function, Offset: l.Offset, Target: l.Target, Pid: l.PID, ContainerPid: l.ContainerPID,
		}
	})}
}
