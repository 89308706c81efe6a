// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package problem

// Problems about changes that nodes undo, and about rollouts in steps.
const (
	RolledBack              Reason = "RolledBack"
	RolloutHalted           Reason = "RolloutHalted"
	RolloutUndone           Reason = "RolloutUndone"
	PoliciesConflict        Reason = "PoliciesConflict"
	RolloutPolicyUnreadable Reason = "RolloutPolicyUnreadable"
	PolicyUnreadable        Reason = "PolicyUnreadable"
	RevisionTooLarge        Reason = "RevisionTooLarge"
	RevisionMissing         Reason = "RevisionMissing"
	RevisionRefused         Reason = "RevisionRefused"
	RolloutAwaitsYou        Reason = "RolloutAwaitsYou"
	RolloutPaused           Reason = "RolloutPaused"
	RolloutProceeds         Reason = "RolloutProceeds"
)

var rollouts = []Row{
	{
		Reason: RolledBack,
		ToDo:   "the node rolled the change back: correct the object, or change its annotation `bpfman.io/restartedAt` to try it again",
		Links:  []Link{{"rolled the change back", "rollback.md"}},
	},
	{
		Reason: RolloutHalted,
		ToDo:   "nodes with the change aren't healthy, so no other node changes: correct the object, or undo or resume the rollout",
		Links:  []Link{{"undo or resume the rollout", "rollouts.md#when-the-next-step-follows"}},
	},
	{
		Reason: RolloutUndone,
		ToDo:   "the change failed, and all nodes run the previous revision: correct the object",
		Links:  []Link{{"correct the object", "rollouts.md#when-the-next-step-follows"}},
	},
	{
		Reason: PoliciesConflict,
		ToDo:   "several RolloutPolicies match the object: change them so that only one does",
		Links:  []Link{{"change them", "rollouts.md#create-a-policy"}},
	},
	{
		Reason: RolloutPolicyUnreadable,
		ToDo:   "the RolloutPolicy was stored by an earlier version, and has a value that its field can't hold, which the message names: correct the policy, or delete it",
		Links:  []Link{{"correct the policy", "rollouts.md#create-a-policy"}},
	},
	{
		Reason: PolicyUnreadable,
		ToDo:   "the policy was stored by an earlier version, and has a value that its field can't hold, which the message names: correct the policy, or delete it",
	},
	{
		Reason: RevisionTooLarge,
		ToDo:   "during a rollout, the object's status has its previous revision, and both don't fit into one object. Make `globaldata` or the lists in the object smaller. Or delete the RolloutPolicy: the change then reaches all nodes immediately",
	},
	{
		Reason: RevisionMissing,
		ToDo:   "somebody deleted the ControllerRevision that nodes run: delete the RolloutPolicy, and create it again once the object is attached everywhere",
	},
	{
		Reason: RevisionRefused,
		ToDo:   "the API server refuses the ControllerRevision: raise the namespace's quota of `count/controllerrevisions.apps`, or mend the admission webhook that the message names. The operator tries again every minute",
	},
	{
		Reason: RolloutAwaitsYou,
		ToDo:   "the rollout waits for you: resume it",
		Links:  []Link{{"resume it", "rollouts.md#when-the-next-step-follows"}},
	},
	{
		Reason: RolloutPaused,
		ToDo:   "remove the annotation, or resume the rollout",
		Links:  []Link{{"resume the rollout", "rollouts.md#when-the-next-step-follows"}},
	},
	{
		Reason: RolloutProceeds,
		ToDo:   "nothing: the rollout continues on its own",
	},
}
