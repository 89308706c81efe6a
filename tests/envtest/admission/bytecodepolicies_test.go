// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/policy"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const someDigest = "@sha256:3d0dd7b4a8b1c9e5f6a7b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3"

// judge has a BytecodePolicy, and asks the API server about objects.
type judge struct {
	client.Client
	policy   *v1alpha1.BytecodePolicy
	number   int
	warnings *warnings
}

// warnings are the warnings for the last request.
type warnings struct {
	sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) take() string {
	w.Lock()
	defer w.Unlock()
	text := strings.Join(w.texts, "\n")
	w.texts = nil
	return text
}

// newJudge installs this repository's admission policies, without a BytecodePolicy.
func newJudge(t *testing.T) *judge {
	t.Helper()
	config := privileged(t, "an-administrator")
	w := &warnings{}
	config.WarningHandler = w
	j := &judge{Client: envtest.Client(t, config), warnings: w}
	must.Succeed(t, envtest.Apply(t.Context(), j, "config/admission"))
	// An expression that fails, or costs too much, would otherwise be ignored.
	for _, name := range []string{"bpfman-bytecode-policies-enforce", "bpfman-bytecode-policies-warn"} {
		admission := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must.Succeed(t, j.Patch(t.Context(), admission, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"failurePolicy":"Fail"}}`))))
	}
	j.clear(t.Context(), t)
	t.Cleanup(func() { j.clear(context.WithoutCancel(t.Context()), t) })
	return j
}

func (j *judge) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	must.Succeed(t, j.DeleteAllOf(ctx, &v1alpha1.BytecodePolicy{}))
}

// enforce replaces the policy, which must apply to cluster-scoped tracepoints, and waits until it is in force.
func (j *judge) enforce(t *testing.T, spec v1alpha1.BytecodePolicySpec) {
	t.Helper()
	probe := &v1alpha1.TracepointProgram{}
	probe.Name = "probe"
	probe.Spec.BpfFunctionName = "f"
	probe.Spec.Names = []string{"a/b"}
	j.enforceFor(t, spec, "TracepointProgram", probe)
}

// enforceFor is like enforce for a policy that applies to the probe. A rule about an image with the policy's own
// name shows that it is in force.
func (j *judge) enforceFor(t *testing.T, spec v1alpha1.BytecodePolicySpec, kind string, probe v1alpha1.UserObject) {
	t.Helper()
	mark := func(name string) v1alpha1.BytecodeSelector {
		return v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "mark.example.com/" + name}}
	}
	j.number++
	name := fmt.Sprintf("p-%d", j.number)
	old := j.policy
	spec.Rules = append(slices.Clone(spec.Rules), v1alpha1.BytecodeRule{Name: "mark", Images: []string{mark(name).Image.Url}, Deny: true})
	j.policy = &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := j.Create(t.Context(), j.policy.DeepCopy()); err != nil {
		t.Fatalf("create policy: %v", err)
	}
	if old != nil {
		must.Succeed(t, j.Delete(t.Context(), old))
	}
	inForce(t, name, func(ctx context.Context) bool {
		probe.SetAppCommon(v1alpha1.BpfAppCommon{ByteCode: mark(name)})
		if !strings.Contains(j.says(ctx, kind, probe), "policy "+name+":") {
			return false
		}
		if old == nil {
			return true
		}
		probe.SetAppCommon(v1alpha1.BpfAppCommon{ByteCode: mark(old.Name)})
		return !strings.Contains(j.says(ctx, kind, probe), "policy "+old.Name+":")
	})
}

// says returns the API server's refusal of an object, or its warning, because of a BytecodePolicy.
func (j *judge) says(ctx context.Context, kind string, o client.Object) string {
	o = o.DeepCopyObject().(client.Object) //nolint:errcheck // a copy has the same type
	if _, isTyped := o.(v1alpha1.UserObject); isTyped {
		// Like a user's manifest, which leaves out fields without a value, so that they get their defaults.
		o = manifest(kind, o)
	}
	j.warnings.take()
	err := j.Create(ctx, o, client.DryRunAll)
	switch {
	case err == nil:
		return j.warnings.take()
	case strings.Contains(err.Error(), "bpfman-bytecode-policies"):
		return err.Error()
	}
	panic(fmt.Sprintf("%s: %v", kind, err))
}

func manifest(kind string, o client.Object) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	return u
}

// node returns the node's decision about an object, with the same policy.
func (j *judge) node(kind string, o v1alpha1.UserObject) (v1alpha1.PolicyVerdict, string) {
	material := map[string]policy.Material{}
	for _, a := range j.policy.Spec.Authorities {
		material[a.Name] = policy.Material{Keys: []string{"key"}}
	}
	e := policy.Evaluate([]*policy.Policy{policy.Compile(j.policy, material)}, policy.SubjectOf(kind, o))
	// Everything that has to be verified is valid.
	verdict, why := policy.Sum(e.Decide(&reader.Answer{Signatures: []reader.Finding{{Authority: j.policy.Name + "/acme", Signer: "acme"}}, Object: &reader.Object{}}))
	if why == nil {
		return verdict, ""
	}
	return verdict, why.Error()
}

// unusualImage matches references that only nodes take apart: with an address, with a port that begins with 0, or too
// long.
var unusualImage = regexp.MustCompile(`\[|^[^/]*:0[0-9]*/|^[^@]{256,}`)

// compare compares both decisions. What admission refuses, the node must refuse. What the node refuses, admission
// must refuse, unless it can't find that out.
func (j *judge) compare(t *testing.T, kind string, o v1alpha1.UserObject) {
	t.Helper()
	b := o.GetAppCommon().ByteCode
	_, err := policy.ParseImage(b)
	odd := slices.ContainsFunc(policy.SubjectOf(kind, o).Programs, func(p policy.Program) bool {
		return slices.ContainsFunc(p.Hooks, func(h policy.Hook) bool { return h.Problem() != "" })
	})
	untold := err != nil || odd || b.Image != nil && unusualImage.MatchString(b.Image.Url) || b.Path != nil && path.Clean(*b.Path) != *b.Path
	verdict, message := j.node(kind, o)
	said := j.says(t.Context(), kind, o)
	refused, denied := said != "", verdict != v1alpha1.VerdictAllowed
	if refused && !denied || denied && !refused && !untold {
		spec, _ := json.Marshal(j.policy.Spec) //nolint:errchkjson // for the output
		object, _ := json.Marshal(o)           //nolint:errchkjson // for the output
		t.Errorf("admission: %q\nnode: %s %s\npolicy %s\nobject %s", said, verdict, message, spec, object)
	}
	if !refused || !denied || strings.HasSuffix(message, " more") { // the node has more reasons than it says
		return
	}
	// The reasons at admission are among the node's, in the same words.
	_, reasons, _ := strings.Cut(said, "policy "+j.policy.Name+": ")
	reasons, _, _ = strings.Cut(reasons, "; and ")
	unquoted := strings.NewReplacer(`\\`, `\`).Replace(message)
	for reason := range strings.SplitSeq(reasons, "; ") {
		if !strings.Contains(unquoted, reason) {
			t.Errorf("admission: %q\nnode: %s", reason, message)
		}
	}
}

func xdpProgram(url string) *v1alpha1.XdpProgram {
	o := &v1alpha1.XdpProgram{}
	o.Name = "x"
	o.Spec.BpfFunctionName = "pass"
	o.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: url}}
	o.Spec.InterfaceSelector.Interfaces = &[]string{"eth0"}
	o.Spec.Priority = 50
	return o
}

// refuses checks that the API server refuses an object with an error that contains these words.
func (j *judge) refuses(t *testing.T, kind string, o client.Object, words string) {
	t.Helper()
	said := j.says(t.Context(), kind, o)
	if want := "policy " + j.policy.Name + ": " + words; !strings.HasSuffix(said, want) {
		t.Errorf("%s: %q, want %q", kind, said, want)
	}
}

func (j *judge) admits(t *testing.T, kind string, o client.Object) {
	t.Helper()
	if said := j.says(t.Context(), kind, o); said != "" {
		t.Errorf("%s: %s", kind, said)
	}
}

var denyEvil = []v1alpha1.BytecodeRule{{Name: "evil", Images: []string{"evil.com/**", "file:/evil/*"}, Deny: true}}

const evilDenied = "rule evil: image evil.com/x:latest is denied"

// A policy applies to objects of each kind that it matches.
func TestBytecodePoliciesMatchAtAdmission(t *testing.T) {
	j := newJudge(t)
	objects := map[string]v1alpha1.UserObject{}
	for _, kind := range v1alpha1.UserKinds {
		objects[kind.Name] = envtest.Object(t, kind, "x", envtest.Spec(kind.Name))
		objects[kind.Name].SetAppCommon(v1alpha1.BpfAppCommon{ByteCode: v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "evil.com/x"}}})
	}
	for name, match := range map[string]v1alpha1.BytecodePolicyMatch{
		"all":                    {},
		"some kinds":             {Kinds: []string{"XdpProgram", "BpfNsApplication", "XdpNsProgram"}},
		"a namespace":            {Namespaces: []string{"def*t", "defaul"}},
		"another namespace":      {Namespaces: []string{"kube-*"}},
		"a kind and a namespace": {Namespaces: []string{"*"}, Kinds: []string{"XdpProgram", "XdpNsProgram"}},
	} {
		// The policy for another namespace matches none of the objects, but matches this one.
		const kind = "XdpNsProgram"
		probe := objects[kind].DeepCopyObject().(v1alpha1.UserObject) //nolint:errcheck // a copy has the same type
		if name == "another namespace" {
			probe.SetNamespace("kube-system")
		}
		j.enforceFor(t, v1alpha1.BytecodePolicySpec{Match: match, Rules: denyEvil}, kind, probe)
		for kind, o := range objects {
			if policy.Compile(j.policy, nil).Matches(policy.SubjectOf(kind, o)) {
				j.refuses(t, kind, o, evilDenied)
			} else {
				j.admits(t, kind, o)
			}
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}

	// Admission doesn't know the nodes.
	j.enforce(t, v1alpha1.BytecodePolicySpec{})
	selective := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: "selective"}, Spec: v1alpha1.BytecodePolicySpec{
		Match: v1alpha1.BytecodePolicyMatch{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, Rules: denyEvil,
	}}
	must.Succeed(t, j.Create(t.Context(), selective))
	j.enforce(t, v1alpha1.BytecodePolicySpec{}) // this one comes after it
	j.admits(t, "XdpProgram", xdpProgram("evil.com/x"))
}

// A policy in mode warn refuses nothing, but another one in mode enforce does.
func TestBytecodePoliciesWarnAtAdmission(t *testing.T) {
	j := newJudge(t)
	j.enforce(t, v1alpha1.BytecodePolicySpec{Mode: v1alpha1.PolicyWarn, Rules: denyEvil})
	o := xdpProgram("evil.com/x")
	err := j.Create(t.Context(), manifest("XdpProgram", o), client.DryRunAll)
	if said := j.warnings.take(); err != nil || !strings.HasSuffix(said, "policy "+j.policy.Name+": "+evilDenied) {
		t.Errorf("%v, %q", err, said)
	}
	j.admits(t, "XdpProgram", xdpProgram("quay.io/x"))
}

// An existing object is checked when a change affects what it loads or attaches.
func TestBytecodePoliciesAndObjectsThatAreThere(t *testing.T) {
	j := newJudge(t)
	o := xdpProgram("evil.com/x")
	o.Name = "there"
	must.Succeed(t, j.Create(t.Context(), o))
	t.Cleanup(func() {
		if err := j.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Error(err)
		}
	})
	j.enforce(t, v1alpha1.BytecodePolicySpec{Rules: denyEvil})
	j.refuses(t, "XdpProgram", xdpProgram("evil.com/x"), evilDenied)
	for patch, want := range map[string]bool{
		`{"metadata":{"labels":{"a":"b"},"finalizers":null}}`:                  true,
		`{"spec":{"nodeselector":{"matchLabels":{"a":"b"}}}}`:                  true,
		`{"spec":{"priority":50}}`:                                             true,
		`{"spec":{"priority":51}}`:                                             false,
		`{"spec":{"interfaceselector":{"interfaces":["eth0","eth1"]}}}`:        false,
		`{"spec":{"bytecode":{"image":{"url":"evil.com/y"}}}}`:                 false,
		`{"spec":{"bytecode":{"image":{"url":"quay.io/y"}},"priority":51}}`:    true,
		`{"spec":{"bytecode":{"image":null,"path":"/evil/x.o"},"priority":0}}`: false,
	} {
		err := j.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		if admitted := err == nil; admitted != want || err != nil && !strings.Contains(err.Error(), "policy "+j.policy.Name) {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

// An application with many programs doesn't exceed the API server's cost limit with any policy.
func TestBytecodePoliciesAndLargeApplications(t *testing.T) {
	j := newJudge(t)
	j.enforce(t, v1alpha1.BytecodePolicySpec{Match: v1alpha1.BytecodePolicyMatch{Kinds: []string{"TracepointProgram"}}})
	list := func(n int, format string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf(format, i)
		}
		return out
	}
	for _, size := range []struct {
		programs, rules, patterns int
		tooMuch                   bool
	}{{1, 1, 1, false}, {300, 1, 8, false}, {300, 4, 16, false}, {1000, 1, 4, false}, {1000, 31, 64, true}} {
		t.Run(fmt.Sprintf("%d programs, %d rules of %d patterns", size.programs, size.rules, size.patterns), func(t *testing.T) {
			var spec v1alpha1.BytecodePolicySpec
			for _, name := range list(size.rules, "rule-%d") {
				spec.Rules = append(spec.Rules, v1alpha1.BytecodeRule{Name: name, Images: append(list(size.patterns-1, "registry-%d.example.com/acme/*"), "quay.io/acme/*"), Limits: &v1alpha1.BytecodeLimits{
					Interfaces: append(list(size.patterns-1, "bond%d.*"), "eth*"), ProgramTypes: []v1alpha1.EBPFProgType{"XDP"},
					Priority: &v1alpha1.PriorityRange{Min: new(int32(10))},
				}})
			}
			o := &v1alpha1.BpfApplication{}
			o.Name = "large"
			o.Spec.ByteCode = v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: "quay.io/acme/x"}}
			for _, name := range list(size.programs, "program_%d") {
				o.Spec.Programs = append(o.Spec.Programs, v1alpha1.BpfApplicationProgram{Type: "XDP", XDP: &v1alpha1.XdpProgramInfo{
					BpfProgramCommon: v1alpha1.BpfProgramCommon{BpfFunctionName: name}, InterfaceSelector: v1alpha1.InterfaceSelector{Interfaces: &[]string{"eth0", "eth1"}}, Priority: 50,
				}})
			}
			start := time.Now()
			j.admits(t, "BpfApplication", o)
			t.Logf("without a policy about it in %v", time.Since(start))
			j.enforce(t, spec)
			start = time.Now()
			said := j.says(t.Context(), "BpfApplication", o)
			t.Logf("looked at in %v", time.Since(start))
			if size.tooMuch != strings.Contains(said, "cost limit") || !size.tooMuch && said != "" {
				t.Error(said)
			}
			if size.tooMuch { // in the deployed configuration, it is ignored
				return
			}
			(*o.Spec.Programs[size.programs-1].XDP.InterfaceSelector.Interfaces)[1] = "lo"
			start = time.Now()
			said = j.says(t.Context(), "BpfApplication", o)
			t.Logf("refused in %v", time.Since(start))
			if want := fmt.Sprintf(`rule rule-0: program program_%d: interface "lo" isn't allowed`, size.programs-1); !strings.Contains(said, want) {
				t.Errorf("%q, want %q", said, want)
			}
			j.enforce(t, v1alpha1.BytecodePolicySpec{Match: v1alpha1.BytecodePolicyMatch{Kinds: []string{"TracepointProgram"}}})
		})
	}
}

