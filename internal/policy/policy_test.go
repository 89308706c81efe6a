// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const acmeImage = "quay.io/acme/xdp:v1"

func policyOf(name string, spec v1alpha1.BytecodePolicySpec) *v1alpha1.BytecodePolicy {
	return &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 7}, Spec: spec}
}

// compiled compiles a policy whose authorities all have a key.
func compiled(t *testing.T, name string, spec v1alpha1.BytecodePolicySpec) *Policy {
	t.Helper()
	material := map[string]Material{}
	for _, a := range spec.Authorities {
		material[a.Name] = Material{Keys: []string{"key of " + a.Name}}
	}
	p := Compile(policyOf(name, spec), material)
	if len(p.Problems()) > 0 {
		t.Fatalf("policy %s: %q", name, p.Problems())
	}
	return p
}

func authorities(names ...string) []v1alpha1.BytecodeAuthority {
	out := make([]v1alpha1.BytecodeAuthority, 0, len(names))
	for _, name := range names {
		out = append(out, v1alpha1.BytecodeAuthority{Name: name, Key: &v1alpha1.AuthorityKey{PEM: "a key"}})
	}
	return out
}

// all returns a rule for all images and files.
func all(r v1alpha1.BytecodeRule) []v1alpha1.BytecodeRule {
	r.Name, r.Images = "all", []string{"**"}
	return []v1alpha1.BytecodeRule{r}
}

func xdp(url string) Subject {
	o := &v1alpha1.XdpProgram{}
	o.Spec.BpfFunctionName = "pass"
	o.Spec.ByteCode = byURL(url)
	o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0", "veth1"}
	o.Spec.Priority = 50
	return SubjectOf("XdpProgram", o)
}

func inFile(path string) Subject {
	s := xdp("x")
	s.Image, s.ImageError = ParseImage(v1alpha1.BytecodeSelector{Path: &path})
	return s
}

