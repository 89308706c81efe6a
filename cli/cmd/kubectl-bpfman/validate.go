// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/cli/cluster"
	"github.com/bpfman/bpfman-operator/cli/convert"
	"github.com/bpfman/bpfman-operator/cli/output"
	"github.com/bpfman/bpfman-operator/cli/validate"
	"github.com/bpfman/bpfman-operator/cli/why"
)

// errInvalid means that an object isn't valid.
var errInvalid = errors.New("not all objects are valid")

const validateLong = `Check objects before you apply them. Nothing is changed.

The command finds what the API server refuses: unknown fields, wrong values, and violated rules. It finds what agents refuse, such as a regular expression that can't be compiled, and functions and global variables that the bytecode doesn't have. It warns if a selector matches no node, no pod, or no container of the cluster.

If a cluster answers, it also decides itself whether it would accept the objects, with its own definitions, admission policies, and webhooks (a server-side dry run). With --offline, the command uses neither a cluster nor a registry.

The exit code is 0 if all objects are valid, 2 if one isn't, and 1 if the command fails. With --strict, an object with warnings isn't valid.`

const validateExample = `  # Check a manifest
  kubectl bpfman validate -f counter.yaml

  # Check all manifests of a directory, in CI, without a cluster
  kubectl bpfman validate --offline -f manifests/

  # Check what another command prints
  kustomize build . | kubectl bpfman validate -f -`

type validateOptions struct {
	components string
	files      []string
	offline    bool
	strict     bool
	format     *output.Flags
	registry   registryFlags
}

func validateCommand(streams genericiooptions.IOStreams, connect cluster.Connect) *cobra.Command {
	o := validateOptions{format: output.NewFlags()}
	command := &cobra.Command{
		Use:               "validate -f FILE",
		Short:             "Check objects before you apply them",
		Long:              validateLong,
		Example:           validateExample,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			streams.In = c.InOrStdin()
			return o.run(c.Context(), connect, streams)
		},
	}
	flags := command.Flags()
	flags.StringSliceVarP(&o.files, "filename", "f", nil, "File with the objects, or directory of .yaml, .yml, and .json files; - is standard input.")
	flags.BoolVar(&o.offline, "offline", false, "Use neither a cluster nor a registry.")
	flags.BoolVar(&o.strict, "strict", false, "Exit with 2 if there are warnings.")
	_ = command.MarkFlagRequired("filename") // fails only for unknown flags
	addNamespace(command, &o.components)
	o.registry.addTo(command)
	o.format.AddFormatTo(command)
	return command
}

