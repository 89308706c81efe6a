// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/registry"
)

// Only the image that a reference means contains the requested function. The other images lack
// it.
func TestReferences(t *testing.T) {
	n := start(t)
	right, wrong := build(t, "tcx_test"), build(t, "go-tcx-counter")
	n.Push("tag:latest", right)
	n.Push("tag:v1", wrong)
	n.Push("digest:latest", wrong)
	n.Push("digest:right", right)
	other := "s390x"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	n.Push("index:latest", mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: wrong, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: other}}},
		mutate.IndexAddendum{Add: right, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
	))
	n.Push("other:latest", mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: right, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: other}}}))
	path, err := filepath.Abs(filepath.Join(objectDir, "tcx_test.o"))
	if err != nil {
		t.Fatal(err)
	}
	const notHad, failed = v1alpha1.BpfProgCondBytecodeSelectorError, v1alpha1.BpfProgCondNotLoaded
	for _, c := range []struct {
		name      string
		bytecode  v1alpha1.BytecodeSelector
		condition v1alpha1.BpfProgramConditionType
		refusal   string
	}{
		{"tag", n.image("tag:latest", ""), "", ""},
		{"no-tag", n.image("tag", ""), "", ""},
		{"another-tag", n.image("tag:v1", ""), failed, "the bytecode has no function tcx_next"},
		{"absent-tag", n.image("tag:v2", ""), notHad, "has no such image"},
		{"digest", n.image("digest@"+digest(t, right), ""), "", ""},
		// The node has the image of the digest, but not of the tag.
		{"tag-for-digest", n.image("digest:latest", ""), failed, "tcx_next"},
		{"digest-and-tag", n.image("digest:latest@"+digest(t, right), ""), "", ""},
		{"index", n.image("index:latest", ""), "", ""},
		{"index-of-others", n.image("other:latest", ""), notHad, "other:latest: it has no manifest for linux/"},
		{"path", v1alpha1.BytecodeSelector{Path: &path}, "", ""},
		{"absent-path", v1alpha1.BytecodeSelector{Path: new("/absent.o")}, failed, "when loading tcx_next from file /absent.o"},
	} {
		t.Run(c.name, func(*testing.T) {
			o := n.program("reference-"+c.name, c.bytecode)
			n.create(o)
			if c.refusal != "" {
				n.fails(o, c.condition, c.refusal)
			} else {
				n.loaded(o)
			}
			n.delete(o)
		})
	}
}

// An endless file is refused before the daemon starts to read it.
func TestEndlessFiles(t *testing.T) {
	n := start(t)
	for name, path := range map[string]string{"zero": "/dev/zero", "above": "/run/../dev/zero", "kernel": "/proc/kmsg", "pipe": "/run/bpfman/cri/containerd/x/log", "map": "/run/bpfman/fs/maps/1/m"} {
		o := n.program("endless-"+name, v1alpha1.BytecodeSelector{Path: &path})
		n.create(o)
		n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, "bytecode path "+path+" is not a regular file")
	}
}

// When each pull policy pulls, and what is loaded after the tag has moved.
func TestPullPolicies(t *testing.T) {
	n := start(t)
	right, wrong := build(t, "tcx_test"), build(t, "go-tcx-counter")
	n.Push("policy:latest", right)
	object := func(name string, policy v1alpha1.PullPolicy) *v1alpha1.TcxProgram {
		return n.program("policy-"+name, n.image("policy:latest", policy))
	}

	never := object("never", v1alpha1.PullNever)
	n.create(never)
	n.fails(never, v1alpha1.BpfProgCondBytecodeSelectorError, "policy:latest isn't on this node, and the pull policy is Never")
	if pulls := n.Pulls("policy"); pulls != 0 {
		t.Errorf("%d pulls with the policy Never", pulls)
	}

	ifNotPresent := object("if-not-present", v1alpha1.PullIfNotPresent)
	n.create(ifNotPresent)
	n.loaded(ifNotPresent)
	n.loaded(never) // the image that another object pulled

	// From here on, the tag refers to an image without the function.
	n.Push("policy:latest", wrong)
	pulled := n.Pulls("policy")
	second := object("if-not-present-again", v1alpha1.PullIfNotPresent)
	n.create(second)
	n.loaded(second)
	if again := n.Pulls("policy"); again != pulled {
		t.Errorf("%d pulls of what is present", again-pulled)
	}
	always := object("always", v1alpha1.PullAlways)
	n.create(always)
	n.fails(always, v1alpha1.BpfProgCondNotLoaded, "tcx_next")
	n.Push("policy:latest", right)
	n.loaded(always)
}