func TestMatches(t *testing.T) {
	cluster := Subject{Kind: "XdpProgram"}
	tenant := Subject{Kind: "TcNsProgram", Namespace: "team-a"}
	for name, test := range map[string]struct {
		match   v1alpha1.BytecodePolicyMatch
		subject Subject
		want    bool
	}{
		"empty":                        {v1alpha1.BytecodePolicyMatch{}, cluster, true},
		"kind":                         {v1alpha1.BytecodePolicyMatch{Kinds: []string{"TcProgram", "XdpProgram"}}, cluster, true},
		"another kind":                 {v1alpha1.BytecodePolicyMatch{Kinds: []string{"TcProgram"}}, cluster, false},
		"namespace":                    {v1alpha1.BytecodePolicyMatch{Namespaces: []string{"team-*"}}, tenant, true},
		"another namespace":            {v1alpha1.BytecodePolicyMatch{Namespaces: []string{"team"}}, tenant, false},
		"no namespace":                 {v1alpha1.BytecodePolicyMatch{Namespaces: []string{"*"}}, cluster, false},
		"namespace of another kind":    {v1alpha1.BytecodePolicyMatch{Namespaces: []string{"*"}, Kinds: []string{"XdpNsProgram"}}, tenant, false},
		"node":                         {v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone")}, cluster.On(map[string]string{"zone": "a"}), true},
		"another node":                 {v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone")}, cluster.On(map[string]string{"zone": "b"}), false},
		"a node without labels":        {v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone")}, cluster.On(nil), false},
		"no particular node":           {v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone")}, cluster, true},
		"empty lists match all":        {v1alpha1.BytecodePolicyMatch{Kinds: []string{}, Namespaces: []string{}}, tenant, true},
		"a wrong selector matches all": {v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone!")}, cluster.On(nil), true},
		"and the rest holds":           {v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone!"), Kinds: []string{"TcProgram"}}, cluster.On(nil), false},
	} {
		p := Compile(policyOf("p", v1alpha1.BytecodePolicySpec{Match: test.match}), nil)
		if got := p.Matches(test.subject); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func inZoneA(label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: "a"}}
}

// Violations that are visible in the object itself, with the messages for users.
func TestViolations(t *testing.T) {
	limited := func(l v1alpha1.BytecodeLimits) []v1alpha1.BytecodeRule { return all(v1alpha1.BytecodeRule{Limits: &l}) }
	probe := func(offset uint64) Subject {
		o := &v1alpha1.KprobeProgram{}
		o.Spec.BpfFunctionName, o.Spec.FunctionName, o.Spec.Offset, o.Spec.ByteCode = "count", "tcp_connect", offset, byURL(acmeImage)
		return SubjectOf("KprobeProgram", o)
	}
	target := func(name string) Subject {
		o := &v1alpha1.UprobeProgram{}
		o.Spec.BpfFunctionName, o.Spec.Target, o.Spec.ByteCode = "count", name, byURL(acmeImage)
		return SubjectOf("UprobeProgram", o)
	}
	primary := xdp(acmeImage)
	primary.Programs[0].Hooks = nil
	none := xdp(acmeImage)
	none.Image, none.ImageError = ParseImage(v1alpha1.BytecodeSelector{})
	for name, test := range map[string]struct {
		rules     []v1alpha1.BytecodeRule
		unmatched v1alpha1.PolicyUnmatchedImages
		subject   Subject
		want      string // "" if it is allowed
	}{
		"no rule":                      {nil, "", xdp(acmeImage), ""},
		"no rule, and all denied":      {nil, "deny", xdp(acmeImage), `no rule matches image quay.io/acme/xdp:v1, and unmatchedImages is deny`},
		"a rule of nothing admits":     {all(v1alpha1.BytecodeRule{}), "deny", xdp(acmeImage), ""},
		"denied":                       {all(v1alpha1.BytecodeRule{Deny: true}), "", xdp("busybox"), `rule all: image docker.io/library/busybox:latest is denied`},
		"a tag":                        {all(v1alpha1.BytecodeRule{DigestOnly: true}), "", xdp(acmeImage), `rule all: image quay.io/acme/xdp:v1 isn't referenced by digest`},
		"a digest":                     {all(v1alpha1.BytecodeRule{DigestOnly: true}), "", xdp(acmeImage + "@" + digest), ""},
		"a file has no digest":         {all(v1alpha1.BytecodeRule{DigestOnly: true}), "", inFile("/x.o"), `rule all: image file:/x.o isn't referenced by digest`},
		"a file is denied":             {all(v1alpha1.BytecodeRule{Deny: true}), "", inFile("/opt/../x.o"), `rule all: image file:/x.o is denied`},
		"a file has no signature":      {all(v1alpha1.BytecodeRule{SignedBy: []string{"acme"}}), "", inFile("/x.o"), `rule all: file:/x.o is a file, and files aren't signed`},
		"nor attestations":             {all(v1alpha1.BytecodeRule{Attestations: []v1alpha1.BytecodeAttestation{{PredicateType: "p", SignedBy: []string{"acme"}}}}), "", inFile("/x.o"), `rule all: file:/x.o is a file, and files aren't signed`},
		"a file isn't read":            {limited(v1alpha1.BytecodeLimits{MapTypes: &v1alpha1.NameLimits{Deny: []string{"none"}}}), "", inFile("/x.o"), `rule all: helpers and map types of file:/x.o can't be checked, because it is a file`},
		"no image can't be told":       {all(v1alpha1.BytecodeRule{}), "", none, `bytecode has neither an image nor a path`},
		"nor matters without a rule":   {nil, "", none, ""},
		"an odd name can't be told":    {all(v1alpha1.BytecodeRule{}), "", xdp("quay.io/ACME/x"), `bytecode.image.url "quay.io/ACME/x": invalid reference format: repository name (ACME/x) must be lowercase`},
		"type":                         {limited(v1alpha1.BytecodeLimits{ProgramTypes: []v1alpha1.EBPFProgType{"TC", "XDP"}}), "", xdp(acmeImage), ""},
		"another type":                 {limited(v1alpha1.BytecodeLimits{ProgramTypes: []v1alpha1.EBPFProgType{"TC"}}), "", xdp(acmeImage), `rule all: program pass: programs of type XDP aren't allowed`},
		"interface":                    {limited(v1alpha1.BytecodeLimits{Interfaces: []string{"veth*", "eth0"}}), "", xdp(acmeImage), ""},
		"another interface":            {limited(v1alpha1.BytecodeLimits{Interfaces: []string{"eth*"}}), "", xdp(acmeImage), `rule all: program pass: interface "veth1" isn't allowed`},
		"an interface yet to be found": {limited(v1alpha1.BytecodeLimits{Interfaces: []string{"eth*"}}), "", primary, ""},
		"interfaces of a kprobe":       {limited(v1alpha1.BytecodeLimits{Interfaces: []string{"eth*"}}), "", probe(0), ""},
		"function":                     {limited(v1alpha1.BytecodeLimits{Functions: []string{"tcp_*"}}), "", probe(0), ""},
		"another function":             {limited(v1alpha1.BytecodeLimits{Functions: []string{"udp_*"}}), "", probe(0), `rule all: program count: function "tcp_connect" isn't allowed`},
		"an offset":                    {limited(v1alpha1.BytecodeLimits{Functions: []string{"tcp_*"}}), "", probe(4), `rule all: program count: an offset from function "tcp_connect" isn't allowed, because it can lead into another function`},
		"an offset of another":         {limited(v1alpha1.BytecodeLimits{Functions: []string{"udp_*"}}), "", probe(4), `rule all: program count: function "tcp_connect" isn't allowed; rule all: program count: an offset from function "tcp_connect" isn't allowed, because it can lead into another function`},
		"an offset without limits":     {all(v1alpha1.BytecodeRule{}), "", probe(4), ""},
		"target":                       {limited(v1alpha1.BytecodeLimits{Targets: []string{"/opt/*", "libc"}}), "", target("/opt/acme/bin/server"), ""},
		"library":                      {limited(v1alpha1.BytecodeLimits{Targets: []string{"/opt/*", "libc"}}), "", target("libc"), ""},
		"another target":               {limited(v1alpha1.BytecodeLimits{Targets: []string{"/opt/*"}}), "", target("/usr/bin/bash"), `rule all: program count: target "/usr/bin/bash" isn't allowed`},
		"a way out of a directory":     {limited(v1alpha1.BytecodeLimits{Targets: []string{"/opt/*"}}), "", target("/opt/../usr/bin/bash"), `rule all: program count: target "/opt/../usr/bin/bash" isn't allowed, because its path has empty parts, . or ..`},
		"priority":                     {limited(v1alpha1.BytecodeLimits{Priority: &v1alpha1.PriorityRange{Min: new(int32(50)), Max: new(int32(50))}}), "", xdp(acmeImage), ""},
		"too low a priority":           {limited(v1alpha1.BytecodeLimits{Priority: &v1alpha1.PriorityRange{Min: new(int32(51))}}), "", xdp(acmeImage), `rule all: program pass: priority 50 is lower than 51`},
		"too high a priority":          {limited(v1alpha1.BytecodeLimits{Priority: &v1alpha1.PriorityRange{Max: new(int32(0))}}), "", xdp(acmeImage), `rule all: program pass: priority 50 is higher than 0`},
		"priority of a kprobe":         {limited(v1alpha1.BytecodeLimits{Priority: &v1alpha1.PriorityRange{Max: new(int32(0))}}), "", probe(0), ""},
		"each rule that matches counts": {[]v1alpha1.BytecodeRule{
			{Name: "acme", Images: []string{"evil.com/*", "quay.io/acme/*"}},
			{Name: "digests", Images: []string{"**"}, DigestOnly: true},
			{Name: "evil", Images: []string{"evil.com/**"}, Deny: true},
		}, "deny", xdp(acmeImage), `rule digests: image quay.io/acme/xdp:v1 isn't referenced by digest`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.BytecodePolicySpec{Rules: test.rules, UnmatchedImages: test.unmatched, Authorities: authorities("acme")}
			e := Evaluate([]*Policy{compiled(t, "p", spec)}, test.subject)
			want := v1alpha1.BpfProgramPolicy{Name: "p", Generation: 7, Verdict: v1alpha1.VerdictAllowed, Message: test.want}
			if test.want != "" {
				want.Verdict = v1alpha1.VerdictDenied
			}
			got := e.Decide(nil)
			want.Problem = got[0].Problem
			if !slices.Equal(got, []v1alpha1.BpfProgramPolicy{want}) || (want.Problem == "") != (test.want == "") {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if e.Denied() != (test.want != "") {
				t.Errorf("denied: %t", e.Denied())
			}

			spec.Mode = v1alpha1.PolicyWarn
			if test.want != "" {
				want.Verdict = v1alpha1.VerdictWarned
			}
			e = Evaluate([]*Policy{compiled(t, "p", spec)}, test.subject)
			if got := e.Decide(nil); !slices.Equal(got, []v1alpha1.BpfProgramPolicy{want}) || e.Denied() {
				t.Errorf("in mode warn: %+v, denied: %t", got, e.Denied())
			}
		})
	}
}

// textOf returns the reason of a verdict, which only Allowed has none of.
func textOf(why error) string {
	if why == nil {
		return ""
	}
	return why.Error()
}

func TestVerification(t *testing.T) {
	signed := reader.Finding{Authority: "p/acme", Signer: "SHA256:abc"}
	unsigned := reader.Finding{Authority: "p/acme", Reason: "no signature is there"}
	other := reader.Finding{Authority: "p/other", Signer: "SHA256:def"}
	notOther := reader.Finding{Authority: "p/other"}
	bySLSA := func(f reader.Finding) reader.Finding { f.PredicateType = "slsa"; return f }
	attested := v1alpha1.BytecodeRule{Attestations: []v1alpha1.BytecodeAttestation{{PredicateType: "slsa", SignedBy: []string{"acme", "other"}}}}
	helpers := v1alpha1.BytecodeRule{Limits: &v1alpha1.BytecodeLimits{
		Helpers: &v1alpha1.NameLimits{Allow: []string{"bpf_*"}, Deny: []string{"bpf_probe_write_*"}}, MapTypes: &v1alpha1.NameLimits{Allow: []string{"*hash", "array"}},
	}}
	uses := func(o reader.Object) *reader.Answer { return &reader.Answer{Object: &o} }
	both := v1alpha1.BytecodeRule{SignedBy: []string{"acme", "other"}}
	for name, test := range map[string]struct {
		rule   v1alpha1.BytecodeRule
		answer *reader.Answer
		want   v1alpha1.PolicyVerdict
		says   string
	}{
		"nothing is asked":       {v1alpha1.BytecodeRule{}, nil, "Allowed", ""},
		"not asked yet":          {both, nil, "Unknown", "rule all: image quay.io/acme/xdp:v1 hasn't been verified yet"},
		"no registry":            {both, &reader.Answer{Error: "quay.io: connection refused"}, "Unknown", "rule all: image quay.io/acme/xdp:v1 can't be verified: quay.io: connection refused"},
		"signed by one":          {both, &reader.Answer{Signatures: []reader.Finding{unsigned, other}}, "Allowed", ""},
		"signed by the other":    {both, &reader.Answer{Signatures: []reader.Finding{signed, notOther}}, "Allowed", ""},
		"signed by none":         {both, &reader.Answer{Signatures: []reader.Finding{unsigned, notOther}}, "Denied", "rule all: image quay.io/acme/xdp:v1 has no signature of acme or other (acme: no signature is there; other: no signature)"},
		"an answer of less":      {both, &reader.Answer{Signatures: []reader.Finding{unsigned}}, "Unknown", "rule all: image quay.io/acme/xdp:v1: there is no result for authority other"},
		"less, and enough":       {both, &reader.Answer{Signatures: []reader.Finding{other}}, "Allowed", ""},
		"another policy's":       {both, &reader.Answer{Signatures: []reader.Finding{{Authority: "q/acme", Signer: "x"}, unsigned, notOther}}, "Denied", "has no signature of acme or other"},
		"attested":               {attested, &reader.Answer{Attestations: []reader.Finding{bySLSA(unsigned), bySLSA(other)}}, "Allowed", ""},
		"not attested":           {attested, &reader.Answer{Attestations: []reader.Finding{bySLSA(unsigned), bySLSA(notOther)}}, "Denied", "has no attestation slsa of acme or other (acme: no signature is there; other: no signature)"},
		"another predicate":      {attested, &reader.Answer{Attestations: []reader.Finding{signed, other, bySLSA(unsigned), bySLSA(notOther)}}, "Denied", "has no attestation slsa"},
		"a signature is no such": {attested, &reader.Answer{Signatures: []reader.Finding{bySLSA(signed), bySLSA(other)}}, "Unknown", "there is no result for authority"},
		"helpers":                {helpers, uses(reader.Object{Helpers: []string{"bpf_map_lookup_elem"}, MapTypes: []string{"array", "percpu_hash"}}), "Allowed", ""},
		"no helpers, no maps":    {helpers, uses(reader.Object{}), "Allowed", ""},
		"a denied helper":        {helpers, uses(reader.Object{Helpers: []string{"bpf_map_lookup_elem", "bpf_probe_write_user"}}), "Denied", "rule all: the bytecode calls helpers that aren't allowed: bpf_probe_write_user"},
		"a helper without name":  {helpers, uses(reader.Object{Helpers: []string{"unknown#999"}}), "Denied", "rule all: the bytecode calls helpers that aren't allowed: unknown#999"},
		"a map":                  {helpers, uses(reader.Object{MapTypes: []string{"ringbuf", "hash"}}), "Denied", "rule all: the bytecode has maps of types that aren't allowed: ringbuf"},
		"no bytecode":            {helpers, uses(reader.Object{Unknown: "no ELF"}), "Denied", "rule all: the helpers and map types of the bytecode can't be determined: no ELF"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.BytecodePolicySpec{Rules: all(test.rule), Authorities: authorities("acme", "other")}
			got := Evaluate([]*Policy{compiled(t, "p", spec)}, xdp(acmeImage)).Decide(test.answer)
			if len(got) != 1 || got[0].Verdict != test.want || !strings.Contains(got[0].Message, test.says) || (test.says == "") != (got[0].Message == "") {
				t.Errorf("got %+v, want %s: %s", got, test.want, test.says)
			}
			spec.Mode = v1alpha1.PolicyWarn
			warned := Evaluate([]*Policy{compiled(t, "p", spec)}, xdp(acmeImage)).Decide(test.answer)[0]
			if want := test.want != v1alpha1.VerdictAllowed; (warned.Verdict == v1alpha1.VerdictWarned) != want || !Loads(warned.Verdict) || warned.Message != got[0].Message {
				t.Errorf("in mode warn: %+v", warned)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	signed := v1alpha1.BytecodePolicySpec{Authorities: authorities("acme", "unused"), Rules: all(v1alpha1.BytecodeRule{SignedBy: []string{"acme"}})}
	attested := v1alpha1.BytecodePolicySpec{Authorities: authorities("acme", "ci"), Rules: []v1alpha1.BytecodeRule{
		{Name: "a", Images: []string{"**"}, Attestations: []v1alpha1.BytecodeAttestation{{PredicateType: "slsa", SignedBy: []string{"ci"}}}},
		{Name: "b", Images: []string{"quay.io/**"}, Attestations: []v1alpha1.BytecodeAttestation{{PredicateType: "slsa", SignedBy: []string{"acme", "ci"}}, {PredicateType: "sbom", SignedBy: []string{"ci"}}}},
		{Name: "c", Images: []string{"evil.com/**"}, Limits: &v1alpha1.BytecodeLimits{Helpers: &v1alpha1.NameLimits{Deny: []string{"x"}}}},
	}}
	policies := []*Policy{compiled(t, "z", signed), compiled(t, "b", attested)}
	request := Evaluate(policies, xdp(acmeImage)).Request()
	if request == nil {
		t.Fatal("nothing is asked")
	}
	want := `{[{b/acme [key of acme] [] } {b/ci [key of ci] [] } {z/acme [key of acme] [] }] [{sbom [b/ci]} {slsa [b/acme b/ci]}] false}`
	if got := fmt.Sprint(struct {
		A []reader.Authority
		B []reader.Attestation
		C bool
	}{request.Authorities, request.Attestations, request.Object}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	slices.Reverse(policies)
	if again := Evaluate(policies, xdp(acmeImage)).Request(); fmt.Sprint(*again) != fmt.Sprint(*request) {
		t.Errorf("%+v, in another order %+v", request, again)
	}
	if request := Evaluate(policies, xdp("evil.com/x")).Request(); request == nil || !request.Object {
		t.Errorf("the bytecode isn't asked for: %+v", request)
	}
	if request := Evaluate(policies, inFile("/x.o")).Request(); request != nil {
		t.Errorf("something is asked about a file: %+v", request)
	}
	if request := Evaluate([]*Policy{compiled(t, "p", v1alpha1.BytecodePolicySpec{Rules: all(v1alpha1.BytecodeRule{DigestOnly: true})})}, xdp(acmeImage)).Request(); request != nil {
		t.Errorf("something is asked about what the object itself shows: %+v", request)
	}
}

func TestHook(t *testing.T) {
	interfaces := func(patterns ...string) []v1alpha1.BytecodeRule {
		return all(v1alpha1.BytecodeRule{Limits: &v1alpha1.BytecodeLimits{Interfaces: patterns}})
	}
	e := Evaluate([]*Policy{
		compiled(t, "a", v1alpha1.BytecodePolicySpec{Rules: interfaces("eth*")}),
		compiled(t, "b", v1alpha1.BytecodePolicySpec{Rules: interfaces("*0"), Mode: v1alpha1.PolicyWarn}),
		compiled(t, "c", v1alpha1.BytecodePolicySpec{Rules: interfaces("none"), Match: v1alpha1.BytecodePolicyMatch{Kinds: []string{"TcProgram"}}}),
	}, xdp(acmeImage))
	for name, want := range map[string]string{
		"eth0": "", "eth1": `Warned policy b: rule all: interface "eth1" isn't allowed`,
		"lo": `Denied policy a: rule all: interface "lo" isn't allowed`, "br0": `Denied policy a: rule all: interface "br0" isn't allowed`,
	} {
		verdict, why := Sum(e.Hook(Hook{Type: Interface, Name: name}))
		if got := strings.TrimPrefix(string(verdict)+" "+textOf(why), "Allowed "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := e.Hook(Hook{Type: Target, Name: "lo"}); len(got) > 0 {
		t.Errorf("a target is compared with interfaces: %v", got)
	}
}

func TestSeveralPolicies(t *testing.T) {
	deny := all(v1alpha1.BytecodeRule{Deny: true})
	signed := all(v1alpha1.BytecodeRule{SignedBy: []string{"acme"}})
	policies := []*Policy{
		compiled(t, "d-allows", v1alpha1.BytecodePolicySpec{}),
		compiled(t, "c-warns", v1alpha1.BytecodePolicySpec{Rules: deny, Mode: v1alpha1.PolicyWarn}),
		compiled(t, "b-asks", v1alpha1.BytecodePolicySpec{Rules: signed, Authorities: authorities("acme")}),
		compiled(t, "a-denies", v1alpha1.BytecodePolicySpec{Rules: deny}),
		compiled(t, "another-denies", v1alpha1.BytecodePolicySpec{Rules: deny}),
		compiled(t, "elsewhere", v1alpha1.BytecodePolicySpec{Rules: deny, Match: v1alpha1.BytecodePolicyMatch{Namespaces: []string{"*"}}}),
	}
	signature := &reader.Answer{Signatures: []reader.Finding{{Authority: "b-asks/acme", Signer: "x"}}}
	for _, test := range []struct {
		policies []*Policy
		answer   *reader.Answer
		want     string
		loads    bool
	}{
		{nil, nil, "Allowed ", true},
		{policies[5:], nil, "Allowed ", true},
		{policies[:1], nil, "Allowed ", true},
		{policies[:2], nil, "Warned policy c-warns: rule all: image quay.io/acme/xdp:v1 is denied", true},
		{policies[:3], nil, "Unknown policy b-asks: rule all: image quay.io/acme/xdp:v1 hasn't been verified yet", false},
		{policies[:3], signature, "Warned policy c-warns: rule all: image quay.io/acme/xdp:v1 is denied", true},
		{policies, signature, "Denied policy a-denies: rule all: image quay.io/acme/xdp:v1 is denied; policy another-denies: rule all: image quay.io/acme/xdp:v1 is denied", false},
	} {
		e := Evaluate(test.policies, xdp(acmeImage))
		verdict, why := Sum(e.Decide(test.answer))
		if got := string(verdict) + " " + textOf(why); got != test.want || Loads(verdict) != test.loads {
			t.Errorf("%v: %q, loads %t, want %q", e.Policies(), got, Loads(verdict), test.want)
		}
	}
}

// What several policies say names the problem that it begins with.
func TestSumNamesTheFirst(t *testing.T) {
	said := func(named problem.Reason) v1alpha1.BpfProgramPolicy {
		return v1alpha1.BpfProgramPolicy{Name: "p", Verdict: v1alpha1.VerdictDenied, Message: "no", Problem: string(named)}
	}
	for _, first := range []problem.Reason{problem.ImageDenied, ""} {
		if _, why := Sum([]v1alpha1.BpfProgramPolicy{said(first), said(problem.NotSigned)}); problem.Of(why) != first {
			t.Errorf("%q, want %q", problem.Of(why), first)
		}
	}
}

func TestUnloads(t *testing.T) {
	deny, unload := all(v1alpha1.BytecodeRule{Deny: true}), v1alpha1.OnViolationUnload
	signed := all(v1alpha1.BytecodeRule{SignedBy: []string{"acme"}})
	wrong := Compile(policyOf("wrong", v1alpha1.BytecodePolicySpec{OnViolation: unload, Rules: signed}), nil)
	for name, test := range map[string]struct {
		policy *Policy
		want   bool
	}{
		"keep":    {compiled(t, "p", v1alpha1.BytecodePolicySpec{Rules: deny}), false},
		"unload":  {compiled(t, "p", v1alpha1.BytecodePolicySpec{Rules: deny, OnViolation: unload}), true},
		"allowed": {compiled(t, "p", v1alpha1.BytecodePolicySpec{OnViolation: unload}), false},
		"warn":    {compiled(t, "p", v1alpha1.BytecodePolicySpec{Rules: deny, OnViolation: unload, Mode: v1alpha1.PolicyWarn}), false},
		"unknown": {compiled(t, "p", v1alpha1.BytecodePolicySpec{Rules: signed, Authorities: authorities("acme"), OnViolation: unload}), false},
		"wrong":   {wrong, false},
	} {
		e := Evaluate([]*Policy{test.policy, compiled(t, "a", v1alpha1.BytecodePolicySpec{Rules: deny})}, xdp(acmeImage))
		if got := e.Unloads(e.Decide(nil)); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWrongPolicies(t *testing.T) {
	keyless := func(i v1alpha1.AuthorityIdentity) []v1alpha1.BytecodeAuthority {
		return []v1alpha1.BytecodeAuthority{{Name: "acme", Keyless: &v1alpha1.AuthorityKeyless{Identities: []v1alpha1.AuthorityIdentity{i}}}}
	}
	key := map[string]Material{"acme": {Keys: []string{"k"}}}
	root := map[string]Material{"acme": {TrustedRoot: "{}"}}
	signedBy := func(names ...string) []v1alpha1.BytecodeRule { return all(v1alpha1.BytecodeRule{SignedBy: names}) }
	for want, test := range map[string]struct {
		spec     v1alpha1.BytecodePolicySpec
		material map[string]Material
	}{
		`rule all: authority "evil" doesn't exist`:                                 {v1alpha1.BytecodePolicySpec{Rules: signedBy("acme", "evil"), Authorities: authorities("acme")}, key},
		`authority "acme": its keys and trusted root haven't been read`:            {v1alpha1.BytecodePolicySpec{Rules: signedBy("acme"), Authorities: authorities("acme")}, nil},
		`authority "acme": read Secret keys: not found`:                            {v1alpha1.BytecodePolicySpec{Authorities: authorities("acme")}, map[string]Material{"acme": {Err: errors.New("read Secret keys: not found")}}},
		`authority "acme" has neither a key nor an identity`:                       {v1alpha1.BytecodePolicySpec{Authorities: authorities("acme")}, map[string]Material{"acme": {}}},
		`authority "acme": identities[0].issuerPattern: error parsing regexp`:      {v1alpha1.BytecodePolicySpec{Authorities: keyless(v1alpha1.AuthorityIdentity{IssuerPattern: "(", Subject: "s"})}, root},
		`authority "acme": identities[0].subjectPattern: error parsing regexp: un`: {v1alpha1.BytecodePolicySpec{Authorities: keyless(v1alpha1.AuthorityIdentity{Issuer: "i", SubjectPattern: "a)|(b"})}, root},
		`authority "acme": identities[0] lacks an issuer or a subject`:             {v1alpha1.BytecodePolicySpec{Authorities: keyless(v1alpha1.AuthorityIdentity{Issuer: "i"})}, root},
		`rule all: signedBy of attestation sbom is empty`: {v1alpha1.BytecodePolicySpec{Rules: all(v1alpha1.BytecodeRule{
			Attestations: []v1alpha1.BytecodeAttestation{{PredicateType: "sbom"}},
		})}, nil},
		`rule none: images is empty`:                      {v1alpha1.BytecodePolicySpec{Rules: []v1alpha1.BytecodeRule{{Name: "none", Deny: true}}}, nil},
		`match.nodeSelector: key: Invalid value: "zone!"`: {v1alpha1.BytecodePolicySpec{Match: v1alpha1.BytecodePolicyMatch{NodeSelector: inZoneA("zone!")}}, nil},
	} {
		p := Compile(policyOf("p", test.spec), test.material)
		if len(p.Problems()) != 1 || !strings.HasPrefix(p.Problems()[0].Error(), want) {
			t.Errorf("%q, want %q", p.Problems(), want)
		}
		e := Evaluate([]*Policy{p}, xdp(acmeImage))
		verdict, why := Sum(e.Decide(nil))
		if message := textOf(why); verdict != v1alpha1.VerdictDenied || !strings.HasPrefix(message, "policy p: the policy is invalid, and denies everything that it matches: "+want) {
			t.Errorf("%s: %s", verdict, message)
		}
		if e.Request() != nil {
			t.Errorf("%s: something is asked", want)
		}
	}
}

// Patterns match whole values, even if they contain alternatives or parentheses.
func TestIdentityPatternsAreAnchored(t *testing.T) {
	p := Compile(policyOf("p", v1alpha1.BytecodePolicySpec{
		Authorities: []v1alpha1.BytecodeAuthority{{Name: "acme", Keyless: &v1alpha1.AuthorityKeyless{
			Identities: []v1alpha1.AuthorityIdentity{{Issuer: "https://i", SubjectPattern: "a|b"}},
		}}},
		Rules: all(v1alpha1.BytecodeRule{SignedBy: []string{"acme"}}),
	}), map[string]Material{"acme": {TrustedRoot: "{}"}})
	request := Evaluate([]*Policy{p}, xdp(acmeImage)).Request()
	if want := (reader.Identity{Issuer: "https://i", SubjectPattern: `\A(?:a|b)\z`}); request == nil || request.Authorities[0].Identities[0] != want {
		t.Errorf("%+v", request)
	}
}

// The length of a message is limited, no matter how many violations there are.
func TestMessagesAreBounded(t *testing.T) {
	s := xdp(acmeImage)
	for i := range 300 {
		s.Programs[0].Hooks = append(s.Programs[0].Hooks, Hook{Type: Interface, Name: fmt.Sprintf("veth%d", i)})
	}
	spec := v1alpha1.BytecodePolicySpec{Rules: all(v1alpha1.BytecodeRule{Limits: &v1alpha1.BytecodeLimits{Interfaces: []string{"eth0"}}})}
	message := Evaluate([]*Policy{compiled(t, "p", spec)}, s).Decide(nil)[0].Message
	if len(message) > 1000 || !strings.HasSuffix(message, "; and 293 more") {
		t.Error(message)
	}
}

// Every kind has its type, and each type of member its hooks.
func TestSubjectsOfAllKinds(t *testing.T) {
	for _, kind := range v1alpha1.UserKinds {
		o := kind.New()
		if got := SubjectOf(kind.Name, o); !strings.HasSuffix(kind.Name, "Application") && len(got.Programs) != 1 {
			t.Errorf("%s: %+v", kind.Name, got)
		}
	}
	named := func(name string) v1alpha1.BpfProgramCommon { return v1alpha1.BpfProgramCommon{BpfFunctionName: name} }
	interfaces := v1alpha1.InterfaceSelector{Interfaces: &[]string{"eth0"}}
	app := &v1alpha1.BpfApplication{}
	app.Spec.Programs = []v1alpha1.BpfApplicationProgram{
		{Type: "XDP", XDP: &v1alpha1.XdpProgramInfo{BpfProgramCommon: named("a"), InterfaceSelector: interfaces, Priority: 1}},
		{Type: "TC", TC: &v1alpha1.TcProgramInfo{BpfProgramCommon: named("b"), InterfaceSelector: interfaces, Priority: 2}},
		{Type: "TCX", TCX: &v1alpha1.TcxProgramInfo{BpfProgramCommon: named("c"), InterfaceSelector: interfaces, Priority: 3}},
		{Type: "Fentry", Fentry: &v1alpha1.FentryProgramInfo{BpfProgramCommon: named("d"), FunctionName: "f"}},
		{Type: "Fexit", Fexit: &v1alpha1.FexitProgramInfo{BpfProgramCommon: named("e"), FunctionName: "f"}},
		{Type: "Kprobe", Kprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: named("f"), FunctionName: "f", Offset: 1}},
		{Type: "Kretprobe", Kretprobe: &v1alpha1.KprobeProgramInfo{BpfProgramCommon: named("g"), FunctionName: "f"}},
		{Type: "Uprobe", Uprobe: &v1alpha1.UprobeProgramInfo{BpfProgramCommon: named("h"), Target: "libc"}},
		{Type: "Uretprobe", Uretprobe: &v1alpha1.UprobeProgramInfo{BpfProgramCommon: named("i"), Target: "libc"}},
		{Type: "Tracepoint", Tracepoint: &v1alpha1.TracepointProgramInfo{BpfProgramCommon: named("j"), Names: []string{"a/b", "c/d"}}},
		{Type: "LSM", LSM: &v1alpha1.LsmProgramInfo{BpfProgramCommon: named("k"), HookName: "file_open"}},
		{},            // nothing is loaded for these two
		{Type: "XDP"}, //
	}
	nsApp := &v1alpha1.BpfNsApplication{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	nsApp.Spec.Programs = []v1alpha1.BpfNsApplicationProgram{
		{Type: "XDP", XDP: &v1alpha1.XdpNsProgramInfo{BpfProgramCommon: named("a"), InterfaceSelector: interfaces, Priority: 1}},
		{Type: "TC", TC: &v1alpha1.TcNsProgramInfo{BpfProgramCommon: named("b"), InterfaceSelector: interfaces, Priority: 2}},
		{Type: "TCX", TCX: &v1alpha1.TcxNsProgramInfo{BpfProgramCommon: named("c"), InterfaceSelector: interfaces, Priority: 3}},
		{Type: "Uprobe", Uprobe: &v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: named("h"), Target: "libc"}},
		{Type: "Uretprobe", Uretprobe: &v1alpha1.UprobeNsProgramInfo{BpfProgramCommon: named("i"), Target: "libc"}},
		{Type: "TC"},
	}
	network := `a XDP [{interface eth0 false}] 1, b TC [{interface eth0 false}] 2, c TCX [{interface eth0 false}] 3`
	probes := `h Uprobe [{target libc false}], i Uprobe [{target libc false}]`
	for kind, test := range map[string]struct {
		object v1alpha1.UserObject
		want   string
	}{
		"BpfApplication": {app, network + `, d Fentry [{function f false}], e Fexit [{function f false}], f Kprobe [{function f true}], g Kprobe [{function f false}], ` +
			probes + `, j Tracepoint [{tracepoint a/b false} {tracepoint c/d false}], k LSM [{function bpf_lsm_file_open false}]`},
		"BpfNsApplication": {nsApp, network + `, ` + probes},
	} {
		var got []string
		s := SubjectOf(kind, test.object)
		for _, p := range s.Programs {
			line := fmt.Sprint(p.Name, " ", p.Type, " ", p.Hooks)
			if p.Priority != nil {
				line += fmt.Sprint(" ", *p.Priority)
			}
			got = append(got, line)
		}
		if got := strings.Join(got, ", "); got != test.want || s.Namespace != test.object.GetNamespace() || s.Kind != kind {
			t.Errorf("%s: %s\nwant %s", kind, got, test.want)
		}
	}
}
