// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kubelet"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
)

// check compares the whole cluster with the model, which is settled.
func (w *world) check(ctx context.Context) error {
	var p problems
	if err := w.checkComponents(ctx, &p); err != nil {
		return err
	}
	if p.err() != nil {
		return p.err() // the other checks need it
	}
	users, err := w.checkObjects(ctx, &p)
	if err != nil {
		return err
	}
	reports, err := w.reports(ctx)
	if err != nil {
		return err
	}
	pods, err := w.checkPods(ctx, &p)
	if err != nil {
		return err
	}
	for _, name := range w.m.Nodes {
		survey, err := ask[node.Survey](ctx, w, name, "survey")
		if err != nil {
			return err
		}
		w.checkNode(name, survey, users, reports, &p)
		w.checkTables(name, survey, pods, &p)
		if err := w.checkInspected(ctx, name, survey, &p); err != nil {
			return err
		}
	}
	w.checkStrays(users, reports, &p)
	return p.err()
}

// checkComponents checks that bpfman is rolled out as configured, and ready.
func (w *world) checkComponents(ctx context.Context, p *problems) error {
	var set appsv1.DaemonSet
	if err := w.Get(ctx, client.ObjectKey{Namespace: bpfmanSpace, Name: "bpfman-daemon"}, &set); err != nil {
		return err
	}
	if s := set.Status; s.ObservedGeneration != set.Generation || int(s.UpdatedNumberScheduled) != len(w.m.Nodes) || int(s.NumberReady) != len(w.m.Nodes) {
		p.add("the DaemonSet isn't rolled out: %+v", s)
	}
	var operator appsv1.Deployment
	if err := w.Get(ctx, client.ObjectKey{Namespace: bpfmanSpace, Name: "bpfman-operator"}, &operator); err != nil {
		return err
	}
	if s := operator.Status; s.ObservedGeneration != operator.Generation || s.UpdatedReplicas != *operator.Spec.Replicas || s.ReadyReplicas != *operator.Spec.Replicas || s.Replicas != *operator.Spec.Replicas {
		p.add("the operator isn't rolled out: %+v", s)
	}
	images := map[string]string{}
	for _, c := range set.Spec.Template.Spec.Containers {
		images[c.Name] = c.Image
	}
	for component, container := range map[string]string{"agent": "bpfman-agent", "csi": "bpfman-csi", "inspector": "bpfman-inspector", "daemon": "bpfman"} {
		if want := w.config(imageKeys[component]); images[container] != want {
			p.add("%s runs image %s, want %s", container, images[container], want)
		}
	}
	var pods corev1.PodList
	if err := w.List(ctx, &pods, client.InNamespace(bpfmanSpace)); err != nil {
		return err
	}
	for i := range pods.Items {
		if !probe.Ready(&pods.Items[i]) || pods.Items[i].DeletionTimestamp != nil {
			p.add("pod %s isn't ready: %s", pods.Items[i].Name, pods.Items[i].Status.Phase)
		}
	}
	for _, name := range w.m.Nodes {
		var n corev1.Node
		if err := w.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return err
		}
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			p.add("node %s isn't ready", name)
		}
	}
	return nil
}

// checkObjects checks that the objects of the model exist, and that their status is right.
// It returns them by their names in the model.
func (w *world) checkObjects(ctx context.Context, p *problems) (map[string]v1alpha1.UserObject, error) {
	users := map[string]v1alpha1.UserObject{}
	for _, kind := range v1alpha1.UserKinds {
		objects, err := w.objects(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if wanted := w.m.Objects[o.GetName()]; wanted == nil || wanted.Kind != kind.Name {
				p.add("%s %s should be gone", kind.Name, o.GetName())
				continue
			}
			users[o.GetName()] = o
		}
	}
	for name, wanted := range w.m.Objects {
		o := users[name]
		if o == nil {
			p.add("there is no %s %s", wanted.Kind, name)
			continue
		}
		*p = append(*p, w.m.CheckStatus(wanted, o)...)
	}
	return users, nil
}

// objects returns the objects of a kind that the test has created. It notes the others, which the cluster can have.
func (w *world) objects(ctx context.Context, kind v1alpha1.Kind[v1alpha1.UserObject]) ([]v1alpha1.UserObject, error) {
	list, _ := kind.NewList().(client.ObjectList)
	if err := w.List(ctx, list); err != nil {
		return nil, err
	}
	var objects []v1alpha1.UserObject
	err := meta.EachListItem(list, func(item runtime.Object) error {
		o, _ := item.(v1alpha1.UserObject)
		if _, ours := o.GetLabels()[Label]; ours {
			objects = append(objects, o)
		} else {
			w.others[o.GetUID()] = true
		}
		return nil
	})
	return objects, err
}

