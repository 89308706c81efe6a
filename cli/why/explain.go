// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package why

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/inventory"
	"github.com/bpfman/bpfman-operator/cli/remedy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/userobject"
)

// Facts are the data from the cluster. A nil field couldn't be read. Unseen then contains the reason.
type Facts struct {
	Kind    string
	Object  v1alpha1.UserObject
	Reports []v1alpha1.ProgramObject
	Nodes   []corev1.Node
	// Agents are the node pods.
	Agents []corev1.Pod
	// Pods are the pods that the object's selectors of containers can match.
	Pods []corev1.Pod
	// Conflicts are the conflicts of the object's programs with others, on all nodes.
	Conflicts []Conflict
	Daemons   inventory.Daemons // of the nodes with reports
	// Stale are the maps in volumes of the object that no program uses anymore.
	Stale []inventory.Map
	// Problems are the problems of the node components.
	Problems []string
	Unseen   []string
}

// Selector is the selector of containers in an object, or in a member of it.
type Selector struct {
	Namespace  string
	Pods       labels.Selector
	Containers []string
}

// Explain combines the facts to a page.
func Explain(f Facts) (Page, error) {
	all, err := wanted(f)
	if err != nil {
		return Page{}, err
	}
	page := Page{Object: describe(f), Wanted: all, Daemons: f.Daemons, Components: f.Problems, Unseen: f.Unseen}
	common := f.Object.GetAppCommon()
	selector, err := metav1.LabelSelectorAsSelector(&common.NodeSelector)
	if err != nil {
		page.Remarks = append(page.Remarks, fmt.Sprintf("the node selector is invalid: %v", err))
		selector = labels.Nothing()
	}
	nodes := programs(f)
	for _, c := range f.Conflicts {
		if node := nodes[c.Node]; node != nil {
			node.Conflicts = append(node.Conflicts, c.Type+": "+c.Message)
			node.suggest(remedy.For("", c.Type))
		}
	}
	for _, m := range f.Stale {
		if node := nodes[m.Node]; node != nil {
			node.Remarks = append(node.Remarks, fmt.Sprintf("the volume of pod %s shows map %s, which no program uses", strings.Join(m.Pods, ", "), m.Name))
			node.suggest("restart the pods whose volumes show maps that no program uses")
		}
	}
	if f.Nodes != nil {
		page.NotSelected = compare(f, selector, nodes)
		if len(nodes) == 0 && err == nil {
			page.Remarks = append(page.Remarks, fmt.Sprintf("no node matches the node selector %q: to see the labels of the nodes, run kubectl get nodes --show-labels", selector))
		}
	}
	selectors := Selectors(f.Object)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[name]
		if node.State == Idle && f.Pods != nil {
			node.Remarks = append(node.Remarks, containers(selectors, f.Pods, name)...)
		}
		page.Nodes = append(page.Nodes, *node)
	}
	order := []State{Failed, NotReported, NoAgent, Outdated, RollingOut, Left, Idle, Attached}
	slices.SortStableFunc(page.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), -cmp.Compare(len(a.Conflicts), len(b.Conflicts)))
	})
	page.Summary, page.ToDo = summary(f, page), todo(page)
	return page, nil
}

// BytecodeOf returns the reference or path of an object's bytecode.
func BytecodeOf(o v1alpha1.UserObject) string {
	bytecode := o.GetAppCommon().ByteCode
	switch {
	case bytecode.Image != nil:
		return bytecode.Image.Url
	case bytecode.Path != nil:
		return *bytecode.Path
	}
	return ""
}

func describe(f Facts) Object {
	common, status := f.Object.GetAppCommon(), f.Object.GetStatus()
	o := Object{
		Kind: f.Kind, Namespace: f.Object.GetNamespace(), Name: f.Object.GetName(), Deleting: f.Object.GetDeletionTimestamp() != nil,
		NodeSelector: metav1.FormatLabelSelector(&common.NodeSelector), Bytecode: BytecodeOf(f.Object), State: NotReported,
	}
	if len(common.NodeSelector.MatchLabels)+len(common.NodeSelector.MatchExpressions) == 0 {
		o.NodeSelector = ""
	}
	if len(status.Conditions) > 0 {
		c := status.Conditions[0]
		o.Status, o.Since, o.Message = c.Reason, c.LastTransitionTime, c.Message
		if ready := meta.FindStatusCondition(status.Conditions, string(v1alpha1.Ready)); ready != nil {
			o.Status = ready.Reason
		}
		o.State, o.Problem = stateOf(c, status.Nodes), status.Problem
	}
	o.Stale = status.ObservedGeneration > 0 && status.ObservedGeneration != f.Object.GetGeneration()
	return o
}

