// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// cosign runs cosign, which trusts the registry that tests push to.
func cosign(ctx context.Context, t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(ctx, os.Getenv("COSIGN"), arguments...)
	command.Dir = t.TempDir()
	command.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+command.Dir)
	if settings.pushCA != "" {
		ca, err := filepath.Abs(settings.pushCA)
		if err != nil {
			t.Fatal(err)
		}
		command.Env = append(command.Env, "SSL_CERT_FILE="+ca)
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cosign %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

// awaitReason waits until each program of an object has a condition with a type and with words in its message.
func awaitReason(ctx context.Context, t *testing.T, o v1alpha1.UserObject, condition v1alpha1.BpfProgramConditionType, words ...string) v1alpha1.ProgramObject {
	t.Helper()
	var found v1alpha1.ProgramObject
	await(ctx, t, fmt.Sprintf("%s to be %s", o.GetName(), condition), func(ctx context.Context) (bool, string) {
		programs, err := programsOf(ctx, o)
		if err != nil || len(programs) == 0 {
			return false, fmt.Sprint("no program: ", err)
		}
		for _, p := range programs {
			if len(p.GetStatus().Conditions) == 0 {
				return false, fmt.Sprintf("%+v", p.GetStatus().Conditions)
			}
			c := p.GetStatus().Conditions[0]
			for _, w := range words {
				if c.Type != string(condition) || !strings.Contains(c.Message, w) {
					return false, c.Type + ": " + c.Message
				}
			}
			found = p
		}
		return true, ""
	})
	return found
}

// awaitPolicy waits until a policy is ready, or isn't, with words in its message.
func awaitPolicy(ctx context.Context, t *testing.T, p *v1alpha1.BytecodePolicy, ready metav1.ConditionStatus, words string) {
	t.Helper()
	await(ctx, t, fmt.Sprintf("policy %s has Ready %s", p.Name, ready), func(ctx context.Context) (bool, string) {
		err := under.Get(ctx, client.ObjectKeyFromObject(p), p)
		c := p.Status.Conditions
		return err == nil && len(c) > 0 && c[0].Type == string(v1alpha1.Ready) && c[0].Status == ready && strings.Contains(c[0].Message, words), fmt.Sprintf("%v %+v", err, p.Status)
	})
}

// verdictOf returns the verdict of a policy on a program, or "".
func verdictOf(p v1alpha1.ProgramObject, policy string) v1alpha1.PolicyVerdict {
	if b := p.GetStatus().Bytecode; b != nil {
		for _, v := range b.Policies {
			if v.Name == policy {
				return v.Verdict
			}
		}
	}
	return ""
}

// TestPolicy allows only signed images, signed with cosign itself. It changes a policy, which is reported, and
// unloads violating programs.
func TestPolicy(t *testing.T) {
	requireType(t, "TCX")
	requirePush(t)
	if os.Getenv("COSIGN") == "" {
		prerequisite.Missing(t, "COSIGN doesn't say where it is: run `make cosign` first", prerequisite.Cosign)
	}
	object, err := os.ReadFile("../../bin/bytecode/tcx_test.o")
	if err != nil {
		t.Fatalf("read the bytecode of `make bytecode`: %v", err)
	}
	// Different names for each run, because a registry keeps images.
	run := strings.ToLower(time.Now().UTC().Format("20060102T150405"))
	program := func(name string) (*v1alpha1.TcxProgram, string) {
		o := tcx("e2e-policy-"+name, "lo")
		o.Spec.ByteCode = image("e2e-policy-" + run + "-" + name)
		return o, settings.push + "/" + bytecodePrefix + "/e2e-policy-" + run + "-" + name + ":latest"
	}
	signed, signedAt := program("signed")
	unsigned, unsignedAt := program("unsigned")
	violating, _ := program("violating")
	key := filepath.Join(t.TempDir(), "cosign")
	patterns := func(names ...string) []string {
		var out []string
		for _, name := range names {
			out = append(out, settings.bytecode+"/e2e-policy-"+run+"-"+name)
		}
		return out
	}
	policy := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "e2e-policy"}, Spec: v1alpha1.BytecodePolicySpec{
		Rules: []v1alpha1.BytecodeRule{{Name: "signed", Images: patterns("signed", "unsigned"), SignedBy: []string{"team"}}},
		Authorities: []v1alpha1.BytecodeAuthority{
			{Name: "team", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "e2e-policy"}}},
			{Name: "ci", Keyless: &v1alpha1.AuthorityKeyless{
				Identities:  []v1alpha1.AuthorityIdentity{{Issuer: "https://issuer.example.com", Subject: "ci@example.com"}},
				TrustedRoot: v1alpha1.AuthorityReference{Name: "e2e-policy"},
			}},
		},
	}}
	unloaded := func(ctx context.Context, s *testing.T, o client.Object) {
		s.Helper()
		await(ctx, s, o.GetName()+" isn't loaded", func(ctx context.Context) (bool, string) {
			held, err := loadedFor(ctx, o.GetUID())
			return err == nil && len(held) == 0, fmt.Sprint(held, err)
		})
	}
	feature(t,
		step{"a key pair, a policy, and images", func(ctx context.Context, s *testing.T) {
			cosign(ctx, s, "generate-key-pair", "--output-key-prefix", key)
			public := must.Read(s, key+".pub")
			meta := metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "e2e-policy"}
			create(ctx, t, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"cosign.pub": public}})
			root := `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`
			create(ctx, t, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"trusted_root.json": root}})
			for n, name := range []string{"signed", "unsigned", "violating"} {
				img, err := bytecodeimage.ForArchitecture("tcx_test.o", object, runtime.GOARCH, time.Unix(int64(n), 0))
				if err != nil {
					s.Fatal(err)
				}
				push(ctx, s, "e2e-policy-"+run+"-"+name, img)
			}
			cosign(ctx, s, "sign", "--key", key+".key", "--yes", "--tlog-upload=false", "--use-signing-config=false", signedAt)
			create(ctx, t, policy)
			awaitPolicy(ctx, s, policy, metav1.ConditionTrue, "")
		}},
		step{"what is signed is loaded", func(ctx context.Context, s *testing.T) {
			create(ctx, t, signed)
			awaitSuccess(ctx, s, signed)
			b := awaitReason(ctx, s, signed, v1alpha1.BpfProgCondLoaded, "").GetStatus().Bytecode
			if b == nil || b.Digest == "" || len(b.Signers) != 1 || len(b.Policies) != 1 || b.Policies[0].Verdict != v1alpha1.VerdictAllowed {
				s.Errorf("status.bytecode %+v", b)
			}
		}},
		step{"what isn't is not, until it is", func(ctx context.Context, s *testing.T) {
			create(ctx, t, unsigned)
			awaitFailure(ctx, s, unsigned, "policy e2e-policy: rule signed: ", "has no signature of team")
			awaitReason(ctx, s, unsigned, v1alpha1.BpfProgCondPolicyDenied, "has no signature of team")
			unloaded(ctx, s, unsigned)
			cosign(ctx, s, "sign", "--key", key+".key", "--yes", "--tlog-upload=false", "--use-signing-config=false", unsignedAt)
			awaitSuccess(ctx, s, unsigned)
		}},
		step{"a policy that comes to match is told of", func(ctx context.Context, s *testing.T) {
			create(ctx, t, violating)
			awaitSuccess(ctx, s, violating)
			modify(ctx, s, policy, func(p *v1alpha1.BytecodePolicy) { p.Spec.Rules[0].Images = patterns("*") })
			awaitReason(ctx, s, violating, v1alpha1.BpfProgCondPolicyViolated, "has no signature of team")
			awaitEvent(ctx, s, violating, corev1.EventTypeWarning, "has no signature of team")
			if held, err := loadedFor(ctx, violating.UID); err != nil || len(held) == 0 {
				s.Errorf("loaded: %v, %v", held, err)
			}
		}},
		step{"kubectl counts", func(ctx context.Context, s *testing.T) {
			kubectl, err := exec.LookPath(cmp.Or(os.Getenv("KUBECTL"), "kubectl"))
			if err != nil {
				prerequisite.Missing(s, "KUBECTL doesn't say where it is", prerequisite.Kubectl)
			}
			await(ctx, s, "the columns count the reports", func(ctx context.Context) (bool, string) {
				counts := map[v1alpha1.PolicyVerdict]int{}
				judged, err := programs(ctx, func(p v1alpha1.ProgramObject) bool {
					verdict := verdictOf(p, policy.Name)
					counts[verdict]++ // the cluster can have other programs
					return verdict == v1alpha1.VerdictDenied && metav1.IsControlledBy(p, violating) ||
						verdict == v1alpha1.VerdictAllowed && (metav1.IsControlledBy(p, signed) || metav1.IsControlledBy(p, unsigned))
				})
				want := regexp.MustCompile(fmt.Sprintf(`(?m)^NAME +MODE +READY +ALLOWED +DENIED +WARNED +AGE *\ne2e-policy +enforce +True +%d +%d +%d `,
					counts[v1alpha1.VerdictAllowed], counts[v1alpha1.VerdictDenied], counts[v1alpha1.VerdictWarned]))
				out, failed := exec.CommandContext(ctx, kubectl, "--kubeconfig", settings.kubeconfig, "get", "bytecodepolicies", policy.Name).CombinedOutput()
				done := err == nil && failed == nil && len(judged) == 3*len(under.nodes()) && want.Match(out)
				return done, fmt.Sprintf("%v %v, counts %v\n%s", err, failed, counts, out)
			})
		}},
		step{"onViolation unload unloads", func(ctx context.Context, s *testing.T) {
			modify(ctx, s, policy, func(p *v1alpha1.BytecodePolicy) { p.Spec.OnViolation = v1alpha1.OnViolationUnload })
			awaitReason(ctx, s, violating, v1alpha1.BpfProgCondPolicyDenied, "has no signature of team")
			unloaded(ctx, s, violating)
			awaitSuccess(ctx, s, signed)
		}},
		step{"without the policy it is loaded", func(ctx context.Context, s *testing.T) {
			must.Succeed(s, under.Delete(ctx, policy))
			awaitSuccess(ctx, s, violating)
		}},
	)
}