// reportKey identifies the owner and the node of a report.
type reportKey struct {
	owner types.UID
	node  string
}

func (w *world) reports(ctx context.Context) (map[reportKey][]v1alpha1.ProgramObject, error) {
	reports := map[reportKey][]v1alpha1.ProgramObject{}
	for _, kind := range v1alpha1.ProgramKinds {
		list, _ := kind.NewList().(client.ObjectList)
		if err := w.List(ctx, list); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			r, _ := item.(v1alpha1.ProgramObject)
			key := reportKey{node: r.GetStatus().Node}
			if owners := r.GetOwnerReferences(); len(owners) == 1 {
				key.owner = owners[0].UID
			}
			if w.others[key.owner] {
				return nil
			}
			reports[key] = append(reports[key], r)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// checkStrays checks that there are no other reports.
func (w *world) checkStrays(users map[string]v1alpha1.UserObject, reports map[reportKey][]v1alpha1.ProgramObject, p *problems) {
	owners := map[types.UID]bool{}
	for _, o := range users {
		owners[o.GetUID()] = true
	}
	for key, stray := range reports {
		if !owners[key.owner] || !slices.Contains(w.m.Nodes, key.node) {
			for _, r := range stray {
				p.add("report %s of owner %q on node %q is nobody's", r.GetName(), key.owner, key.node)
			}
		}
	}
}

// checkNode checks what a node has loaded and attached for each object, according to the
// daemon, the kernel, and the reports.
func (w *world) checkNode(name string, s node.Survey, users map[string]v1alpha1.UserObject, reports map[reportKey][]v1alpha1.ProgramObject, p *problems) {
	byOwner, byID := map[string][]node.Program{}, map[uint32]node.Program{}
	for _, program := range s.Programs {
		byOwner[program.Metadata[v1alpha1.MetadataUUID]] = append(byOwner[program.Metadata[v1alpha1.MetadataUUID]], program)
		byID[program.ID] = program
	}
	type placed struct {
		id       uint32
		priority int32
	}
	chains := map[string][]placed{}
	earlier := map[uint32]bool{}    // programs of versions before one that doesn't load, which stay where they were attached
	loaded := map[string][]uint32{} // new loads, which count once everything of the node is as it should be
	for _, objectName := range slices.Sorted(maps.Keys(w.m.Objects)) {
		o, user := w.m.Objects[objectName], users[objectName]
		if user == nil {
			continue
		}
		what := o.Kind + " " + o.Name + " on " + name
		programs := byOwner[string(user.GetUID())]
		delete(byOwner, string(user.GetUID()))
		held, e := o.Held(name), w.m.Expect(o, name)

		var functions []string
		var ids []uint32
		for _, program := range programs {
			functions = append(functions, program.Function)
			ids = append(ids, program.ID)
			earlier[program.ID] = !e.Loaded
		}
		slices.Sort(functions)
		slices.Sort(ids)
		if !slices.Equal(functions, slices.Sorted(slices.Values(held.Functions))) {
			p.add("%s: the daemon has %q, want %q", what, functions, held.Functions)
			continue
		}
		if held.Serial != 0 {
			key := fmt.Sprint(name, " ", user.GetUID(), " ", held.Serial)
			if before, known := w.ids[key]; !known {
				loaded[key] = ids
			} else if !slices.Equal(before, ids) {
				p.add("%s: programs %v were loaded again, they were %v", what, ids, before)
			}
		}
		own := reports[reportKey{user.GetUID(), name}]
		if !e.Selected {
			if len(own) > 0 {
				p.add("%s: %d reports, though it isn't selected", what, len(own))
			}
			continue
		}
		runs := w.m.Runs(o, name)
		variant := runs.variant()
		generation, err := generationOf(user, runs != o)
		if err != nil {
			p.add("%s: %v", what, err)
			continue
		}
		if len(own) != len(variant.Members) {
			p.add("%s: %d reports, want %d", what, len(own), len(variant.Members))
			continue
		}
		for i, member := range variant.Members {
			at := slices.IndexFunc(own, func(r v1alpha1.ProgramObject) bool { return r.GetStatus().Function == member.Function })
			if at < 0 {
				p.add("%s: no report of %s", what, member.Function)
				continue
			}
			status := own[at].GetStatus()
			program := byID[status.ProgramID]
			if status.OwnerGeneration != generation {
				p.add("%s: the report of %s is of generation %d, want %d", what, member.Function, status.OwnerGeneration, generation)
			}
			if len(status.Conditions) == 0 {
				p.add("%s: the report of %s has conditions %+v", what, member.Function, status.Conditions)
				continue
			}
			failed := v1alpha1.BpfProgramConditionType(status.Conditions[0].Type).Failed()
			if !e.Loaded {
				if !failed {
					p.add("%s: the report says %s: %s", what, status.Conditions[0].Type, status.Conditions[0].Message)
				}
				continue
			}
			if program.Function != member.Function {
				p.add("%s: the report of %s has program %d, which is %+v", what, member.Function, status.ProgramID, program)
				continue
			}
			w.checkLinks(what+": "+member.Function, status, program, s.Attachments, e.Points[i], failed, p)
			for _, point := range e.Points[i] {
				if point.Attached && point.Interface != "" {
					chains[point.Interface] = append(chains[point.Interface], placed{program.ID, runs.Priority})
				}
			}
		}
	}
	for owner, programs := range byOwner {
		if w.others[types.UID(owner)] {
			continue
		}
		p.add("programs of %q on %s should be gone: %+v", owner, name, programs)
	}
	if p.err() != nil {
		return
	}
	for key, there := range w.m.Interfaces {
		nodeName, iface, _ := strings.Cut(key, "/")
		if !there || nodeName != name {
			continue
		}
		want := chains[iface]
		slices.SortStableFunc(want, func(a, b placed) int { return cmp.Compare(a.priority, b.priority) })
		got := slices.DeleteFunc(slices.Clone(s.Attachments.Chains[iface]), func(id uint32) bool { return earlier[id] })
		if len(got) != len(want) {
			p.add("interface %s of %s has programs %v, want %v", iface, name, got, want)
			continue
		}
		for i := range got {
			at := slices.IndexFunc(want, func(x placed) bool { return x.id == got[i] })
			if at < 0 || want[at].priority != want[i].priority {
				p.add("interface %s of %s has programs %v, want %v by priority", iface, name, got, want)
				break
			}
		}
	}
	if p.err() == nil {
		maps.Copy(w.ids, loaded)
	}
}

// generationOf returns the generation of an object, or of its previous revision.
func generationOf(o v1alpha1.UserObject, previous bool) (int64, error) {
	if !previous {
		return o.GetGeneration(), nil
	}
	is := o.GetStatus().Rollout
	if is == nil || is.Previous == nil {
		return 0, fmt.Errorf("there is no previous revision: %+v", is)
	}
	revision, err := rollout.Parse(is.Previous.Object.Raw)
	return revision.Metadata.Generation, err
}

// checkLinks compares the links of a program with the points to which it should be attached.
func (w *world) checkLinks(what string, status *v1alpha1.BpfProgramStatus, program node.Program, kernel node.Attachments, points []Point, failed bool, p *problems) {
	var want, got []string
	attached := 0
	for _, point := range points {
		state := v1alpha1.LinkNotAttached
		if point.Attached {
			state = v1alpha1.LinkAttached
			attached++
		}
		want = append(want, fmt.Sprint(point.Name, ": ", state))
	}
	var linkIDs []uint32
	for _, link := range status.Links {
		got = append(got, fmt.Sprint(link.AttachPoint, ": ", link.State))
		if link.State == v1alpha1.LinkAttached {
			linkIDs = append(linkIDs, link.LinkID)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		p.add("%s: the report has links %q, want %q", what, got, want)
	}
	if failed != (attached != len(points)) {
		p.add("%s: the report says %s: %s", what, status.Conditions[0].Type, status.Conditions[0].Message)
	}
	slices.Sort(linkIDs)
	if daemon := slices.Sorted(slices.Values(program.Links)); !slices.Equal(daemon, linkIDs) {
		p.add("%s: the daemon has links %v, the report %v", what, daemon, linkIDs)
	}
	if kernel.Links[program.ID] != attached {
		p.add("%s: the kernel has %d links, want %d", what, kernel.Links[program.ID], attached)
	}
}

// ownPins is the prefix of the pins that the daemon creates when it starts, to detect
// features of the kernel.
const ownPins = "dispatcher-test/"

// checkTables checks that there are no unexpected pins, mounts, or processes.
func (w *world) checkTables(name string, s node.Survey, pods map[string]types.UID, p *problems) {
	programs, mapsOf, links := map[string]bool{}, map[string]bool{}, 0
	for _, program := range s.Programs {
		programs[fmt.Sprint(program.ID)], mapsOf[program.MapsOf] = true, true
		w.seenPrograms[program.ID] = true
		links += len(program.Links)
		for _, id := range program.MapIDs {
			w.seenMaps[id] = true
		}
	}
	pinned, pinnedLinks := map[string]bool{}, 0
	for _, pin := range s.Pins {
		dir, rest, _ := strings.Cut(pin, "/")
		switch {
		case strings.HasPrefix(pin, "prog_"):
			pinned[strings.TrimPrefix(pin, "prog_")] = true
		case strings.HasPrefix(pin, ownPins):
		case dir == "links", strings.HasPrefix(dir, "tcx-"): // the latter are the Go daemon's
			pinnedLinks++
		case dir == "maps":
			if id, _, _ := strings.Cut(rest, "/"); !programs[id] && !mapsOf[id] {
				p.add("pin %s on %s is nobody's", pin, name)
			}
		default:
			p.add("pin %s on %s is nobody's", pin, name)
		}
	}
	if !maps.Equal(programs, pinned) {
		p.add("programs %v of the daemon on %s, pinned %v", slices.Sorted(maps.Keys(programs)), name, slices.Sorted(maps.Keys(pinned)))
	}
	if links != pinnedLinks {
		p.add("%d links of the daemon on %s, %d pinned: %q", links, name, pinnedLinks, s.Pins)
	}
	want := []string{"bpf /run/bpfman/fs", "bpf /sys/fs/bpf"}
	for podName, pod := range w.m.Pods {
		if pod.Node == name && pod.started {
			want = append(want, "bpf /var/lib/kubelet/pods/"+string(pods[podName])+"/volumes/kubernetes.io~csi/maps/mount")
		}
	}
	slices.Sort(want)
	mounts := slices.DeleteFunc(slices.Clone(s.Mounts), func(mount string) bool {
		return w.others[types.UID(kubelet.PodOf(mount))]
	})
	if !slices.Equal(mounts, want) {
		p.add("mounts on %s: %q, want %q", name, mounts, want)
	}
	w.checkProcesses(name, s.Processes, p)
}

// checkProcesses checks that each component runs once, and has left no zombies or child
// processes.
func (w *world) checkProcesses(name string, processes []node.Usage, p *problems) {
	count, names := map[string]int{}, map[int]string{}
	for _, u := range processes {
		count[u.Name]++
		names[u.PID] = u.Name
	}
	for _, component := range []string{node.Agent, node.CSI, node.Inspector, node.Daemon, node.Registrar} {
		if count[component] != 1 {
			p.add("%d processes of %s on %s", count[component], component, name)
		}
	}
	for _, u := range processes {
		if u.Name == "bpfman-reader" || u.Name == "bpfman-ns" {
			p.add("process %d of %s on %s goes on", u.PID, u.Name, name)
		}
		if parent := names[u.Parent]; u.Zombie && slices.Contains(ours, parent) {
			p.add("%s on %s has left the zombie %s", parent, name, u.Name)
		}
	}
}

// checkPods checks that the pods of the model exist, and whether they are ready.
func (w *world) checkPods(ctx context.Context, p *problems) (map[string]types.UID, error) {
	var pods corev1.PodList
	if err := w.List(ctx, &pods); err != nil {
		return nil, err
	}
	there := map[string]types.UID{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Namespace != Space {
			w.others[pod.UID] = true
			continue
		}
		wanted := w.m.Pods[pod.Name]
		if wanted == nil || pod.DeletionTimestamp != nil {
			p.add("pod %s should be gone", pod.Name)
			continue
		}
		there[pod.Name] = pod.UID
		if probe.Ready(pod) != w.m.Ready(wanted) {
			p.add("pod %s is ready: %v, want %v", pod.Name, probe.Ready(pod), w.m.Ready(wanted))
		}
	}
	for name := range w.m.Pods {
		if _, ok := there[name]; !ok {
			p.add("there is no pod %s", name)
		}
	}
	return there, nil
}

// checkInspected checks that the inspector reports the same programs.
func (w *world) checkInspected(ctx context.Context, name string, s node.Survey, p *problems) error {
	var inspected v1alpha1.BpfNode
	if err := w.Get(ctx, client.ObjectKey{Name: name}, &inspected); err != nil {
		return err
	}
	owned := map[uint32]bool{}
	for _, program := range inspected.Status.Programs {
		if program.Owner != nil {
			owned[program.ID] = true
		}
	}
	for _, program := range s.Programs {
		if !owned[program.ID] {
			p.add("the BpfNode of %s doesn't have program %d of %s", name, program.ID, program.Metadata[v1alpha1.MetadataProgramName])
		}
		delete(owned, program.ID)
	}
	for id := range owned {
		p.add("the BpfNode of %s has program %d, which is gone", name, id)
	}
	return nil
}
