// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/terminal"
	"github.com/bpfman/bpfman-operator/internal/rollout"
)

const rolloutLong = `Follow and control how changes of an object reach the nodes. If a RolloutPolicy matches the object, they reach the nodes in steps. Otherwise, they reach all nodes immediately.`

const rolloutExample = `  # Wait until a change has reached all nodes
  kubectl bpfman rollout status tcxprogram/firewall

  # Show which node runs which revision
  kubectl bpfman rollout status tcxprogram/firewall --nodes

  # Show what each change was
  kubectl bpfman rollout history tcxprogram/firewall --diff

  # Show what happened to the object and on which nodes, in order
  kubectl bpfman rollout timeline tcxprogram/firewall

  # Go on to the next step
  kubectl bpfman rollout resume tcxprogram/firewall

  # Return to the previous revision
  kubectl bpfman rollout undo tcxprogram/firewall`

// rolling is one of the commands for an object.
type rolling struct {
	streams genericiooptions.IOStreams
	connect cluster.Connect
	// components is the namespace with the revisions of cluster-scoped objects.
	components string
	format     *output.Flags
	revision   int64
	diff       bool
	nodes      bool
	watch      bool
	timeout    time.Duration
}

// rolled is the object of a command.
type rolled struct {
	cluster *cluster.Cluster
	object  v1alpha1.UserObject
	kind    string
}

func (o rolled) owner() v1alpha1.BpfNodeOwner {
	return v1alpha1.BpfNodeOwner{Kind: o.kind, Namespace: o.object.GetNamespace(), Name: o.object.GetName()}
}

// String returns the name that kubectl prints.
func (o rolled) String() string {
	return strings.ToLower(o.kind) + "." + v1alpha1.SchemeGroupVersion.Group + "/" + o.object.GetName()
}

func rolloutCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	parent := &cobra.Command{Use: "rollout", Short: "Follow and control how changes reach the nodes", Long: rolloutLong, Example: rolloutExample}
	r := rolling{streams: streams, connect: connect, format: output.NewFlags()}
	add := func(name, short string, run func(context.Context, rolled) error) *cobra.Command {
		command := &cobra.Command{
			Use: name + " KIND/NAME", Short: short, Args: cobra.RangeArgs(1, 2), ValidArgsFunction: completeUserObject(connect),
			RunE: func(c *cobra.Command, args []string) error {
				o, err := r.get(c.Context(), args)
				if err != nil {
					return err
				}
				return run(c.Context(), o)
			},
		}
		parent.AddCommand(command)
		return command
	}
	status := add("status", "Wait until a change has reached the nodes", r.status)
	status.Flags().BoolVarP(&r.watch, "watch", "w", true, "Wait until the rollout is complete or fails.")
	status.Flags().DurationVar(&r.timeout, "timeout", 0, "How long to wait. 0 means forever.")
	status.Flags().BoolVar(&r.nodes, "nodes", false, "Print which node runs which revision and why, and don't wait.")
	r.format.AddFormatTo(status)
	addNamespace(status, &r.components)
	history := add("history", "List the revisions of an object", r.history)
	history.Flags().Int64Var(&r.revision, "revision", 0, "Print this revision: with -o, as an object.")
	history.Flags().BoolVar(&r.diff, "diff", false, "Print what each revision changes, or the one of --revision.")
	r.format.AddTo(history, revisionsTable.Keys()...)
	addNamespace(history, &r.components)
	happened := add("timeline", "Show what happened to an object, in order", r.timeline)
	happened.Long = timelineLong
	r.format.AddTo(happened, timelineTable.Keys()...)
	addNamespace(happened, &r.components)
	undo := add("undo", "Return to a previous revision", r.undo)
	undo.Flags().Int64Var(&r.revision, "to-revision", 0, "Revision to return to. 0 means the last one that differs.")
	addNamespace(undo, &r.components)
	add("pause", "Pause a rollout", r.pause)
	add("resume", "Resume a rollout that is paused or halted", r.resume)
	add("restart", "Roll out the current revision again", r.restart)
	return parent
}

