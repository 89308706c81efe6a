// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/registry"
)

// policyNamespace is the agent's namespace for policies.
const policyNamespace = "bpfman"

// sign adds signatures of authorities to an image.
func (n *node) sign(digest string, authorities ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.signed == nil {
		n.signed = map[string][]string{}
	}
	n.signed[digest] = authorities
}

func publicKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// signedBy creates a policy for the test's node that requires signatures of the team.
func (n *node) signedBy(name, images string) *v1alpha1.BytecodePolicy {
	return &v1alpha1.BytecodePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.BytecodePolicySpec{
			Match:       v1alpha1.BytecodePolicyMatch{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"test": n.name}}},
			Rules:       []v1alpha1.BytecodeRule{{Name: "signed", Images: []string{images}, SignedBy: []string{"team"}}},
			Authorities: []v1alpha1.BytecodeAuthority{{Name: "team", Key: &v1alpha1.AuthorityKey{PEM: publicKey(n.t)}}},
		},
	}
}

// verdict waits until the report about an owner's program contains a policy's verdict.
func (n *node) verdict(owner, policy string, want v1alpha1.PolicyVerdict) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%s to be %s by %s", owner, want, policy), func() error {
		for _, o := range n.reportsOn(owner) {
			b := o.GetStatus().Bytecode
			if b == nil {
				continue
			}
			for _, p := range b.Policies {
				if p.Name == policy && p.Verdict == want {
					return nil
				}
			}
			return fmt.Errorf("status.bytecode %+v", b)
		}
		return errors.New("no object")
	})
}

// loads returns the names of the owners for which the daemon was asked to load programs.
func (n *node) loads() []string {
	var names []string
	for _, p := range n.daemon.Programs() {
		names = append(names, p.Metadata[v1alpha1.MetadataProgramName])
	}
	slices.Sort(names)
	return names
}

func (n *node) wantLoads(names ...string) {
	n.t.Helper()
	if got := n.loads(); !slices.Equal(got, names) {
		n.t.Errorf("loaded %q, want %q", got, names)
	}
}

// An unsigned image isn't loaded until it is signed. Another signed image is loaded, and
// its report contains the signer.
func TestPolicyEnforced(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	signed, unsigned := image(t, "signed"), image(t, "unsigned")
	r.Push("enforced/signed:v1", signed)
	r.Push("enforced/unsigned:v1", unsigned)
	r.Push("other:v1", image(t, "other"))
	n.sign(digestOf(t, signed), "team", "others")
	n.create(n.signedBy("enforced", r.Address+"/enforced/*"))

	n.create(n.ofImage("enforced-signed", r.Address+"/enforced/signed:v1", ""))
	n.create(n.ofImage("enforced-other", r.Address+"/other:v1", ""))
	n.verdict("enforced-signed", "enforced", v1alpha1.VerdictAllowed)
	n.verdict("enforced-other", "enforced", v1alpha1.VerdictAllowed)
	for _, o := range n.reportsOn("enforced-signed") {
		b := o.GetStatus().Bytecode
		if !slices.Equal(b.Signers, []string{"SHA256:team"}) || b.Digest != digestOf(t, signed) {
			t.Errorf("status.bytecode %+v", b)
		}
	}

	n.create(n.ofImage("enforced-unsigned", r.Address+"/enforced/unsigned:v1", ""))
	n.says("enforced-unsigned", v1alpha1.BpfProgCondPolicyDenied, "policy enforced: rule signed: ")
	n.event("enforced-unsigned", "PolicyDenied", "has no signature of team")
	n.verdict("enforced-unsigned", "enforced", v1alpha1.VerdictDenied)
	n.wantLoads("enforced-other", "enforced-signed")
	n.sign(digestOf(t, unsigned), "team")
	n.verdict("enforced-unsigned", "enforced", v1alpha1.VerdictAllowed)
	n.holds("TracepointProgram/enforced-other f a/enforced-other", "TracepointProgram/enforced-signed f a/enforced-signed",
		"TracepointProgram/enforced-unsigned f a/enforced-unsigned")

	// Findings about a digest are cached.
	before := n.reads()
	n.create(n.ofImage("enforced-again", r.Address+"/enforced/signed:v1", v1alpha1.PullIfNotPresent))
	n.verdict("enforced-again", "enforced", v1alpha1.VerdictAllowed)
	if got := n.reads(); got != before {
		t.Errorf("read %d times more", got-before)
	}
}

