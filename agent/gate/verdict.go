// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package gate

import (
	"slices"

	"github.com/bpfman/bpfman-operator/agent/bytecode"
	"github.com/bpfman/bpfman-operator/agent/plan"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/agent/report"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// judge returns the verdicts of policies on what was found out about an image, or on the
// error.
func judge(e policy.Evaluation, found bytecode.Bytecode, err error) report.Judgement {
	answer := reader.Answer{Signatures: found.Signatures, Attestations: found.Attestations}
	if found.Path != "" {
		answer.Object = &found.Object
	}
	if err != nil {
		answer = reader.Answer{Error: err.Error(), Problem: problem.Of(err)}
	}
	j := report.Judgement{Image: found.Image, Policies: e.Decide(&answer)}
	for _, finding := range answer.Signatures {
		if finding.Signer != "" {
			j.Signers = append(j.Signers, finding.Signer)
		}
	}
	slices.Sort(j.Signers)
	j.Signers = slices.Compact(j.Signers)
	return j
}

// refusal returns a PolicyError if the verdicts don't allow a Load, or nil.
func refusal(j report.Judgement) error {
	if verdict, why := policy.Sum(j.Policies); !policy.Loads(verdict) {
		return &report.PolicyError{Err: why, Final: verdict == v1alpha1.VerdictDenied}
	}
	return nil
}

// closed returns a program that gets no new links.
func closed(wanted plan.Program, why error) plan.Program {
	for i := range wanted.Points {
		wanted.Points[i].Lack = why
	}
	return wanted
}

// limited returns a program without new links where policies deny an attach point. Decide handles the attach points that are named
// in the object. limited is for those that are discovered on the node.
func limited(e policy.Evaluation, wanted plan.Program) plan.Program {
	wanted.Policies = nil
	for i := range wanted.Points {
		point := &wanted.Points[i]
		said := e.Hook(program.HookOf(point.Info))
		for _, s := range said {
			if !slices.ContainsFunc(wanted.Policies, func(o v1alpha1.BpfProgramPolicy) bool { return o.Name == s.Name && o.Verdict == s.Verdict }) {
				wanted.Policies = append(wanted.Policies, s)
			}
		}
		if verdict, why := policy.Sum(said); verdict == v1alpha1.VerdictDenied {
			point.Lack = why
			point.Withdrawn = point.Withdrawn || e.Unloads(said)
		}
	}
	return wanted
}