// secret returns a pull Secret of either type, with an entry for the registry.
func secret(name string, kind corev1.SecretType, entries map[string]any) *corev1.Secret {
	content, key := any(entries), corev1.DockerConfigKey
	if kind == corev1.SecretTypeDockerConfigJson {
		content, key = map[string]any{"auths": entries}, corev1.DockerConfigJsonKey
	}
	text, err := json.Marshal(content)
	if err != nil {
		panic(err) // encoding these values never fails
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: kind, Data: map[string][]byte{key: text}}
}

func basic(password string) map[string]any {
	return map[string]any{"auth": base64.StdEncoding.EncodeToString([]byte("user:" + password))}
}

func members(password string) map[string]any {
	return map[string]any{"username": "user", "password": password}
}

func (n *node) privateProgram(name, repository, secret string) *v1alpha1.TcxProgram {
	o := n.program(name, n.image(registry.Private+repository+":latest", v1alpha1.PullAlways))
	if secret != "" {
		o.Spec.ByteCode.Image.ImagePullSecret = &v1alpha1.ImagePullSecretSelector{Name: secret, Namespace: namespace}
	}
	return o
}

// A private image is pulled with each form of Secret. Without a Secret, or with a wrong one, it
// isn't.
func TestPullSecrets(t *testing.T) {
	n := start(t)
	n.SetCredentials("user", "pass:word")
	n.Push(registry.Private+"a:latest", build(t, "tcx_test"))
	for name, c := range map[string]struct {
		secret  *corev1.Secret
		refused bool
	}{
		"json-auth":        {secret("json-auth", corev1.SecretTypeDockerConfigJson, map[string]any{n.Address: basic("pass:word")}), false},
		"json-members":     {secret("json-members", corev1.SecretTypeDockerConfigJson, map[string]any{n.Address: members("pass:word")}), false},
		"cfg-auth":         {secret("cfg-auth", corev1.SecretTypeDockercfg, map[string]any{n.Address: basic("pass:word")}), false},
		"cfg-members":      {secret("cfg-members", corev1.SecretTypeDockercfg, map[string]any{n.Address: members("pass:word")}), false},
		"url":              {secret("url", corev1.SecretTypeDockerConfigJson, map[string]any{"https://" + n.Address + "/v2/": basic("pass:word")}), false},
		"wrong-password":   {secret("wrong-password", corev1.SecretTypeDockerConfigJson, map[string]any{n.Address: basic("wrong")}), true},
		"other-registry":   {secret("other-registry", corev1.SecretTypeDockerConfigJson, map[string]any{"quay.io": basic("pass:word")}), true},
		"without-a-secret": {nil, true},
	} {
		t.Run(name, func(*testing.T) {
			used := ""
			if c.secret != nil {
				n.create(c.secret)
				used = c.secret.Name
			}
			o := n.privateProgram("secret-"+name, "a", used)
			n.create(o)
			if c.refused {
				n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, registry.Private+"a:latest")
			} else {
				n.loaded(o)
			}
			n.delete(o)
		})
	}
}