// Mode warn loads, and reports what enforce would deny.
func TestPolicyWarns(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	r.Push("warned:v1", image(t, "warned"))
	p := n.signedBy("warns", r.Address+"/**")
	p.Spec.Mode = v1alpha1.PolicyWarn
	n.create(p)
	n.create(n.ofImage("warned", r.Address+"/warned:v1", ""))
	n.says("warned", v1alpha1.BpfProgCondLoaded, "mode enforce would deny it: policy warns: rule signed: ")
	n.event("warned", "PolicyWarned", "has no signature of team")
	n.verdict("warned", "warns", v1alpha1.VerdictWarned)
	n.wantLoads("warned")
}

// A program that a new policy denies stays loaded, and is reported. With onViolation
// unload, it is unloaded. Without the policy, it is loaded again.
func TestPolicyThatChanges(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	r.Push("changes:v1", image(t, "changes"))
	o := n.ofImage("changes", r.Address+"/changes:v1", "")
	n.create(o)
	n.holds("TracepointProgram/changes f a/changes")
	id := n.daemon.Programs()[0].ID

	p := n.signedBy("changes", r.Address+"/**")
	n.create(p)
	n.says("changes", v1alpha1.BpfProgCondPolicyViolated, "has no signature of team")
	n.event("changes", "PolicyViolated", "has no signature of team")
	if got := n.daemon.Programs(); len(got) != 1 || got[0].ID != id || len(got[0].Links) != 1 {
		t.Errorf("the daemon holds %+v", got)
	}
	// It keeps its attach points, and gets no new ones.
	n.change(o, func() { o.Spec.Names = append(o.Spec.Names, "a/more") })
	n.says("changes", v1alpha1.BpfProgCondNotLoaded, "attach to a/more: policy changes: ")
	n.change(o, func() { o.Spec.Names = o.Spec.Names[:1] })
	n.says("changes", v1alpha1.BpfProgCondPolicyViolated, "has no signature of team")

	n.change(p, func() { p.Spec.OnViolation = v1alpha1.OnViolationUnload })
	n.says("changes", v1alpha1.BpfProgCondPolicyDenied, "has no signature of team")
	n.eventually("it to be unloaded", func() error {
		if got := n.loads(); len(got) > 0 {
			return fmt.Errorf("loaded %q", got)
		}
		return nil
	})
	n.change(p, func() { p.Spec.Mode = v1alpha1.PolicyWarn })
	n.verdict("changes", "changes", v1alpha1.VerdictWarned)
	n.delete(p)
	n.holds("TracepointProgram/changes f a/changes")
}

// If policies deny a new version, the running program stays, unless a policy requires
// unloading it.
func TestPolicyOfAPredecessor(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	old, next := image(t, "old"), image(t, "next")
	r.Push("predecessor:v1", old)
	r.Push("predecessor:v2", next)
	n.sign(digestOf(t, old), "team")
	p := n.signedBy("predecessor", r.Address+"/**")
	p.Spec.OnViolation = v1alpha1.OnViolationUnload
	n.create(p)
	o := n.ofImage("predecessor", r.Address+"/predecessor:v1", "")
	n.create(o)
	n.holds("TracepointProgram/predecessor f a/predecessor")
	id := n.daemon.Programs()[0].ID
	n.change(o, func() { o.Spec.ByteCode.Image.Url = r.Address + "/predecessor:v2" })
	n.says("predecessor", v1alpha1.BpfProgCondPolicyDenied, fmt.Sprintf("(the previously loaded program %d keeps running)", id))
	n.wantLoads("predecessor")

	n.change(p, func() { p.Spec.Rules[0].SignedBy, p.Spec.Rules[0].Deny = nil, true })
	n.eventually("the predecessor to be unloaded", func() error {
		if got := n.loads(); len(got) > 0 {
			return fmt.Errorf("loaded %q", got)
		}
		return nil
	})
}