func (o validateOptions) run(ctx context.Context, connect cluster.Connect, streams genericiooptions.IOStreams) error {
	var objects []convert.Object
	for _, name := range o.files {
		read, err := readAll(name, streams.In)
		if err != nil {
			return err
		}
		objects = append(objects, read...)
	}
	report := &validate.Report{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Validation"}, Objects: []*validate.Result{}}
	var in *cluster.Cluster
	namespace := metav1.NamespaceDefault
	if !o.offline {
		var err error
		if in, err = connect(); err != nil {
			report.Unchecked = append(report.Unchecked, fmt.Sprintf("whether the cluster accepts the objects, and what they match: %v", err))
		} else {
			namespace = in.Namespace
		}
	}
	for _, read := range objects {
		r, err := validate.Check(ctx, read, namespace)
		if err != nil {
			return err
		}
		report.Objects = append(report.Objects, r)
	}
	if err := o.compare(ctx, in, report); err != nil {
		return err
	}
	var err error
	if o.format.Human() {
		err = report.Print(streams.Out)
	} else {
		err = o.format.Print(streams.Out, report)
	}
	if err == nil && report.Failed(o.strict) {
		err = errInvalid
	}
	return err
}

// compare compares the objects with the cluster, if one answers, and with their bytecode.
func (o validateOptions) compare(ctx context.Context, in *cluster.Cluster, report *validate.Report) error {
	if o.offline {
		return nil
	}
	var facts validate.Facts
	if in != nil {
		err := o.gather(ctx, in, &facts)
		if unreachable(err) {
			in = nil
		}
		if err != nil {
			report.Unchecked = append(report.Unchecked, fmt.Sprintf("what the objects match in the cluster: %v", err))
		}
	}
	for _, r := range report.Objects {
		if len(r.Errors) > 0 || r.Foreign {
			continue
		}
		if in != nil {
			dryRun(ctx, in, r)
		}
		if r.Object == nil {
			continue
		}
		of := facts
		unread := func(what string, err error) {
			if err != nil {
				r.Unchecked = append(r.Unchecked, fmt.Sprintf("%s: %v", what, err))
			}
		}
		var err error
		if in != nil {
			of.Pods, err = selectedPods(ctx, in, why.Selectors(r.Object))
			unread("which containers it selects", err)
		}
		of.Objects, err = o.bytecode(ctx, why.BytecodeOf(r.Object), r.Object.GetAppCommon().ByteCode.Image != nil)
		unread("the functions of the bytecode", err)
		r.Compare(of)
	}
	return nil
}

func (o validateOptions) gather(ctx context.Context, in *cluster.Cluster, facts *validate.Facts) (err error) {
	if facts.Nodes, err = cluster.All[corev1.Node](ctx, in, &corev1.NodeList{}); err != nil {
		return err
	}
	if facts.Agents, err = cluster.All[corev1.Pod](ctx, in, &corev1.PodList{}, client.InNamespace(o.components), cluster.NodePods); err != nil {
		return err
	}
	if len(facts.Agents) == 0 {
		facts.Agents = nil // bpfman isn't installed yet, or in another namespace
	}
	return nil
}

// unreachable reports whether no API server answered.
func unreachable(err error) bool {
	_, request := errors.AsType[*url.Error](err)
	_, network := errors.AsType[net.Error](err)
	return err != nil && (request || network)
}

// dryRun has the API server decide whether it would accept an object.
func dryRun(ctx context.Context, in *cluster.Cluster, r *validate.Result) {
	object := r.Content.DeepCopy()
	object.SetNamespace(r.Namespace)
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	object.SetUID("")
	if object.GetName() == "" {
		r.Unchecked = append(r.Unchecked, "whether the cluster accepts it: it has no name yet")
		return
	}
	err := in.Writer.Patch(ctx, object, client.Apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner("kubectl-bpfman-validate")) //nolint:staticcheck // Apply takes generated types
	switch {
	case err == nil:
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), refusedAtAdmission(err):
		r.Errors = append(r.Errors, fmt.Sprintf("the cluster refuses it: %v", err))
	default:
		r.Unchecked = append(r.Unchecked, fmt.Sprintf("whether the cluster accepts it: %v", err))
	}
}

// denial matches what the API server says if a webhook or a ValidatingAdmissionPolicy denies a request. Each of them chooses the
// code and the reason.
var denial = regexp.MustCompile(`^admission webhook ".*" denied the request|ValidatingAdmissionPolicy '.*' denied request`)

// refusedAtAdmission reports whether admission refused a request, and not the rights of the user, of which an error has no causes.
func refusedAtAdmission(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return denial.MatchString(status.Status().Message) || apierrors.IsForbidden(err) && details != nil && len(details.Causes) > 0
}

// bytecode reads what is in an image. It returns nothing for a file, which is on the nodes.
func (o validateOptions) bytecode(ctx context.Context, of string, image bool) ([]object.Object, error) {
	if !image {
		return nil, errors.New("a file on the nodes can't be read from here")
	}
	ctx, cancel, registries, err := o.registry.connect(ctx)
	defer cancel()
	if err != nil {
		return nil, err
	}
	content, err := registries.Get(ctx, of)
	if err != nil {
		return nil, err
	}
	found, err := bytecodeimage.Read(content)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", of, err)
	}
	objects := make([]object.Object, 0, len(found))
	for _, c := range found {
		objects = append(objects, c.Object)
	}
	return objects, nil
}