// If the kind of policies doesn't exist, or an expression costs too much, objects are admitted.
func TestBytecodePoliciesAtAdmissionAreNoObstacle(t *testing.T) {
	objects, err := envtest.Build("config/default")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicy" || !strings.HasPrefix(o.GetName(), "bpfman-bytecode-policies-") {
			continue
		}
		found++
		if failure, _, err := unstructured.NestedString(o.Object, "spec", "failurePolicy"); err != nil || failure != "Ignore" {
			t.Errorf("%s: failurePolicy %s, %v", o.GetName(), failure, err)
		}
	}
	if found != 2 {
		t.Errorf("%d admission policies", found)
	}

	j := newJudge(t)
	j.enforce(t, v1alpha1.BytecodePolicySpec{Rules: denyEvil})
	t.Cleanup(func() {
		if err := envtest.Apply(context.WithoutCancel(t.Context()), j, "config/admission"); err != nil {
			t.Error(err)
		}
	})
	for _, mode := range []string{"enforce", "warn"} {
		admission := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bpfman-bytecode-policies-" + mode}}
		patch := `{"spec":{"failurePolicy":"Ignore","paramKind":{"kind":"MissingPolicy"}}}`
		must.Succeed(t, j.Patch(t.Context(), admission, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	envtest.Eventually(t, "an object is admitted where the kind of policies is missing", func(ctx context.Context) error {
		if said := j.says(ctx, "XdpProgram", xdpProgram("evil.com/x")); said != "" {
			return errors.New(said)
		}
		return nil
	})
}

// Combinations of images and patterns.
func TestImagesAtAdmissionAreThoseOfTheNode(t *testing.T) {
	j := newJudge(t)
	for _, pattern := range patternsOfImages {
		j.enforce(t, v1alpha1.BytecodePolicySpec{Rules: []v1alpha1.BytecodeRule{{Name: "r", Images: []string{pattern}, Deny: true}}})
		for _, name := range namesOfImages {
			o := xdpProgram(name)
			if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "path:") {
				o.Spec.ByteCode = v1alpha1.BytecodeSelector{Path: new(strings.TrimPrefix(name, "path:"))}
			}
			j.compare(t, "XdpProgram", o)
		}
	}
}

var patternsOfImages = []string{
	"**", "*/**", "*/x", "quay.io/acme/x", "quay.io/acme/*", "quay.io/**", "*.acme.io/x", "*.acme.io:*/**", "docker.io/library/*", "docker.io/**", "localhost:*/x",
	"quay.io/acme/x:v1", "quay.io/acme/*:*", "quay.io/**:v*", "quay.io/acme/x" + someDigest, "quay.io/**@sha256:*", "*:*/x", "file:5000/x",
	"file:/opt/*", "file:/opt/**", "file:/**", "file:/opt/a.b/[x]+(y)*", "quay.io/ac.e/x",
}

var namesOfImages = []string{
	"x", "x:v1", "acme/x", "acme/x:5000", "quay.io/acme/x", "quay.io/acme/x:v1", "quay.io/acme/x" + someDigest, "quay.io/acme/x:v1" + someDigest, "quay.io/acme/x/y",
	"QUAY.io/acme/x", "quay.io:443/acme/x", "quay.io:0443/acme/x", "Quay.IO:443/acme/x:v1", "quay.io:4443/acme/x", "quay.io/Acme/x", "Acme/x", "ACME.io/x", "a.acme.io/x", "a.b.acme.io:5000/x/y",
	"evil.com/a.acme.io/x", "docker.io/x", "index.docker.io/x", "INDEX.docker.io/x", "index.docker.io:443/x", "docker.io:443/acme/x", "docker.io/library/x", "localhost/x",
	"localhost:5000/x", "LOCALHOST/x", "file:5000/x", "[fd00::1]:5000/x", "[fd00:0::1]/x", "[CAFE]/x", "my_host.io/x", "a__b/x", "a___b/x", "quay.io/a-_b/x", "quay.io/a--b/x", "quay.io/x:", "quay.io/x:-v",
	"quay.io/x@sha256:12", "quay.io/x@md5:12345678901234567890123456789012", "quay.io/x@sha512:" + strings.Repeat("0123456789abcdef", 8), "quay.io/" + strings.Repeat("x/", 130) + "x",
	strings.Repeat("0123456789abcdef", 4), "", " x", "x\n", "https://quay.io/x", "quay.io//x", "/x", "/opt/x.o", "/opt/a/x.o", "/opt/../etc/x.o", "/opt//x.o", "/opt/./x.o", "/opt/x/",
	"/opt/a.b/[x]+(y)z", "/opt/axb/[x]+(y)z", "/", "/opt/x\\Ey", "/opt/a\nb", "/opt/a@b:c", "path:opt/x.o", "path:", "path:../x", "quay.io/acmex/x", "quay.io/acme/x:" + strings.Repeat("v", 128),
	"quay.io/acme/x:" + strings.Repeat("v", 129), "-quay.io/x", "quay.io-/x", "quay..io/x", "quay.io:/x", "quay.io:x/y",
}

// Random policies and objects.
func TestAdmissionRefusesWhatTheNodeDoes(t *testing.T) {
	j := newJudge(t)
	policies, objects := 60, 60
	if testing.Short() {
		policies = 15
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := random{rand.New(rand.NewPCG(seed, 0))}
	denied := 0
	for range policies {
		j.enforce(t, r.policy())
		for range objects {
			kind := pick(r, v1alpha1.UserKinds)
			o := r.object(t, kind)
			if verdict, _ := j.node(kind.Name, o); verdict != v1alpha1.VerdictAllowed {
				denied++
			}
			j.compare(t, kind.Name, o)
		}
		if t.Failed() {
			return
		}
	}
	// Both answers must occur often enough.
	t.Logf("%d of %d are denied", denied, policies*objects)
	if denied < policies*objects/20 || denied > policies*objects*19/20 {
		t.Errorf("%d of %d are denied", denied, policies*objects)
	}
}

type random struct{ *rand.Rand }

func pick[T any](r random, from []T) T { return from[r.IntN(len(from))] }

func (r random) maybe() bool { return r.IntN(3) == 0 }

// some returns one to three of the elements, without duplicates.
func some[T comparable](r random, from ...T) []T {
	var out []T
	for range 1 + r.IntN(3) {
		if x := pick(r, from); !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func (r random) policy() v1alpha1.BytecodePolicySpec {
	spec := v1alpha1.BytecodePolicySpec{
		Mode:            pick(r, []v1alpha1.PolicyMode{"", v1alpha1.PolicyEnforce, v1alpha1.PolicyWarn}),
		UnmatchedImages: pick(r, []v1alpha1.PolicyUnmatchedImages{"", v1alpha1.UnmatchedAllow, v1alpha1.UnmatchedDeny}),
		Authorities:     []v1alpha1.BytecodeAuthority{{Name: "acme", Key: &v1alpha1.AuthorityKey{Secret: &v1alpha1.AuthorityReference{Name: "keys"}}}},
	}
	if r.maybe() { // with the kind that shows that it is in force
		spec.Match.Kinds = []string{"TracepointProgram"}
		for _, kind := range v1alpha1.UserKinds {
			if kind.Name != "TracepointProgram" && r.IntN(2) == 0 {
				spec.Match.Kinds = append(spec.Match.Kinds, kind.Name)
			}
		}
	}
	for i := range r.IntN(4) {
		rule := v1alpha1.BytecodeRule{Name: fmt.Sprintf("r%d", i), Images: some(r, "**", "quay.io/**", "quay.io/*/x", "docker.io/library/*", "*/acme/x:v*", "quay.io/acme/*@*", "file:/opt/*")}
		switch r.IntN(6) {
		case 0:
			rule.Deny = true
		case 1:
			rule.DigestOnly = true
		case 2:
			rule.SignedBy = []string{"acme"}
		default:
			rule.Limits = r.limits()
		}
		spec.Rules = append(spec.Rules, rule)
	}
	return spec
}

func (r random) limits() *v1alpha1.BytecodeLimits {
	l := &v1alpha1.BytecodeLimits{Helpers: &v1alpha1.NameLimits{Deny: []string{"x"}}}
	if r.IntN(5) > 0 {
		l = &v1alpha1.BytecodeLimits{Interfaces: some(r, "eth*", "*0", "br-lan", "*")}
	}
	if r.maybe() {
		l.ProgramTypes = some(r, v1alpha1.ProgTypeXDP, v1alpha1.ProgTypeTC, v1alpha1.ProgTypeTCX, v1alpha1.ProgTypeFentry, v1alpha1.ProgTypeFexit, v1alpha1.ProgTypeKprobe, v1alpha1.ProgTypeUprobe, v1alpha1.ProgTypeTracepoint, v1alpha1.ProgTypeLSM)
	}
	if r.maybe() {
		l.Tracepoints = some(r, "syscalls/*", "*/sched_switch", "a.b/c")
	}
	if r.maybe() {
		l.Functions = some(r, "tcp_*", "do_unlinkat", "*", "nf_tables:*", "bpf_lsm_*")
	}
	if r.maybe() {
		l.Targets = some(r, "libc", "/opt/*", "*.so.?")
	}
	if r.maybe() {
		l.Priority = &v1alpha1.PriorityRange{Min: new(int32(r.IntN(50)))}
		if r.maybe() {
			l.Priority = &v1alpha1.PriorityRange{Max: new(int32(r.IntN(100)))}
		}
	}
	return l
}

// object returns an object with a random program, or an application with several.
func (r random) object(t *testing.T, kind v1alpha1.Kind[v1alpha1.UserObject]) v1alpha1.UserObject {
	t.Helper()
	members := []v1alpha1.EBPFProgType{"", "XDP", "TC", "TCX", "Uprobe", "Uretprobe"} // a member can lack its type
	if !kind.Namespaced {
		members = append(members, "Fentry", "Fexit", "Kprobe", "Kretprobe", "Tracepoint")
	}
	if kind.Name == "BpfApplication" { // upstream's v0.6 has no such members
		members = append(members, "LSM")
	}
	var types []v1alpha1.EBPFProgType
	for range r.IntN(5) {
		types = append(types, pick(r, members))
	}
	o := objectOf(t, kind, r.program, types)
	bytecode := v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: pick(r, []string{
		"busybox", "quay.io/acme/x", "quay.io/acme/x:v1", "quay.io/a/b/x:w", "quay.io/acme/x" + someDigest, "QUAY.IO:443/acme/x:v2" + someDigest, "quay.io/Odd/x",
	})}}
	if r.IntN(5) == 0 {
		bytecode = v1alpha1.BytecodeSelector{Path: new(pick(r, []string{"/opt/x.o", "/opt/../x.o", "/etc/x.o"}))}
	}
	o.SetAppCommon(v1alpha1.BpfAppCommon{ByteCode: bytecode})
	return o
}

// program returns random fields of programs of all types.
func (r random) program() map[string]any {
	fields := map[string]any{
		"bpffunctionname":   pick(r, []string{"pass", "count", "stats"}),
		"interfaceselector": r.interfaces(),
		"priority":          r.IntN(100),
		"direction":         pick(r, []string{"ingress", "egress"}),
		"func_name":         pick(r, []string{"tcp_connect", "do_unlinkat", "schedule", "nf_tables:nft_do_chain", "tcp_x:y", ""}),
		"hook_name":         pick(r, []string{"file_open", "task_kill"}),
		"offset":            pick(r, []int{0, 0, 0, 4, 9223372036854775807}),
		"target":            pick(r, []string{"libc", "/opt/bin/x", "/opt/../bin/x", "/opt//x", "/opt/", "/", "..", "../x", "./opt", "x.so.6", "/opt/a/..", ""}),
		"names":             some(r, "syscalls/sys_enter_kill", "sched/sched_switch", "a.b/c", "axb/c"),
	}
	if r.maybe() {
		fields["attach"] = false
	}
	return fields
}

func (r random) interfaces() map[string]any {
	switch r.IntN(6) {
	case 0:
		return map[string]any{"primarynodeinterface": r.maybe()}
	case 1:
		return map[string]any{"interfacesdiscoveryconfig": map[string]any{"interfaceautodiscovery": true, "allowedinterfaces": []string{"lo"}}}
	case 2:
		return map[string]any{"interfaces": []string{}}
	}
	return map[string]any{"interfaces": some(r, "eth0", "eth1", "br-lan", "lo", ".", "e\\E")}
}

// objectOf returns an object whose program has those of the fields that its type has, or an application with members
// of the types.
func objectOf(t *testing.T, kind v1alpha1.Kind[v1alpha1.UserObject], fields func() map[string]any, members []v1alpha1.EBPFProgType) v1alpha1.UserObject {
	t.Helper()
	program := func() map[string]any {
		f := fields()
		if kind.Namespaced {
			f["containers"] = map[string]any{"pods": map[string]any{}}
		}
		return f
	}
	if kind.Name == "ClusterBpfApplication" {
		return linkedOf(t, kind, program, members)
	}
	spec := program()
	if strings.HasSuffix(kind.Name, "Application") {
		programs := make([]map[string]any, len(members))
		for i, member := range members {
			programs[i] = map[string]any{"type": member, strings.ToLower(string(member)): program()}
		}
		spec = map[string]any{"programs": programs}
	}
	content, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return envtest.Object(t, kind, "x", string(content))
}

// linkedOf returns a ClusterBpfApplication. Its programs have as many links as the schema admits, but at most two, with
// those of the fields that their types have. A program that isn't to be attached has none.
func linkedOf(t *testing.T, kind v1alpha1.Kind[v1alpha1.UserObject], fields func() map[string]any, members []v1alpha1.EBPFProgType) v1alpha1.UserObject {
	t.Helper()
	programs := []map[string]any{{"name": "nowhere", "type": "TracePoint", "tracepoint": map[string]any{}}} // one is required
	for _, member := range members {
		if member == "" {
			continue
		}
		links := []any{linkOf(fields()), linkOf(fields())}
		if member == "Fentry" || member == "Fexit" {
			links = []any{map[string]any{"mode": "Attach"}} // the schema admits one
		}
		if fields()["attach"] == false {
			links = nil
		}
		programs = append(programs, map[string]any{
			"name": "pass", "type": cmp.Or(linkedTypes[member], string(member)),
			strings.ToLower(string(member)): map[string]any{"function": linkOf(fields())["function"], "links": links},
		})
	}
	content, err := json.Marshal(map[string]any{"programs": programs})
	if err != nil {
		t.Fatal(err)
	}
	return envtest.Object(t, kind, "x", string(content))
}

// linkedTypes are the types whose names differ in a ClusterBpfApplication.
var linkedTypes = map[v1alpha1.EBPFProgType]string{
	"Fentry": "FEntry", "Fexit": "FExit", "Kprobe": "KProbe", "Kretprobe": "KRetProbe", "Uprobe": "UProbe", "Uretprobe": "URetProbe",
	"Tracepoint": "TracePoint",
}

// linkOf returns a link with the fields of a program. What the schema doesn't admit is replaced.
func linkOf(fields map[string]any) map[string]any {
	selector := map[string]any{}
	for name, value := range fields["interfaceselector"].(map[string]any) { //nolint:errcheck // as program returns it
		switch name {
		case "primarynodeinterface":
			name = "primaryNodeInterface"
		case "interfacesdiscoveryconfig":
			name, value = "interfacesDiscoveryConfig", map[string]any{"interfaceAutoDiscovery": true}
		}
		selector[name] = value
	}
	tracepoint := fields["names"].([]string)[0] //nolint:errcheck // as program returns it
	return map[string]any{
		"interfaceSelector": selector, "priority": fields["priority"], "direction": fields["direction"], "offset": fields["offset"], "target": fields["target"],
		"function": cmp.Or(fields["func_name"].(string), "tcp_connect"), "name": strings.Replace(tracepoint, "a.b", "axb", 1), //nolint:errcheck // as program returns it
	}
}