// If verification fails, nothing is loaded, and running programs aren't affected.
func TestPolicyThatCannotBeEvaluated(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	running, waiting := image(t, "running"), image(t, "waiting")
	r.Push("unknown/running:v1", running)
	r.Push("unknown/waiting:v1", waiting)
	n.sign(digestOf(t, running), "team")
	n.sign(digestOf(t, waiting), "team")
	n.create(n.ofImage("unknown-running", r.Address+"/unknown/running:v1", ""))
	n.holds("TracepointProgram/unknown-running f a/unknown-running")
	id := n.daemon.Programs()[0].ID

	n.mu.Lock()
	n.unread = "the registry is on fire"
	n.mu.Unlock()
	p := n.signedBy("unknown", r.Address+"/**")
	p.Spec.OnViolation = v1alpha1.OnViolationUnload
	n.create(p)
	n.says("unknown-running", v1alpha1.BpfProgCondLoaded, "policies can't be evaluated: policy unknown: ")
	n.verdict("unknown-running", "unknown", v1alpha1.VerdictUnknown)
	n.create(n.ofImage("unknown-waiting", r.Address+"/unknown/waiting:v1", ""))
	n.says("unknown-waiting", v1alpha1.BpfProgCondBytecodeSelectorError, "the registry is on fire")
	// The node has its object, but not the signatures.
	n.create(n.ofImage("unknown-again", r.Address+"/unknown/running:v1", ""))
	n.says("unknown-again", v1alpha1.BpfProgCondPolicyDenied, "the registry is on fire")
	n.verdict("unknown-again", "unknown", v1alpha1.VerdictUnknown)
	if got := n.daemon.Programs(); len(got) != 1 || got[0].ID != id {
		t.Errorf("the daemon holds %+v", got)
	}

	n.mu.Lock()
	n.unread = ""
	n.mu.Unlock()
	n.verdict("unknown-waiting", "unknown", v1alpha1.VerdictAllowed)
	n.verdict("unknown-again", "unknown", v1alpha1.VerdictAllowed)

	// A registry that doesn't respond.
	r.Stop()
	n.create(n.ofImage("unknown-unreachable", r.Address+"/unknown/unreachable:v1", ""))
	n.says("unknown-unreachable", v1alpha1.BpfProgCondBytecodeSelectorError, "connection refused")
	n.create(n.ofImage("unknown-never", r.Address+"/unknown/never:v1", v1alpha1.PullNever))
	n.says("unknown-never", v1alpha1.BpfProgCondBytecodeSelectorError, "isn't on this node, and the pull policy is Never")
	n.wantLoads("unknown-again", "unknown-running", "unknown-waiting")
}

// The daemon gets the verified digest, even if the tag has moved.
func TestPolicyAndATagThatMoves(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	signed, evil := image(t, "signed"), image(t, "evil")
	r.Push("moves:v1", signed)
	n.sign(digestOf(t, signed), "team")
	n.daemon.SetFault(func(call string, _ proto.Message, done bool) error {
		if call == "Load" && !done {
			r.Push("moves:v1", evil)
		}
		return nil
	})
	n.create(n.signedBy("moves", r.Address+"/**"))
	url := r.Address + "/moves:v1"
	n.create(n.ofImage("moves", url, v1alpha1.PullAlways))
	n.loadedFrom("moves", r.Address+"/moves@"+digestOf(t, signed), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, signed)})
	n.create(n.ofImage("moved", url, v1alpha1.PullAlways))
	n.says("moved", v1alpha1.BpfProgCondPolicyDenied, "has no signature of team")
	// The node's image is what was last read.
	n.create(n.ofImage("follows", url, v1alpha1.PullIfNotPresent))
	n.says("follows", v1alpha1.BpfProgCondPolicyDenied, "has no signature of team")
	n.loadedFrom("moves", r.Address+"/moves@"+digestOf(t, signed), v1alpha1.BpfProgramBytecode{Image: url, Digest: digestOf(t, signed)})
}