func wanted(f Facts) ([]Wanted, error) {
	var all []Wanted
	for _, p := range userobject.Programs(f.Object) {
		var w Wanted
		if strings.HasSuffix(f.Kind, "Application") {
			w.Type = string(p.Type)
		}
		info := p.Info()
		if info == nil {
			all = append(all, w)
			continue
		}
		w.Function = info.Common().BpfFunctionName
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(info)
		if err != nil {
			return nil, fmt.Errorf("read the object's spec: %w", err)
		}
		delete(fields, "bpffunctionname")
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if fields[name] == nil {
				continue
			}
			text, ok := fields[name].(string)
			if !ok {
				encoded, err := json.Marshal(fields[name])
				if err != nil {
					return nil, fmt.Errorf("write %s: %w", name, err)
				}
				text = string(encoded)
			}
			w.Fields = append(w.Fields, name+"="+text)
		}
		all = append(all, w)
	}
	return all, nil
}

// programs returns the nodes that have reports, with the programs in these reports.
func programs(f Facts) map[string]*Node {
	nodes := map[string]*Node{}
	idle, linked := map[string]bool{}, map[string]bool{}
	for _, report := range f.Reports {
		status := report.GetStatus()
		if !metav1.IsControlledBy(report, f.Object) {
			continue // it belongs to a deleted object with the same name
		}
		node := nodes[status.Node]
		if node == nil {
			node = &Node{Name: status.Node, State: Attached}
			nodes[status.Node] = node
		}
		program := programOf(report)
		node.Programs = append(node.Programs, program)
		condition := v1alpha1.BpfProgramConditionType(program.Condition)
		switch {
		case condition.Failed():
			node.State = Failed
		case status.OwnerGeneration != f.Object.GetGeneration() && node.State != Failed:
			node.State, node.Remarks = Outdated, []string{"the agent hasn't processed the last change of the object yet"}
			if held := heldBack(f, status.Node); held != "" {
				node.State, node.Remarks = RollingOut, []string{held}
			} else if f.Object.GetStatus().Rollout != nil {
				node.Remarks = []string{"the agent hasn't reported the last change yet: with a RolloutPolicy, it first waits until the API server responds over a new connection, at most for bpfman.agent.confirm.timeout (30s by default)"}
			}
		case condition == v1alpha1.BpfProgCondNone && node.State != Failed:
			node.State, node.Remarks = Outdated, []string{"the agent is still reading the object's image"}
		case condition.Idle():
			idle[status.Node] = true
		}
		linked[status.Node] = linked[status.Node] || len(status.Links) > 0
		suggest(node, program)
	}
	for name, node := range nodes {
		if node.State == Attached && idle[name] && !linked[name] {
			node.State = Idle
		}
	}
	return nodes
}

// suggest adds the solutions for a program's errors to a node: those of its links, or else that of its message, which
// repeats them.
func suggest(node *Node, p Program) {
	failed := false
	for _, l := range p.Links {
		if l.Error != "" {
			failed = true
			node.suggest(solution(l.Problem, p.Reason, l.Error))
		}
	}
	if failed {
		return
	}
	node.suggest(solution(p.Problem, p.Reason, p.Message))
}