// A Secret is created late, rotated, and deleted. The program isn't changed, and keeps running.
func TestSecretsLife(t *testing.T) {
	n := start(t)
	n.SetCredentials("user", "first")
	n.Push(registry.Private+"life:latest", build(t, "tcx_test"))
	o := n.privateProgram("secret-life", "life", "life")
	n.create(o)
	n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, `get pull Secret bytecodesource/life: `, "not found")
	s := secret("life", corev1.SecretTypeDockerConfigJson, map[string]any{n.Address: basic("first")})
	n.create(s)
	id := n.loaded(o)

	n.SetCredentials("user", "second")
	n.change(o, func() { o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_u8": {1}} })
	failed := n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, fmt.Sprintf("(the previously loaded program %d keeps running)", id))
	if failed.Status.ProgramID != id || len(failed.Status.Links) != 1 {
		t.Errorf("status %+v", failed.Status)
	}
	n.change(s, func() {
		s.Data = secret("", corev1.SecretTypeDockerConfigJson, map[string]any{n.Address: basic("second")}).Data
	})
	rotated := n.loaded(o)
	if rotated == id {
		t.Errorf("still program %d", id)
	}

	n.delete(s)
	n.change(o, func() { o.Spec.Priority = 7 }) // this needs no Secret
	if got := n.loaded(o); got != rotated {
		t.Errorf("program %d became %d", rotated, got)
	}
	n.change(o, func() { o.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_u8": {2}} })
	n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, "not found", fmt.Sprintf("(the previously loaded program %d keeps running)", rotated))
}

// If a registry is down, programs whose images the node has aren't affected. Programs that need
// it are loaded when it is back.
func TestRegistryDown(t *testing.T) {
	n := start(t)
	n.Push("down:latest", build(t, "tcx_test"))
	has := n.program("down-has", n.image("down:latest", v1alpha1.PullIfNotPresent))
	n.create(has)
	id := n.loaded(has)
	n.Stop()

	n.change(has, func() { has.Spec.GlobalData = v1alpha1.GlobalData{"GLOBAL_u8": {1}} })
	if again := n.loaded(has); again == id {
		t.Errorf("still program %d", id)
	}
	waits := n.program("down-waits", n.image("down:latest", v1alpha1.PullAlways))
	n.create(waits)
	n.fails(waits, v1alpha1.BpfProgCondBytecodeSelectorError, "image "+n.Address+"/down:latest: ", "refuses connections")
	n.Start()
	n.loaded(waits)
}

// After the agent has started again, it needs no registry for what the node has. If a file
// in the store was altered, it does.
func TestRestartWithoutRegistry(t *testing.T) {
	n := start(t)
	n.Push("kept:latest", build(t, "tcx_test"))
	o := n.program("kept", n.image("kept:latest", v1alpha1.PullIfNotPresent))
	n.create(o)
	n.loaded(o)
	n.Stop()
	n.stop()
	n.startAgent()
	second := n.program("kept-second", n.image("kept:latest", v1alpha1.PullIfNotPresent))
	n.create(second)
	n.loaded(second)

	files, err := filepath.Glob(filepath.Join(n.store.Dir, "images", "*", "kept@sha256:*.o"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	altered := append(bytecode(t, "tcx_test"), 0)
	must.Succeed(t, errors.Join(os.Remove(files[0]), os.WriteFile(files[0], altered, 0o600)))
	third := n.program("kept-third", n.image("kept:latest", v1alpha1.PullIfNotPresent))
	n.create(third)
	n.fails(third, v1alpha1.BpfProgCondBytecodeSelectorError, "refuses connections")
	n.Start()
	n.loaded(third)
}

// Globals of each size have the specified values in the program, from base64 or from a list.
func TestGlobalData(t *testing.T) {
	n := start(t)
	n.Push("globals:latest", build(t, "globals"))
	values := map[string][]byte{
		"GLOBAL_u8": {0xa1}, "GLOBAL_u16": {0xb1, 0xb2}, "GLOBAL_u32": {0xc1, 0xc2, 0xc3, 0xc4},
		"GLOBAL_u64": {0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8}, "GLOBAL_bytes": {0, 1, 2, 3, 4, 5, 6, 0xff},
	}
	want := []uint64{0xa1, 0xb2b1, 0xc4c3c2c1, 0xd8d7d6d5d4d3d2d1, 0, 1, 2, 3, 4, 5, 6, 0xff}
	for form, written := range map[string]func([]byte) any{
		"base64": func(b []byte) any { return base64.StdEncoding.EncodeToString(b) },
		"list": func(b []byte) any {
			var list []any
			for _, value := range b {
				list = append(list, int64(value))
			}
			return list
		},
	} {
		t.Run(form, func(t *testing.T) {
			globals := map[string]any{}
			for name, value := range values {
				globals[name] = written(value)
			}
			o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"nodeselector": map[string]any{"matchLabels": map[string]any{"test": n.name}}, "globaldata": globals,
				"bytecode":        map[string]any{"image": map[string]any{"url": n.Address + "/globals:latest"}},
				"bpffunctionname": "show_globals", "names": []any{"syscalls/sys_enter_kill"},
			}}}
			o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("TracepointProgram"))
			o.SetName("globals-" + form)
			n.create(o)
			n.loaded(o)
			pin := n.reports(o, "loaded", func(*v1alpha1.BpfProgram) error { return nil }).Spec.Maps["globals_map"]
			m, err := ebpf.LoadPinnedMap(n.Path(pin), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			must.Succeed(t, syscall.Kill(syscall.Getpid(), 0))
			for slot, value := range want {
				var got uint64
				if err := m.Lookup(uint32(slot), &got); err != nil || got != value {
					t.Errorf("slot %d has %#x, %v, want %#x", slot, got, err, value)
				}
			}
			n.delete(o)
		})
	}
}
