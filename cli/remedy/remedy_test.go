// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package remedy

import (
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

func TestFor(t *testing.T) {
	reason := func(c v1alpha1.BpfProgramConditionType) string { return c.Condition().Reason }
	notLoaded := reason(v1alpha1.BpfProgCondNotLoaded)
	for name, c := range map[string]struct{ reason, message, want string }{
		"an interface":         {notLoaded, "attach to eth7 ingress: the node has no interface eth7", "the program is attached once the interface appears: wait for it, or correct `interfaceselector`"},
		"the dispatcher":       {notLoaded, `load: one or more programs failed to load: [BpfProgramError(LoadError { io_error: Os { code: 1, kind: PermissionDenied, message: "Operation not permitted" }, verifier_log:  })]`, "the kernel refuses the daemon's dispatcher for XDP and TC (no BPF trampolines): use TCX, or another kernel"},
		"the verifier":         {notLoaded, "LoadError { io_error: Os { message: \"Permission denied\" }, verifier_log: 0: R1=ctx()\n1: exit\n })", "correct the line of the source that the message names. `kubectl bpfman why` prints the verifier's log, in which the lines before `stack depth` say more"},
		"a field of no kernel": {notLoaded, "LoadError { io_error: Os { code: 22, kind: InvalidInput, message: \"Invalid argument\" }, verifier_log: 37: (85) call unknown#195896080\ninvalid func unknown#195896080\n })", "the program reads a field that the node's kernel doesn't have: check for it in the source with `bpf_core_field_exists` (CO-RE)"},
		"a function":           {notLoaded, "the bytecode has no function x; its functions are a, b, when loading from image quay.io/y", "set `bpffunctionname` to a function that the bytecode has: the message lists them"},
		"a section":            {notLoaded, "load modern from image quay.io/x:v1: error parsing BPF object: invalid program section `tc`", "put packet filters into the section `classifier`, not `tc` or `tcx`: the daemon's loader doesn't recognize the section, and refuses the whole object. `kubectl bpfman image inspect` lists such sections"},
		"a map's shape":        {notLoaded, "the pinned map /sys/fs/bpf/flows has type Hash, 4-byte keys, and 96-byte values, but the bytecode declares type Hash, 4-byte keys, and 104-byte values", "an older version of the bytecode pinned the map by name: keep the map's shape, or let the agent replace the map, whose entries are then lost. See maps pinned by name"},
		"a map owner":          {reason(v1alpha1.BpfProgCondMapOwnerNotFound), "BpfProgram map owner not found", "no program matches `mapownerselector` on this node, or several do; the message names them"},
		"no containers":        {reason(v1alpha1.BpfProgCondNoContainersOnNode), "", "nothing, if no container should match; otherwise correct the labels in `containers`"},
		"all is well":          {reason(v1alpha1.BpfProgCondLoaded), "Successfully loaded bpfProgram", ""},
		"nothing is known":     {notLoaded, "something that nobody has met", "loading or attaching failed: correct what the message names at its end. The agent retries"},
		"no reason":            {"", "something that nobody has met", ""},
	} {
		if got := For(c.reason, c.message); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// There is a remedy for every reason of a condition that requires an action.
func TestReasonsAreKnown(t *testing.T) {
	for _, c := range []v1alpha1.BpfProgramConditionType{
		v1alpha1.BpfProgCondNotUnloaded, v1alpha1.BpfProgCondMapOwnerNotFound, v1alpha1.BpfProgCondMapOwnerNotLoaded,
		v1alpha1.BpfProgCondBytecodeSelectorError, v1alpha1.BpfProgCondNoContainersOnNode, v1alpha1.BpfProgCondNoInterfacesOnNode,
	} {
		if For(c.Condition().Reason, "") == "" {
			t.Errorf("nothing is known of %s", c)
		}
	}
}
