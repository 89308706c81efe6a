// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/cli/why"
	"github.com/bpfman/bpfman-operator/internal/nearest"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/internal/userobject"
	"github.com/bpfman/bpfman-operator/internal/variable"
)

// Facts are about a cluster and an image. A nil field isn't known.
type Facts struct {
	Nodes []corev1.Node
	// Agents are the node pods.
	Agents []corev1.Pod
	// Pods are the pods that the object's selectors of containers can match.
	Pods []corev1.Pod
	// Objects are the objects in the image, one for each platform.
	Objects []object.Object
}

// Compare adds what in an object matches nothing.
func (r *Result) Compare(f Facts) {
	if r.Object == nil {
		return
	}
	selected := r.nodes(f)
	if f.Pods != nil {
		for _, s := range why.Selectors(r.Object) {
			r.containers(s, f.Pods, selected)
		}
	}
	r.starts(f.Agents, selected)
	r.functions(f.Objects)
}

// nodes compares the node selector with the nodes. It returns which of these run an agent, or nil if it isn't known.
func (r *Result) nodes(f Facts) map[string]bool {
	common := r.Object.GetAppCommon()
	selector, err := metav1.LabelSelectorAsSelector(&common.NodeSelector)
	if f.Nodes == nil || err != nil {
		return nil
	}
	agents := map[string]bool{}
	for i := range f.Agents {
		agents[f.Agents[i].Spec.NodeName] = true
	}
	matching, running := []string{}, map[string]bool{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		matching = append(matching, n.Name)
		running[n.Name] = f.Agents == nil || agents[n.Name]
	}
	maps.DeleteFunc(running, func(_ string, runs bool) bool { return !runs })
	switch {
	case len(matching) == 0:
		r.warn("%s %q matches none of the %d nodes: to see their labels, run kubectl get nodes --show-labels", userobject.Field(r.Object, "nodeselector"), selector, len(f.Nodes))
	case len(running) == 0:
		r.warn("%s matches only nodes without an agent: %s", userobject.Field(r.Object, "nodeselector"), some(matching))
	}
	return running
}

// containers compares a selector of containers with the pods on the selected nodes.
func (r *Result) containers(s why.Selector, pods []corev1.Pod, selected map[string]bool) {
	matching, here, names := 0, 0, map[string]bool{}
	for i := range pods {
		p := &pods[i]
		if s.Namespace != "" && p.Namespace != s.Namespace || !s.Pods.Matches(labels.Set(p.Labels)) {
			continue
		}
		matching++
		if selected != nil && !selected[p.Spec.NodeName] {
			continue
		}
		here++
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			names[c.Name] = true
		}
	}
	where := "any namespace"
	if s.Namespace != "" {
		where = "namespace " + s.Namespace
	}
	switch {
	case matching == 0:
		r.warn("containers: no pod in %s has the labels %q", where, s.Pods)
		return
	case here == 0:
		r.warn("containers: none of the %d pods in %s with the labels %q is on a selected node", matching, where, s.Pods)
		return
	}
	missing := slices.DeleteFunc(slices.Clone(s.Containers), func(name string) bool { return name == "" || names[name] })
	switch existing := slices.Sorted(maps.Keys(names)); len(missing) {
	case 0:
	case 1:
		r.warn("containers: no selected pod has a container %s; their containers are %s%s", missing[0], some(existing), nearest.Question(missing[0], slices.Values(existing)))
	default:
		r.warn("containers: no selected pod has the containers %s; their containers are %s", strings.Join(missing, ", "), some(existing))
	}
}

// beforeStart begins the argument of agents that attach programs before the start of pods (operator/deploy).
const beforeStart = "--nri-socket="

// starts checks whether the agents of the selected nodes attach programs before the start of pods, if the object asks for it.
func (r *Result) starts(agents []corev1.Pod, selected map[string]bool) {
	asks := slices.ContainsFunc(userobject.Programs(r.Object), func(p userobject.Program) bool {
		c := p.Containers()
		return c != nil && c.Attachment == v1alpha1.AttachBeforeStart
	})
	late := slices.ContainsFunc(agents, func(agent corev1.Pod) bool {
		return (selected == nil || selected[agent.Spec.NodeName]) && !slices.ContainsFunc(agent.Spec.Containers, func(c corev1.Container) bool {
			return slices.ContainsFunc(c.Args, func(argument string) bool { return strings.HasPrefix(argument, beforeStart) })
		})
	})
	if asks && late {
		r.warn("containers: programs are attached after pods start, although attachment is BeforeStart: set bpfman.agent.beforestart.enabled of the ConfigMap bpfman-config to true")
	}
}

// functions compares the functions and global variables that an object names with those of the bytecode.
func (r *Result) functions(objects []object.Object) {
	for _, o := range objects {
		have := map[string]object.Program{}
		for _, p := range o.Programs {
			have[p.Name] = p
		}
		for i, p := range userobject.Programs(r.Object) {
			name := p.Info().Common().BpfFunctionName
			switch function, there := have[name]; {
			case !there:
				names := slices.Sorted(maps.Keys(have))
				r.failOnce("%s: the bytecode has no function %s; its functions are %s%s", userobject.ProgramField(r.Object, i, "bpffunctionname"), name, some(names), nearest.Question(name, slices.Values(names)))
			case function.Unsupported != "":
				r.failOnce("%s: function %s can't be loaded: %s", userobject.ProgramField(r.Object, i, "bpffunctionname"), name, function.Unsupported)
			}
		}
		r.globals(o)
	}
}

func (r *Result) globals(o object.Object) {
	if o.Unknown != "" {
		return
	}
	var variables []reader.Variable
	names := map[string]bool{}
	for _, v := range o.Globals {
		variables, names[v.Name] = append(variables, v.Fact()), true
	}
	common, field := r.Object.GetAppCommon(), userobject.Field(r.Object, "globaldata")
	for _, name := range slices.Sorted(maps.Keys(common.GlobalData)) {
		if !names[name] {
			r.failOnce("%s: the bytecode has no global variable %s%s", field, name, nearest.Question(name, maps.Keys(names)))
		}
	}
	_, err := variable.Encode(common.Globals, variables, o.Order())
	for _, err := range []error{variable.CheckBytes(common.GlobalData, variables, o.Order()), err} {
		if err != nil {
			r.failOnce("spec.%s", strings.ReplaceAll(err.Error(), "globaldata", strings.TrimPrefix(field, "spec.")))
		}
	}
}

func (r *Result) failOnce(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Errors, text) {
		r.Errors = append(r.Errors, text)
	}
}

// some joins names, and cuts long lists.
func some(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
