// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/chaos"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// Names of operations.
const (
	create   = "create an object"
	policies = "create or delete the RolloutPolicies"
	labels   = "label a node"
	fail     = "roll out a revision that fails"
)

// Operations contains how the operations of [chaos.Operations] are done in the simulation. Those that aren't here aren't drawn.
var Operations = map[string]func(context.Context, *Cluster, chaos.Step) error{
	create: func(ctx context.Context, c *Cluster, s chaos.Step) error {
		return c.Client.Create(ctx, c.objectOf(s.Object))
	},
	"change an object": replace,
	fail:               replace,
	"cut off a node": func(ctx context.Context, c *Cluster, s chaos.Step) error {
		return c.Client.Create(ctx, c.objectOf(s.Object))
	},
	"delete an object": func(ctx context.Context, c *Cluster, s chaos.Step) error {
		return c.Client.Delete(ctx, c.objectOf(s.Object))
	},
	policies: func(ctx context.Context, c *Cluster, s chaos.Step) error {
		for _, p := range c.rolloutPolicies() {
			do := func(o client.Object) error { return c.Client.Create(ctx, o) }
			if s.Value == "delete" {
				do = func(o client.Object) error { return c.Client.Delete(ctx, o) }
			}
			if err := do(p); err != nil {
				return err
			}
		}
		return nil
	},
	labels: label,
	"add an interface": func(_ context.Context, c *Cluster, s chaos.Step) error {
		c.interfaces++
		c.node(s.Node).SetInterface(s.Target, program.Interface{Index: 10 + c.interfaces})
		return nil
	},
	"remove an interface": func(_ context.Context, c *Cluster, s chaos.Step) error {
		c.node(s.Node).RemoveInterface(s.Target)
		return nil
	},
	"create a pod": func(_ context.Context, c *Cluster, s chaos.Step) error {
		pod := s.Pod.Make("counters", "target")
		c.pods[pod.Name] = pod
		c.node(s.Pod.Node).RunPod(pod)
		return nil
	},
	"delete a pod": func(_ context.Context, c *Cluster, s chaos.Step) error {
		pod := c.pods[s.Target]
		delete(c.pods, s.Target)
		c.node(pod.Spec.NodeName).RemovePod(pod)
		return nil
	},
}

// label labels a node. If it is deleted at the moment, it has the label when it joins again.
func label(ctx context.Context, c *Cluster, s chaos.Step) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, chaos.ZoneLabel, s.Value)
	if s.Value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, chaos.ZoneLabel)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Node}}
	return client.IgnoreNotFound(c.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// canary returns the name of the node that gets a revision that fails.
func (c *Cluster) canary() string { return c.Model.Nodes[len(c.Model.Nodes)-1] }

func (c *Cluster) rolloutPolicies() []*v1alpha1.RolloutPolicy {
	all := chaos.Policies(c.canary())
	for _, p := range all {
		if p.Spec.OnFailure == "" { // the one for good revisions: users resume a rollout that a fault halts
			p.Spec.OnFailure, p.Spec.MaxUnhealthy, p.Spec.TimeLimit.Duration = v1alpha1.RolloutHalt, intstr.FromInt32(0), time.Minute
			p.Spec.Steps[1].Pause.Duration = pause
		}
	}
	return all
}

// pause is the pause of a rollout after its first step.
const pause = 10 * time.Second

// objectOf returns the object for the API server. Its bytecode is a file, and what drops packets on an uplink has the name by
// which the simulation recognizes it.
func (c *Cluster) objectOf(o *chaos.Object) v1alpha1.UserObject {
	made := o.Make("images")
	common := made.GetAppCommon()
	if !c.images {
		common.ByteCode = v1alpha1.BytecodeSelector{Path: new("/" + strings.TrimSuffix(common.ByteCode.Image.Url, ":latest") + ".o")}
	}
	made.SetAppCommon(common)
	if tcx, ok := made.(*v1alpha1.TcxProgram); ok && o.CutsOff != "" {
		tcx.Spec.BpfFunctionName = simulation.CutOff
		tcx.Spec.InterfaceSelector = v1alpha1.InterfaceSelector{Interfaces: &[]string{simulation.Uplink}}
	}
	return made
}

func replace(ctx context.Context, c *Cluster, s chaos.Step) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		wanted := c.objectOf(s.Object)
		now := wanted.DeepCopyObject().(client.Object) //nolint:forcetypeassert,errcheck // a copy of an object is one
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
			return err
		}
		wanted.SetResourceVersion(now.GetResourceVersion())
		return c.Client.Update(ctx, wanted)
	})
}

// resume resumes the rollouts that are halted although their revision is good. It reports whether there were any.
func (c *Cluster) resume() (resumed bool) {
	for name, wanted := range c.Model.Objects {
		if c.Model.Rollout(wanted) != v1alpha1.RolloutComplete {
			continue
		}
		o := c.objectOf(wanted)
		if err := c.Client.Get(c.tb.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			c.tb.Fatalf("get %s: %v", name, err)
		}
		is := o.GetStatus().Rollout
		if is == nil || is.State != v1alpha1.RolloutHalted {
			continue
		}
		resumed = true
		c.note("USER resumes %s at %s", name, is.Position())
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRolloutResumed, is.Position())
		if err := c.Client.Patch(c.tb.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			c.tb.Fatalf("resume %s: %v", name, err)
		}
	}
	return resumed
}
