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
	for name, c := range map[string]struct{ named, reason, want string }{
		"an interface":        {"NoSuchInterface", notLoaded, "the program is attached once the interface appears: wait for it, or correct `interfaceselector`"},
		"another message":     {"VerifierRefused", notLoaded, "correct the line of the source that the message names. `kubectl bpfman why` prints the verifier's log, in which the lines before `stack depth` say more"},
		"a registry":          {"NoSuchImage", notLoaded, "the registry has no image with this name and tag or digest: correct `bytecode.image.url`, or push the image"},
		"of an older agent":   {"", notLoaded, "loading or attaching failed: correct what the message names at its end. The agent retries"},
		"of a newer agent":    {"OfTheFuture", notLoaded, "loading or attaching failed: correct what the message names at its end. The agent retries"},
		"a map owner":         {"", reason(v1alpha1.BpfProgCondMapOwnerNotFound), "no program matches `mapownerselector` on this node, or several do; the message names them"},
		"no containers":       {"", reason(v1alpha1.BpfProgCondNoContainersOnNode), "nothing, if no container should match; otherwise correct the labels in `containers`"},
		"all is well":         {"", reason(v1alpha1.BpfProgCondLoaded), ""},
		"a type of conflicts": {"", v1alpha1.BpfNodeUnownedProgram, "find out who loaded the program: see UnownedProgram"},
		"no reason":           {"", "", ""},
	} {
		if got := For(c.named, c.reason); got != c.want {
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
		if For("", c.Condition().Reason) == "" {
			t.Errorf("nothing is known of %s", c)
		}
	}
}
