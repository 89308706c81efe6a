// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package history

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/rollout"
	"github.com/bpfman/bpfman-operator/tests/simulation"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// forged is a part of the name of a file that only a forged status names.
const forged = "forged"

// forgedStatus is a client that may write a status, and nothing else. It says that nodes are to have another revision of an object.
// Nodes believe that of an object that a RolloutPolicy matches, so such objects are left out.
var forgedStatus = FaultKind{
	Name: "a forged revision in a status", Server: true, Targets: nobody,
	Begin: func(_ context.Context, c *Cluster, _ Fault, _ simulation.Event) error {
		c.later(func() {
			for _, name := range slices.Sorted(maps.Keys(c.Model.Objects)) {
				if o := c.Model.Objects[name]; !o.Staged && o.CutsOff == "" {
					c.forge(c.objectOf(o))
					return
				}
			}
		})
		return nil
	},
}

// forge writes a rollout to the status of an object in which no node has the newest revision yet.
func (c *Cluster) forge(o v1alpha1.UserObject) {
	ctx := c.tb.Context()
	c.must(c.Client.Get(ctx, client.ObjectKeyFromObject(o), o))
	newest := rolloutHash(o)
	before := o.DeepCopyObject().(v1alpha1.UserObject) //nolint:forcetypeassert,errcheck // a copy of an object is one
	common := o.GetAppCommon()
	common.ByteCode = v1alpha1.BytecodeSelector{Path: new("/" + forged + ".o")}
	o.SetAppCommon(common)
	revision, err := rollout.RevisionOf(o)
	c.must(err)
	previous, err := json.Marshal(revision)
	c.must(err)
	o.GetStatus().Rollout = &v1alpha1.RolloutStatus{Policy: forged, State: v1alpha1.RolloutProgressing, Hash: newest, Until: new(int64(0)), Previous: &v1alpha1.RolloutRevision{Revision: 1}}
	o.GetStatus().Rollout.Previous.Object.Raw = previous
	c.note("FORGED %s", o.GetName())
	c.must(c.Client.Status().Patch(ctx, o, client.MergeFrom(before)))
}

var statusLoadsNothing = Invariant{
	Name:     "a status loads nothing",
	Sentence: "Whoever can write statuses can't have nodes load other programs of objects that no RolloutPolicy matches.",
	Watch: func(c *Cluster) Checks {
		return Checks{Call: func(n *simulation.Node, e simulation.Event) error {
			load, ok := e.Call.(*gobpfman.LoadRequest)
			if !ok || !strings.Contains(load.GetBytecode().GetFile(), forged) {
				return nil
			}
			name := load.GetMetadata()[v1alpha1.MetadataProgramName]
			if o := c.Model.Objects[name]; o != nil && o.Staged {
				return nil // a user has changed it since then, so that a policy matches it
			}
			return fmt.Errorf("%s has loaded %s of %s", n.Name, load.GetBytecode().GetFile(), name)
		}}
	},
}
