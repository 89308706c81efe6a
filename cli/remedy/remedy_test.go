// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package remedy

import (
	"os"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// The plugin's tables are the same as on the page.
func TestTablesAreThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "|") {
			want.WriteString(line)
		}
	}
	if tables != want.String() || want.Len() == 0 {
		t.Error("remedies.md isn't the tables of docs/status.md: run `make generate`")
	}
}

// Every row for messages has a remedy, and no pattern is so short that it matches
// unrelated messages.
func TestRows(t *testing.T) {
	rows := 0
	for _, r := range remedies {
		if r.reason != "" {
			continue
		}
		rows++
		if len(r.patterns) == 0 || r.Text == "" {
			t.Errorf("the row %q has no message or no remedy", r.Text)
		}
		for _, p := range r.patterns {
			if len(p.String()) < len("(?s)target is empty") && !strings.Contains(p.String(), "no file") {
				t.Errorf("the pattern %s matches too much", p)
			}
		}
	}
	if rows < 25 {
		t.Errorf("there are %d rows for messages", rows)
	}
}

func TestFor(t *testing.T) {
	reason := func(c v1alpha1.BpfProgramConditionType) string { return c.Condition().Reason }
	notLoaded := reason(v1alpha1.BpfProgCondNotLoaded)
	for name, c := range map[string]struct{ reason, message, want string }{
		"an interface":         {notLoaded, "attach to eth7 ingress: the node has no interface eth7", "the program is attached once the interface appears"},
		"the dispatcher":       {notLoaded, `load: one or more programs failed to load: [BpfProgramError(LoadError { io_error: Os { code: 1, kind: PermissionDenied, message: "Operation not permitted" }, verifier_log:  })]`, "the kernel refuses the daemon's dispatcher (no BPF trampolines): use TCX, or another kernel"},
		"the verifier":         {notLoaded, "LoadError { io_error: Os { message: \"Permission denied\" }, verifier_log: 0: R1=ctx()\n1: exit\n })", "the kernel's verifier rejects the program: its log follows, and the verdict is in the last lines, before `verification time`"},
		"a field of no kernel": {notLoaded, "LoadError { io_error: Os { code: 22, kind: InvalidInput, message: \"Invalid argument\" }, verifier_log: 37: (85) call unknown#195896080\ninvalid func unknown#195896080\n })", "the program reads a field that the node's kernel doesn't have, and the source doesn't check for that with `bpf_core_field_exists` (CO-RE)"},
		"a function":           {notLoaded, "load from image quay.io/y: it has no function x; its functions are a, b", "the bytecode has no function `bpffunctionname`; the message lists the functions that it has"},
		"a section":            {notLoaded, "load modern from image quay.io/x:v1: error parsing BPF object: invalid program section `tc`", "the daemon's loader doesn't recognize the section, and refuses the whole object; packet filters belong in the section `classifier`, not `tc` or `tcx`. `kubectl bpfman image inspect` lists such sections"},
		"a map's shape":        {notLoaded, "the pinned map /sys/fs/bpf/flows has type Hash, 4-byte keys, and 96-byte values, but the bytecode declares type Hash, 4-byte keys, and 104-byte values", "an older version of the bytecode pinned the map by name: keep the map's shape, or let the agent replace the map, whose entries are then lost. See maps pinned by name"},
		"a map owner":          {reason(v1alpha1.BpfProgCondMapOwnerNotFound), "BpfProgram map owner not found", "no program matches `mapownerselector` on this node, or several do; the message names them"},
		"no containers":        {reason(v1alpha1.BpfProgCondNoContainersOnNode), "", "nothing, if no container should match"},
		"all is well":          {reason(v1alpha1.BpfProgCondLoaded), "Successfully loaded bpfProgram", ""},
		"nothing is known":     {notLoaded, "something that nobody has met", ""},
	} {
		if got := For(c.reason, c.message); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Each message about an image has exactly one remedy.
func TestOneRemedyForEachImage(t *testing.T) {
	const image, host = "image registry.example.com/acme/x:v1: ", "registry registry.example.com:443"
	for _, message := range []string{
		"waiting for its registry",
		host + " has no such image",
		host + " has no such manifest for this machine",
		host + " has no such layer of the image",
		host + " requires credentials (status 401 Unauthorized)",
		host + " refuses the credentials (status 403 Forbidden)",
		host + " limits the number of requests (status 429 Too Many Requests)",
		host + " answers with status 500 Internal Server Error",
		host + ": tls: failed to verify certificate: x509: certificate signed by unknown authority",
		host + ": http: server gave HTTP response to HTTPS client",
		host + " redirects to an address without TLS",
		host + ": the name registry.example.com can't be resolved",
		host + ": the name server doesn't answer for registry.example.com",
		host + " doesn't answer in time",
		host + " refuses connections",
		host + " is too slow",
		host + " leads to 127.0.0.1, which is an address of this machine or its links",
		host + " redirects too often",
		"reading the image takes longer than 30s",
		"its manifest isn't valid JSON in the format of a manifest",
		"its manifest has a member twice",
		"its manifest has more than 4 MiB",
		"its manifest says that the layer has 1 bytes, but it has 2",
		"its index has two different manifests for linux/amd64",
		"its index contains another index",
		"its index says that manifest sha256:0 has 1 bytes, but it has 2",
		"it has no manifest for linux/amd64",
		"it has 2 layers instead of one",
		`the digest of its layer, "sha512:0", isn't a sha256 digest`,
		`its layer has the media type "application/vnd.oci.image.layer.v1.tar+zstd" instead of application/vnd.oci.image.layer.v1.tar+gzip`,
		"its layer has 99999999 bytes; the limit is 32 MiB",
		"its layer has more than 32 MiB",
		"its layer is larger than its manifest says",
		"its layer isn't in gzip's format",
		"its layer isn't a tar archive in POSIX ustar or pax format",
		"its layer has data after the gzip stream",
		"its layer has data in the padding of a file",
		"its layer ends too early",
		"its layer contains no file",
		"its layer contains more than one file",
		`its layer contains a symbolic link, "x"`,
		`its layer has a pax header with the record "GNU.sparse.major=1"`,
		"its layer has a tar header with a wrong checksum",
		"its file has more than 32 MiB",
		"its bytecode can't be used: it has more than 32 MiB",
		"its bytecode can't be used: it isn't an ELF file, such as `clang -target bpf -g -O2 -c` writes",
		"its bytecode can't be used: it isn't a relocatable object for BPF, but ET_EXEC for EM_X86_64",
		"its bytecode can't be used: it has no programs",
		"its bytecode can't be used: it is big-endian, but amd64 isn't",
		`its bytecode can't be used: its section ".debug_info" is compressed`,
		`its bytecode can't be used: its section "x" depends on a debug section`,
		`its bytecode can't be used: it has two functions "x"`,
		"its bytecode can't be used: its section 3 is outside of the file",
	} {
		if got := matching(image + message); len(got) != 1 {
			t.Errorf("%s: %q", message, got)
		}
	}
	for _, message := range []string{
		"image x isn't on this node, and the pull policy is Never",
		"store image x: the node's store of bytecode is full: 250 MiB of 256 are in use; increase bpfman.bytecode.store.size in the ConfigMap bpfman-config",
		"image x: create a file in the store of bytecode: open /var/lib/bpfman/bytecode/new-1: no space left on device",
		"bpfman-reader didn't answer within 35s",
		"get pull Secret a/b: secrets \"b\" not found",
		"bpfman.toml has verify_enabled = true and allow_unsigned = false, so an image needs a BytecodePolicy in mode enforce",
	} {
		if got := matching(message); len(got) != 1 {
			t.Errorf("%s: %q", message, got)
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
