// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package api

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// policyKind is separate from the kinds about programs, because all fields of its spec
// are optional.
var policyKind = kind{v1alpha1.PolicyKind.Name, v1alpha1.PolicyKind.GroupVersionResource(), v1alpha1.PolicyKind.Namespaced}

func bytecodePolicy(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": decode(t, spec)}}
	o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(policyKind.name))
	o.SetName(name)
	return o
}

const (
	publicKey = `-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n`
	acmeKey   = `"authorities":[{"name":"acme","key":{"pem":"` + publicKey + `"}}]`
	anyHost   = "a pattern must begin with file:/ or with the registry's host"
	noSuch    = "no image has such a name"
)

// withRule returns a policy with one rule, and an authority acme.
func withRule(fields string) string {
	return `{` + acmeKey + `,"rules":[{"name":"r","images":["**"],` + fields + `}]}`
}

func withImage(pattern string) string {
	return fmt.Sprintf(`{"rules":[{"name":"r","images":[%q]}]}`, pattern)
}

func withMatch(fields string) string { return `{"match":{` + fields + `}}` }

func withIdentity(fields string) string {
	return `{"authorities":[{"name":"acme","keyless":{"trustedRoot":{"name":"sigstore"},"identities":[{` + fields + `}]}}]}`
}

func TestBytecodePolicyValidation(t *testing.T) {
	t.Parallel()
	tests := []validation{
		{`{}`, ``},
		{`{"mode":"warn","onViolation":"unload","unmatchedImages":"deny"}`, ``},
		{`{"mode":"Warn"}`, `spec.mode: Unsupported value`},

		{withMatch(`"kinds":["XdpProgram"],"namespaces":["team-*"],"nodeSelector":{"matchLabels":{"a":"b"}}`), ``},
		{withMatch(`"kinds":[]`), `spec.match.kinds: Invalid value`},
		{withMatch(`"kinds":["BpfProgram"]`), `Unsupported value`},
		{withMatch(`"namespaces":[]`), `spec.match.namespaces: Invalid value`},
		{withMatch(`"namespaces":["A"]`), `spec.match.namespaces[0]: Invalid value`},
		{withMatch(`"nodeSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]},{"key":"a","operator":"Exists"}]}`), ``},
		{withMatch(`"nodeSelector":{"matchExpressions":[{"key":"a","operator":"in","values":["b"]}]}`), `the operator must be In or NotIn with values`},
		{withMatch(`"nodeSelector":{"matchExpressions":[{"key":"a","operator":"NotIn"}]}`), `the operator must be In or NotIn with values`},
		{withMatch(`"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}`), `the operator must be In or NotIn with values`},

		{withRule(`"deny":true`), ``},
		{withRule(`"deny":true,"digestOnly":false`), ``},
		{withRule(`"deny":true,"digestOnly":true`), `a rule with deny must not have other requirements`},
		{withRule(`"deny":true,"signedBy":["acme"]`), `a rule with deny must not have other requirements`},
		{withRule(`"deny":true,"limits":{"programTypes":["XDP"]}`), `a rule with deny must not have other requirements`},
		{withRule(`"deny":false,"digestOnly":true,"signedBy":["acme"]`), ``},
		{withRule(`"signedBy":[]`), `spec.rules[0].signedBy: Invalid value`},
		{withRule(`"signedBy":["evil"]`), `signedBy of a rule must name one of the authorities`},
		{withRule(`"attestations":[{"predicateType":"https://slsa.dev/provenance/v1","signedBy":["acme"]}]`), ``},
		{withRule(`"attestations":[{"predicateType":"p","signedBy":["acme","evil"]}]`), `signedBy of an attestation must name one of the authorities`},
		{withRule(`"attestations":[{"predicateType":"p","signedBy":[]}]`), `signedBy: Invalid value`},
		{`{"rules":[{"name":"r","images":["**"],"signedBy":["acme"]}]}`, `signedBy of a rule must name one of the authorities`},
		{`{"rules":[{"name":"r","images":["**"]},{"name":"r","images":["**"]}]}`, `Duplicate value`},
		{`{"rules":[{"name":"R","images":["**"]}]}`, `spec.rules[0].name: Invalid value`},
		{`{"rules":[{"name":"r","images":[]}]}`, `spec.rules[0].images: Invalid value`},

		{withRule(`"limits":{}`), `spec.rules[0].limits: Invalid value`},
		{withRule(`"limits":{"programTypes":["XDP","Kprobe"],"interfaces":["eth*"],"tracepoints":["syscalls/*"],"functions":["tcp_*"],"targets":["/usr/lib/*"]}`), ``},
		{withRule(`"limits":{"programTypes":["Kretprobe"]}`), `Unsupported value`},
		{withRule(`"limits":{"interfaces":[]}`), `limits.interfaces: Invalid value`},
		{withRule(`"limits":{"interfaces":["eth\\E"]}`), `limits.interfaces[0]: Invalid value`},
		{withRule(`"limits":{"targets":["a b"]}`), `limits.targets[0]: Invalid value`},
		{withRule(`"limits":{"priority":{"min":5,"max":5}}`), ``},
		{withRule(`"limits":{"priority":{"min":5,"max":4}}`), `min must not be greater than max`},
		{withRule(`"limits":{"priority":{"max":1001}}`), `priority.max: Invalid value`},
		{withRule(`"limits":{"priority":{}}`), `limits.priority: Invalid value`},
		{withRule(`"limits":{"helpers":{"deny":["bpf_probe_write_user"]},"mapTypes":{"allow":["*hash"]}}`), ``},
		{withRule(`"limits":{"helpers":{}}`), `limits.helpers: Invalid value`},

		{`{` + acmeKey + `}`, ``},
		{`{"authorities":[{"name":"a"}]}`, `an authority must have either key or keyless`},
		{`{"authorities":[{"name":"a","key":{}}]}`, `a key must have either pem or secret`},
		{`{"authorities":[{"name":"a","key":{"pem":"` + publicKey + `","secret":{"name":"s"}}}]}`, `a key must have either pem or secret`},
		{`{"authorities":[{"name":"a","key":{"pem":"MFkw"}}]}`, `pem must be a public key in PEM format`},
		{`{"authorities":[{"name":"a","key":{"pem":"` + strings.ReplaceAll(publicKey, "PUBLIC", "EC PRIVATE") + publicKey + `"}}]}`, `and not a private key`},
		{`{"authorities":[{"name":"a","key":{"secret":{"name":"s","key":"old.pub"},"trustedRoot":{"name":"t"}}}]}`, ``},
		{withIdentity(`"issuer":"https://i","subjectPattern":"^.*@acme[.]io$"`), ``},
		{withIdentity(`"issuer":"https://i"`), `an identity must have either subject or subjectPattern`},
		{withIdentity(`"subject":"s"`), `an identity must have either issuer or issuerPattern`},
		{withIdentity(`"issuerPattern":"(","subject":"s"`), `issuerPattern: Invalid value`},
		{withIdentity(`"issuer":"i","subjectPattern":"a)|(b"`), `subjectPattern: Invalid value`},
		{withIdentity(`"issuer":"i","subjectPattern":"a(?=b)"`), `subjectPattern: Invalid value`},
		{`{"authorities":[{"name":"a","keyless":{"identities":[{"issuer":"i","subject":"s"}]}}]}`, `trustedRoot: Required value`},
	}
	for pattern, refusal := range map[string]string{
		"**": "", "quay.io/acme/*": "", "quay.io/**": "", "*/**": "", "*.acme.io/x": "", "*.acme.io:5000/**": "", "*/acme/x": "",
		"localhost/x": "", "localhost:5000/x": "", "localhost:*/x": "", "registry:5000/x": "", "10.0.0.7:5000/x": "",
		"quay.io/acme/x:V1.*": "", "quay.io/acme/x@sha256:12ab": "", "quay.io/acme/*@sha256:*": "",
		"docker.io/library/*": "", "docker.io/acme/x": "", "docker.io/**": "", "docker.io/*/x": "",
		"file:/opt/*": "", "file:/**": "", "file:/opt/a..b/.hidden/x@1:2.o": "",
		"*": "write ** for all images", "": "should be at least 1 chars long",
		"busybox": anyHost, "acme/x": anyHost, "acme/*": anyHost, "**/x": anyHost, "**.acme.io/x": anyHost, "*acme.io/x": anyHost,
		"quay.io*/x": anyHost, "quay.*/x": anyHost, "QUAY.io/x": anyHost, "https://quay.io/x": anyHost, "quay.io": anyHost, "file:opt/x": anyHost,
		"quay.io/Acme/x": "in lower case", "quay.io/": "the host must be followed by", "quay.io/x:v1@sha256:12": "either a tag or a digest",
		"quay.io/x y": "the host must be followed by", "quay.io/x:a:b": "the host must be followed by", "quay.io/x:a/b": "the host must be followed by",
		"docker.io/busybox": noSuch, "docker.io/busybox:1": noSuch, "docker.io/*": noSuch, "index.docker.io/library/x": noSuch, "quay.io:443/x": noSuch,
		"file:/opt/../x": "must not contain //", "file:/opt/./x": "must not contain //", "file:/opt//x": "must not contain //", "file:/opt/..": "must not contain //",
		"file:/o x": "must not contain //", `file:/o\x`: "must not contain //",
	} {
		tests = append(tests, validation{withImage(pattern), refusal})
	}
	c := client(t, policyKind)
	for _, v := range tests {
		_, err := c.Create(deadline(t), bytecodePolicy(t, "validation", v.patch), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		checkRefusal(t, v, err)
	}
}

// The largest policy that the schema admits doesn't exceed the API server's cost limit.
func TestTheLargestBytecodePolicy(t *testing.T) {
	t.Parallel()
	list := func(n int, format string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(format, i)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	names := list(32, `"authority-%d"`)
	images := list(64, `"quay.io/acme/`+strings.Repeat("x", 400)+`-%d/*"`)
	attestations := list(16, `{"predicateType":"https://example.com/%d","signedBy":`+list(16, `"authority-%d"`)+`}`)
	spec := `{"authorities":` + list(32, `{"name":"authority-%d","key":{"pem":"`+publicKey+`"}}`) +
		`,"rules":` + list(32, `{"name":"rule-%d","images":`+images+`,"signedBy":`+names+`,"attestations":`+attestations+`}`) + `}`
	_, err := client(t, policyKind).Create(deadline(t), bytecodePolicy(t, "largest", spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Errorf("%d bytes: %.500s", len(spec), err.Error())
	}
}

func TestBytecodePolicyDefaultsAndColumns(t *testing.T) {
	t.Parallel()
	o := create(t, policyKind, bytecodePolicy(t, "columns", `{"rules":[{"name":"r","images":["file:/nowhere/only"]}]}`))
	for field, want := range map[string]string{"mode": `"enforce"`, "onViolation": `"keep"`, "unmatchedImages": `"allow"`} {
		if got := at(t, o, "spec", field); got != want {
			t.Errorf("%s is %s by default, want %s", field, got, want)
		}
	}
	o.Object["status"] = decode(t, `{"allowed":40,"denied":2,"warned":1,"conditions":[{"type":"Ready","status":"False","reason":"Invalid","message":"a reason","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`)
	if _, err := client(t, policyKind).UpdateStatus(deadline(t), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	headings, cells := shownByKubectl(t, policyKind, "columns")
	if headings != "Name Mode Ready Allowed Denied Warned Age | Reason" || cells != "enforce False 40 2 1 | a reason" {
		t.Errorf("got %s\n    %s", headings, cells)
	}
}

// The API server accepts the policies in config, which users apply directly or after an
// edit.
func TestBytecodePolicyManifests(t *testing.T) {
	t.Parallel()
	found := 0
	root := filepath.Join("..", "..", "..", "config")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			o := &unstructured.Unstructured{}
			if !strings.Contains(document, "\nkind: "+policyKind.name+"\n") {
				continue
			}
			if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			found++
			if _, err := client(t, policyKind).Create(deadline(t), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d policies, %v", found, err)
	}
}