// A policy whose key is missing denies what it matches until the key exists.
func TestWrongPolicyDenies(t *testing.T) {
	n := start(t)
	r := registry.Serve(t, nil, authority)
	signed := image(t, "wrong")
	r.Push("wrong:v1", signed)
	n.sign(digestOf(t, signed), "team")
	err := n.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: policyNamespace}})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	p := n.signedBy("wrong", r.Address+"/**")
	p.Spec.Authorities[0].Key = &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "wrong"}}
	n.create(p)
	n.create(n.ofImage("wrong", r.Address+"/wrong:v1", ""))
	n.says("wrong", v1alpha1.BpfProgCondPolicyDenied, `the policy is invalid, and denies everything that it matches: authority "team": read Secret wrong: `)
	n.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: policyNamespace, Name: "wrong"}, Data: map[string][]byte{"cosign.pub": []byte(publicKey(t))},
	})
	n.holds("TracepointProgram/wrong f a/wrong")
}

// If policies can't be read, nothing new is loaded, and running programs aren't
// affected. If their kind doesn't exist, there are no policies.
func TestPoliciesThatCannotBeRead(t *testing.T) {
	n := start(t)
	n.create(n.tracepoint("unread-running", "f", "a/x"))
	n.holds("TracepointProgram/unread-running f a/x")
	n.crash()
	n.mu.Lock()
	n.unreadable = "bytecodepolicies"
	n.mu.Unlock()
	n.startAgent()
	n.create(n.tracepoint("unread-new", "f", "a/y"))
	n.says("unread-new", v1alpha1.BpfProgCondPolicyDenied, "nothing is loaded or attached until the policies are known: ")
	n.wantLoads("unread-running")
	n.mu.Lock()
	n.unreadable = ""
	n.mu.Unlock()
	n.holds("TracepointProgram/unread-running f a/x", "TracepointProgram/unread-new f a/y")

	n.crash()
	n.mu.Lock()
	n.undefined = "bytecodepolicies"
	n.mu.Unlock()
	n.startAgent()
	n.create(n.tracepoint("undefined-new", "f", "a/z"))
	n.holds("TracepointProgram/unread-running f a/x", "TracepointProgram/unread-new f a/y", "TracepointProgram/undefined-new f a/z")
}

// Interfaces that a policy denies get no link, and others do. Files are denied by name.
func TestPolicyLimits(t *testing.T) {
	n := start(t)
	n.mu.Lock()
	n.interfaces = map[string]program.Interface{"eth0": {Index: 2}, "wg0": {Index: 3}}
	n.mu.Unlock()
	p := n.signedBy("limits", "file:/**")
	p.Spec.Rules = []v1alpha1.BytecodeRule{
		{Name: "limited", Images: []string{"file:/object.o"}, Limits: &v1alpha1.BytecodeLimits{Interfaces: []string{"eth*"}}},
		{Name: "denied", Images: []string{"file:/denied/**"}, Deny: true},
	}
	n.create(p)
	o := n.tcx("limits", nil)
	o.Spec.InterfaceSelector = discovered
	n.create(o)
	n.says("limits", v1alpha1.BpfProgCondNotLoaded, `policy limits: rule limited: interface "wg0" isn't allowed`)
	if got := n.daemon.Programs(); len(got) != 1 || len(got[0].Links) != 1 || got[0].Links[0].GetTcxAttachInfo().GetIface() != "eth0" {
		t.Errorf("the daemon holds %+v", got)
	}
	named := n.tcx("limits-named", nil, "wg0")
	n.create(named)
	n.says("limits-named", v1alpha1.BpfProgCondPolicyDenied, `interface "wg0" isn't allowed`)
	denied := n.tracepoint("limits-denied", "f", "a/x")
	denied.Spec.ByteCode.Path = new("/denied/x.o")
	n.create(denied)
	n.says("limits-denied", v1alpha1.BpfProgCondPolicyDenied, "rule denied: ")
	n.wantLoads("limits")

	n.delete(named)
	// An existing link is removed if a policy requires it.
	n.change(p, func() {
		p.Spec.OnViolation = v1alpha1.OnViolationUnload
		p.Spec.Rules[0].Limits.Interfaces = []string{"wg*"}
	})
	n.eventually("the link to move", func() error {
		got := n.daemon.Programs()
		if len(got) != 1 || len(got[0].Links) != 1 || got[0].Links[0].GetTcxAttachInfo().GetIface() != "wg0" {
			return fmt.Errorf("the daemon holds %+v", got)
		}
		return nil
	})
}