// solution returns what to do about an error: see [remedy.For]. For some problems, it has the values in the message.
func solution(named, reason, message string) string {
	switch problem.Reason(named) {
	case problem.NoSuchInterface:
		if match := lacksInterface.FindStringSubmatch(message); match != nil {
			return fmt.Sprintf("the program is attached once interface %s appears: to attach it to %s, name that in interfaceselector.interfaces, or set interfaceselector.primarynodeinterface to true", match[1], match[2])
		}
	case problem.NoSuchFunction:
		if match := lacksFunction.FindStringSubmatch(message); match != nil {
			return fmt.Sprintf("set bpffunctionname to %s, or to another function that the message lists", match[1])
		}
	case problem.NoSuchTracepoint:
		if match := lacksTracepoint.FindStringSubmatch(message); match != nil {
			return fmt.Sprintf("set the name to %s%s, or to another tracepoint: `/sys/kernel/tracing/available_events` on the node lists them", match[1], match[2])
		}
	case problem.NoSuchKernelFunction, problem.NoSuchGlobal:
		if found := meant.FindAllStringSubmatch(message, -1); len(found) == 1 { // names that the object's user chose are quoted
			return fmt.Sprintf("set the name to %s, the nearest one that there is", found[0][1])
		}
	case problem.ProgramType:
		if found := inSection.FindAllStringSubmatch(message, -1); len(found) == 1 { // of several, the message doesn't say which one
			return fmt.Sprintf("use the kind for functions in the section %s, or change the section of %s in the source", found[0][2], found[0][1])
		}
	default:
	}
	return remedy.For(named, reason)
}

func (n *Node) suggest(solution string) {
	if solution != "" && !slices.Contains(n.Remedies, solution) {
		n.Remedies = append(n.Remedies, solution)
	}
}

// The values in messages of the agent, about a missing interface (agent/program), a function that isn't in the bytecode or is in
// another section (agent/load), and what the kernel doesn't have.
var (
	lacksInterface  = regexp.MustCompile(`the node has no interface (\S+); its primary interface is (\S+)`)
	lacksFunction   = regexp.MustCompile(`the bytecode has no function .+ \(did you mean (\S+)\?\)`)
	lacksTracepoint = regexp.MustCompile(`the kernel has no tracepoint ([^/\s]+/)\S+; did you mean (\S+)\?`)
	meant           = regexp.MustCompile(`; did you mean ([\w.$]+)\?`)
	inSection       = regexp.MustCompile(`([^\s;]+) is in section ([^\s,;]+)`)
)

func programOf(report v1alpha1.ProgramObject) Program {
	status := report.GetStatus()
	p := Program{Report: report.GetName(), Function: status.Function, Type: report.GetSpec().Type, ID: status.ProgramID}
	if len(status.Conditions) > 0 {
		c := status.Conditions[0]
		p.Condition, p.Reason, p.Since, p.Message, p.Problem = c.Type, c.Reason, c.LastTransitionTime, c.Message, status.Problem
		p.Previous = status.Previous || strings.Contains(c.Message, keepsRunning)
	}
	for _, l := range status.Links {
		p.Links = append(p.Links, Link{l.AttachPoint, l.State == v1alpha1.LinkAttached, l.Error, l.Problem})
	}
	return p
}

// compare adds selected nodes that have no report, and remarks on nodes that have reports but aren't selected. It
// counts the other nodes by the reason why they aren't selected.
func compare(f Facts, selector labels.Selector, nodes map[string]*Node) []Count {
	agents := map[string]*corev1.Pod{}
	for i := range f.Agents {
		agents[f.Agents[i].Spec.NodeName] = &f.Agents[i]
	}
	because := map[string]*Count{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		node, agent := nodes[n.Name], agents[n.Name]
		switch selected := selector.Matches(labels.Set(n.Labels)); {
		case !selected && node != nil:
			node.State, node.Remarks = Left, []string{"the node is no longer selected, and its programs are being removed"}
		case !selected:
			text := lacking(selector, n.Labels)
			if because[text] == nil {
				because[text] = &Count{Because: text}
			}
			because[text].Nodes++
			because[text].Examples = append(because[text].Examples, n.Name)
		case f.Agents != nil && agent == nil:
			if node == nil {
				node = &Node{Name: n.Name}
				nodes[n.Name] = node
			}
			node.State, node.Remarks = NoAgent, noAgent(n)
		case node == nil:
			node = &Node{Name: n.Name, State: NotReported, Remarks: []string{"the node is selected, but its agent hasn't reported anything yet"}}
			if held := heldBack(f, n.Name); held != "" {
				node.State, node.Remarks = RollingOut, []string{held}
			}
			if agent != nil {
				node.Remarks = append(node.Remarks, ailing(agent)...)
			}
			nodes[n.Name] = node
		}
	}
	var counts []Count
	for _, text := range slices.Sorted(maps.Keys(because)) {
		c := because[text]
		slices.Sort(c.Examples)
		c.Examples = c.Examples[:min(len(c.Examples), maxExamples)]
		counts = append(counts, *c)
	}
	return counts
}