func (r *rolling) get(ctx context.Context, args []string) (rolled, error) {
	c, err := r.connect()
	if err != nil {
		return rolled{}, err
	}
	owner, err := c.Find(ctx, args)
	if err != nil {
		return rolled{}, err
	}
	object, err := cluster.Get(ctx, c, owner)
	return rolled{cluster: c, object: object, kind: owner.Kind}, err
}

// statusPoll is the interval of checks of an object's status.
const statusPoll = time.Second

// RolloutProgress is how far a change of an object has come.
type RolloutProgress struct {
	metav1.TypeMeta `json:",inline"`

	// Object is what kubectl prints for `-o name`.
	Object string `json:"object"`
	// Complete means that the change has reached all nodes, and Failed that it doesn't without the user.
	Complete bool   `json:"complete"`
	Failed   bool   `json:"failed"`
	Message  string `json:"message,omitempty"`
	// Rollout is the object's status.rollout. It is missing if no RolloutPolicy matches the object.
	Rollout *v1alpha1.RolloutStatus `json:"rollout,omitempty"`
}

func (r *rolling) status(ctx context.Context, o rolled) error {
	if r.nodes {
		return r.nodeRevisions(ctx, o)
	}
	if r.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, r.timeout, errors.New("timed out waiting for the rollout"))
		defer stop()
	}
	last := RolloutProgress{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "RolloutProgress"}, Object: o.String()}
	err := wait.PollUntilContextCancel(ctx, statusPoll, true, func(ctx context.Context) (bool, error) {
		done, message := false, ""
		err := o.cluster.Get(ctx, client.ObjectKeyFromObject(o.object), o.object)
		switch {
		case err == nil:
			done, message, err = progress(o.object)
			last.Rollout = o.object.GetStatus().Rollout
		case !apierrors.IsNotFound(err) && ctx.Err() == nil && r.watch:
			// The change can be what cut off the API server.
			message, err = "the object can't be read: "+err.Error(), nil
		}
		changed := message != last.Message
		last.Complete, last.Message = done, message
		switch {
		case err != nil:
			last.Failed, last.Message = true, err.Error()
			return false, err
		case done && r.format.Human():
			return true, r.say("%s successfully rolled out", o)
		case changed && r.format.Human():
			if err := r.say("Waiting for %s: %s", o, message); err != nil {
				return false, err
			}
		}
		return done || !r.watch, nil
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if !r.format.Human() {
		return errors.Join(r.format.Print(r.streams.Out, &last), err)
	}
	return err
}

// progress reports whether a change has reached all nodes. It returns an error if it failed.
func progress(o v1alpha1.UserObject) (done bool, message string, err error) {
	s := o.GetStatus()
	processed, err := isProcessed(o)
	if err != nil {
		return false, "", err
	}
	if !processed || len(s.Conditions) == 0 {
		return false, "the operator hasn't processed the change yet", nil
	}
	message = s.Conditions[0].Message
	if meta.IsStatusConditionTrue(s.Conditions, string(v1alpha1.Stalled)) {
		return false, "", errors.New(message)
	}
	return meta.IsStatusConditionTrue(s.Conditions, string(v1alpha1.Ready)), message, nil
}

// isProcessed reports whether the status is about the object's revision, and about the annotation that resumes a rollout.
// Annotations don't change the generation.
func isProcessed(o v1alpha1.UserObject) (bool, error) {
	s := o.GetStatus()
	if s.ObservedGeneration != o.GetGeneration() || s.Rollout == nil || s.Rollout.State == v1alpha1.RolloutContested {
		return s.ObservedGeneration == o.GetGeneration(), nil
	}
	now, err := rollout.RevisionOf(o)
	if err != nil {
		return false, fmt.Errorf("read the revision: %w", err)
	}
	waits := s.Rollout.State == v1alpha1.RolloutHalted || s.Rollout.State == v1alpha1.RolloutPaused
	resumed := o.GetAnnotations()[v1alpha1.AnnotationRolloutResumed] == s.Rollout.Position() && o.GetAnnotations()[v1alpha1.AnnotationRolloutPaused] != "true"
	return s.Rollout.Hash == now.Hash() && (!waits || !resumed), nil
}

func (r *rolling) say(format string, args ...any) error {
	if _, err := fmt.Fprintln(r.streams.Out, terminal.Text(fmt.Sprintf(format, args...))); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (r *rolling) undo(ctx context.Context, o rolled) error {
	all, err := r.revisions(ctx, o)
	if err != nil {
		return err
	}
	var target *Revision
	for i := range all {
		if !all[i].Current {
			target = &all[i]
		}
	}
	if r.revision != 0 {
		if target, err = numbered(all, r.revision); err != nil {
			return err
		}
	}
	switch {
	case target == nil:
		return fmt.Errorf("%s has no other revision", o)
	case target.Current:
		return fmt.Errorf("%s already has revision %d", o, target.Revision)
	}
	before, err := target.stored.Object(o.kind)
	if err != nil {
		return fmt.Errorf("read revision %d: %w", target.Revision, err)
	}
	common := before.GetAppCommon()
	common.NodeSelector = o.object.GetAppCommon().NodeSelector
	before.SetAppCommon(common)
	spec, err := rollout.RevisionOf(before)
	if err != nil {
		return fmt.Errorf("read revision %d: %w", target.Revision, err)
	}
	annotations := maps.Clone(o.object.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool { return rollout.AffectsPrograms(name) })
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, spec.Metadata.Annotations)
	return r.patch(ctx, o, types.JSONPatchType, []map[string]any{
		// The API server refuses the patch if the object has changed in the meantime.
		{"op": "replace", "path": "/metadata/resourceVersion", "value": o.object.GetResourceVersion()},
		{"op": "add", "path": "/metadata/annotations", "value": annotations},
		{"op": "replace", "path": "/spec", "value": spec.Spec},
	}, fmt.Sprintf("rolled back to revision %d", target.Revision))
}

func (r *rolling) pause(ctx context.Context, o rolled) error {
	if o.object.GetAnnotations()[v1alpha1.AnnotationRolloutPaused] == "true" {
		return fmt.Errorf("%s is already paused", o)
	}
	if o.object.GetStatus().Rollout == nil {
		return fmt.Errorf("%s isn't rolled out in steps: no RolloutPolicy matches it", o)
	}
	return r.annotate(ctx, o, map[string]any{v1alpha1.AnnotationRolloutPaused: "true"}, "paused")
}

func (r *rolling) resume(ctx context.Context, o rolled) error {
	annotations := map[string]any{}
	_, paused := o.object.GetAnnotations()[v1alpha1.AnnotationRolloutPaused]
	if paused {
		annotations[v1alpha1.AnnotationRolloutPaused] = nil
	}
	// A rollout that the annotation pauses still waits for the end of its step.
	if s := o.object.GetStatus().Rollout; s != nil && (s.State == v1alpha1.RolloutHalted || s.State == v1alpha1.RolloutPaused && !paused) {
		annotations[v1alpha1.AnnotationRolloutResumed] = s.Position()
	}
	if len(annotations) == 0 {
		return fmt.Errorf("%s is neither paused nor halted", o)
	}
	return r.annotate(ctx, o, annotations, "resumed")
}

func (r *rolling) restart(ctx context.Context, o rolled) error {
	now := time.Now().UTC().Format(time.RFC3339)
	return r.annotate(ctx, o, map[string]any{v1alpha1.AnnotationRestartedAt: now}, "restarted")
}

// annotate sets annotations, or removes those whose value is nil.
func (r *rolling) annotate(ctx context.Context, o rolled, annotations map[string]any, done string) error {
	return r.patch(ctx, o, types.MergePatchType, map[string]any{"metadata": map[string]any{"annotations": annotations}}, done)
}

func (r *rolling) patch(ctx context.Context, o rolled, kind types.PatchType, content any, done string) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode a patch of %s: %w", o, err)
	}
	if err := o.cluster.Writer.Patch(ctx, o.object, client.RawPatch(kind, text)); err != nil {
		return fmt.Errorf("patch %s: %w", o, err)
	}
	return r.say("%s %s", o, done)
}
