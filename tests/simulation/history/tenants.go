// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/simulation"
)

// greedy is the namespace of a tenant with many objects, and a part of the names of their images.
const greedy = "greedy"

const greedyObjects = 40

// greedyTenant is a tenant with objects whose images are at a registry that doesn't answer. Each second one's can be read.
var greedyTenant = FaultKind{
	Name: "a tenant with many objects at a silent registry", Targets: nobody, Shortest: 10 * time.Second, Longest: 10 * time.Minute,
	Begin: func(ctx context.Context, c *Cluster, f Fault, _ simulation.Event) error {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: greedy}}
		if c.API.Get("namespaces", "", greedy) == nil {
			c.must(c.Client.Create(ctx, space))
		}
		unique := c.API.Version()
		var all []client.Object
		for i := range greedyObjects {
			o := &v1alpha1.XdpNsProgram{ObjectMeta: metav1.ObjectMeta{Namespace: greedy, Name: fmt.Sprintf("%s-%d-%d", greedy, unique, i)}}
			o.Spec.BpfFunctionName = "f"
			o.Spec.InterfaceSelector.Interfaces = &[]string{simulation.Uplink}
			o.Spec.Containers = &v1alpha1.ContainerNsSelector{}
			o.Spec.ByteCode.Image = &v1alpha1.BytecodeImage{Url: "images/" + o.Name}
			if i%2 == 0 {
				o.Spec.ByteCode.Image.Url += silent
			}
			all = append(all, o)
			c.must(c.Client.Create(ctx, o))
		}
		f.Target = greedy
		c.Until(f, func() {
			c.later(func() {
				for _, o := range all {
					c.must(client.IgnoreNotFound(c.Client.Delete(c.tb.Context(), o)))
				}
			})
		})
		return nil
	},
}

// silent is a part of the names of images that can't be read.
const silent = "-silent"

func readsSilent(e simulation.Event) bool {
	return e.Resource == simulation.ResourceRegistry && !e.Done && strings.Contains(e.Name, silent)
}

// recent is the time after a fault in which its effects can still be seen.
const recent = 2 * time.Minute

var attachedInTime = Invariant{
	Name:     "attached in time",
	Sentence: "An object is attached within 30 seconds after its creation or change, whatever other tenants do.",
	Watch: func(c *Cluster) Checks {
		const limit = 30 * time.Second
		return Checks{Second: func() error {
			var others []string
			for _, component := range c.Components() {
				others = append(others, component.Name[strings.LastIndex(component.Name, "/")+1:])
			}
			if !c.Calm(time.Since(c.Settled), append(others, "")...) || c.Changed("") || time.Since(c.Operated("")) < limit {
				return nil
			}
			for name, o := range c.Model.Objects {
				if o.CutsOff != "" && c.Changed(name) {
					return nil // a node that was cut off doesn't know the others yet
				}
			}
			for name, o := range c.Model.Objects {
				if o.Staged || !c.Changed(name) {
					continue
				}
				for _, n := range c.Nodes() {
					if err := c.attached(n, o); err != nil {
						return fmt.Errorf("%s after the last operation: %w", time.Since(c.Operated("")), err)
					}
				}
			}
			return nil
		}}
	},
}

var usedImages = Invariant{
	Name:     "images in use stay",
	Sentence: "The image of an object that runs is never removed from its node's disk.",
	Watch: func(c *Cluster) Checks {
		return Checks{Rest: func() error {
			for name, o := range c.Model.Objects {
				for _, n := range c.Nodes() {
					if !c.Model.Expect(o, n.Name).Loaded {
						continue
					}
					for _, p := range c.programsOf(n, o) {
						_, image, stored := strings.Cut(p.File, "/images/")
						if !stored || !strings.Contains(image, "@") {
							continue
						}
						if files, _ := filepath.Glob(filepath.Join(n.Store(), "images", image)); len(files) == 0 {
							return fmt.Errorf("%s doesn't have %s of %s anymore", n.Name, image, name)
						}
					}
				}
			}
			return nil
		}}
	},
}

// read is a read of an image by an agent.
type read struct{ agent, image string }

// countRead counts the reads in progress.
func (c *Cluster) countRead(e simulation.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := read{e.Actor, e.Name}
	if c.reads[is]++; e.Done {
		c.reads[is] -= 2
	}
}

// readTwice returns an image of the greedy tenant that an agent reads several times at the same time, or "". Each namespace has its own
// credentials, so objects of several namespaces can read the same image, but each image of that tenant belongs to one object.
func (c *Cluster) readTwice(agent string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for is, times := range c.reads {
		if times > 1 && is.agent == agent && strings.Contains(is.image, greedy) {
			return is.image
		}
	}
	return ""
}

var readOnce = Invariant{
	Name:     "read once",
	Sentence: "A node reads an image once at a time, no matter how often its object asks for it.",
	Watch: func(c *Cluster) Checks {
		return Checks{Second: func() error {
			for _, n := range c.Nodes() {
				// An agent that has crashed can still be reading when the next one starts.
				if image := c.readTwice(n.Agent.Name); image != "" && c.Calm(time.Minute, n.Name) {
					return fmt.Errorf("%s reads %s more than once at the same time", n.Agent.Name, image)
				}
			}
			return nil
		}}
	},
}

var goneIsGone = Invariant{
	Name:     "reports go with their node",
	Sentence: "The reports of a deleted node are deleted with it.",
	Watch: func(c *Cluster) Checks {
		gone := map[string]time.Time{}
		return Checks{Second: func() error {
			there := map[string]bool{}
			for _, o := range c.Objects("nodes") {
				there[o.GetName()] = true
			}
			for _, n := range c.Nodes() {
				switch {
				case there[n.Name] || !c.Calm(recent, "", "a", "b"):
					delete(gone, n.Name)
				case gone[n.Name].IsZero():
					gone[n.Name] = time.Now()
				}
			}
			if len(gone) == 0 {
				return nil // reading all reports each second is a fifth of a history's time
			}
			for _, resource := range []string{"bpfprograms", "bpfnsprograms"} {
				for _, o := range c.Objects(resource) {
					node := reportOf(o).Node
					if at, is := gone[node]; is && time.Since(at) > recent {
						return fmt.Errorf("report %s of %s is left after %s", o.GetName(), node, time.Since(at))
					}
				}
			}
			return nil
		}}
	},
}