const maxExamples = 3

// lacking returns the requirements of a selector that a node's labels don't meet.
func lacking(selector labels.Selector, of map[string]string) string {
	requirements, _ := selector.Requirements()
	var texts []string
	for _, r := range requirements {
		if r.Matches(labels.Set(of)) {
			continue
		}
		has := "the label is missing"
		if value, ok := of[r.Key()]; ok {
			has = fmt.Sprintf("the label is %s=%s", r.Key(), value)
		}
		texts = append(texts, fmt.Sprintf("%s is required, but %s", r.String(), has))
	}
	return strings.Join(texts, "; ")
}

// noAgent returns reasons why a node can lack an agent.
func noAgent(n *corev1.Node) []string {
	remarks := []string{"no agent runs on the node: it has no pod of DaemonSet bpfman-daemon"}
	var taints []string
	for _, t := range n.Spec.Taints {
		taints = append(taints, t.ToString())
	}
	if len(taints) > 0 {
		remarks = append(remarks, "its taints: "+strings.Join(taints, ", "))
	}
	if os := n.Labels[corev1.LabelOSStable]; os != "" && os != "linux" {
		remarks = append(remarks, "its operating system is "+os)
	}
	return remarks
}

// ailing returns the containers of a node pod that aren't running, with their states.
func ailing(pod *corev1.Pod) []string {
	var remarks []string
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil:
			remarks = append(remarks, strings.TrimSuffix(fmt.Sprintf("container %s of pod %s is waiting: %s: %s", c.Name, pod.Name, c.State.Waiting.Reason, c.State.Waiting.Message), ": "))
		case c.State.Running != nil && !c.Ready:
			remarks = append(remarks, fmt.Sprintf("container %s of pod %s isn't ready", c.Name, pod.Name))
		}
	}
	return remarks
}

// Selectors returns the selectors of containers in an object.
func Selectors(o v1alpha1.UserObject) []Selector {
	var all []Selector
	for _, p := range userobject.Programs(o) {
		c := p.Containers()
		if c == nil {
			continue
		}
		pods, err := metav1.LabelSelectorAsSelector(&c.Pods)
		if err != nil {
			continue // the agent reports this
		}
		s := Selector{Namespace: c.Namespace, Pods: pods}
		if c.ContainerNames != nil {
			s.Containers = *c.ContainerNames
		}
		all = append(all, s)
	}
	return all
}

// containers returns the reasons why no container on a node is selected.
func containers(selectors []Selector, pods []corev1.Pod, node string) []string {
	var remarks []string
	for _, s := range selectors {
		if text := s.explain(pods, node); !slices.Contains(remarks, text) {
			remarks = append(remarks, text)
		}
	}
	return remarks
}

// explain returns the pods on a node that the selector matches, with their containers.
func (s Selector) explain(pods []corev1.Pod, node string) string {
	where := "any namespace"
	if s.Namespace != "" {
		where = "namespace " + s.Namespace
	}
	elsewhere, here, names := 0, 0, []string{}
	for i := range pods {
		p := &pods[i]
		switch {
		case s.Namespace != "" && p.Namespace != s.Namespace || !s.Pods.Matches(labels.Set(p.Labels)):
		case p.Spec.NodeName != node:
			elsewhere++
		default:
			here++
			for _, c := range p.Spec.Containers {
				names = append(names, c.Name)
			}
		}
	}
	if here == 0 {
		return fmt.Sprintf("no pod in %s with labels %q is on the node; %d are on other nodes", where, s.Pods, elsewhere)
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d pods in %s with labels %q are on the node; their containers are %s", here, where, s.Pods, strings.Join(slices.Compact(names), ", "))
	if len(s.Containers) > 0 {
		text += "; the object selects " + strings.Join(s.Containers, ", ")
	}
	return text
}
