// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package manifests tests the samples and examples without a cluster: what they name exists,
// and their pods are unprivileged.
package manifests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const (
	samplesDir  = "../../config/samples"
	examplesDir = "../../examples/config"
	objectDir   = "../../bin/bytecode"

	programAttribute = "csi.bpfman.io/program"
	mapsAttribute    = "csi.bpfman.io/maps"
)

// manifest is one object in a file.
type manifest struct {
	file   string
	object runtime.Object
}

// readManifests reads all objects below a directory, and refuses unknown fields.
func readManifests(t *testing.T, dir string) []manifest {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), v1alpha1.Install(scheme)))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var manifests []manifest
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			manifests = append(manifests, manifest{path, object})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// bytecode is the content of an object file.
type bytecode struct {
	programs, maps map[string]string
}

func readBytecode(t *testing.T, url string) bytecode {
	t.Helper()
	name, _, _ := strings.Cut(strings.TrimPrefix(url, "quay.io/bpfman-bytecode/"), ":")
	// The private image only differs in that it requires a login.
	file := strings.TrimSuffix(name, "_private") + ".o"
	object, err := os.ReadFile(filepath.Join(objectDir, file))
	if err != nil {
		t.Fatalf("image %s: %v", url, err)
	}
	labels, err := bytecodeimage.Labels(object)
	if err != nil {
		t.Fatal(err)
	}
	var b bytecode
	if err := errors.Join(
		json.Unmarshal([]byte(labels[bytecodeimage.ProgramsLabel]), &b.programs),
		json.Unmarshal([]byte(labels[bytecodeimage.MapsLabel]), &b.maps),
	); err != nil {
		t.Fatal(err)
	}
	return b
}

func requireBytecode(t *testing.T) {
	t.Helper()
	if objects, _ := filepath.Glob(filepath.Join(objectDir, "*.o")); len(objects) == 0 {
		prerequisite.Missing(t, "run `make bytecode` first", prerequisite.Bytecode)
	}
}

// TestFunctionsAreInTheImages checks that each function in a sample or example is in the image
// of the same object.
func TestFunctionsAreInTheImages(t *testing.T) {
	requireBytecode(t)
	for _, m := range append(readManifests(t, samplesDir), readManifests(t, examplesDir)...) {
		user, ok := m.object.(v1alpha1.UserObject)
		if !ok {
			continue
		}
		image := user.GetAppCommon().ByteCode.Image
		if image == nil {
			t.Errorf("%s names no image", m.file)
			continue
		}
		has := readBytecode(t, image.Url)
		members, _ := user.Members()
		if len(members) == 0 {
			t.Errorf("%s names no function", m.file)
		}
		for _, member := range members {
			function := member.Info().Common().BpfFunctionName
			if _, ok := has.programs[function]; !ok {
				t.Errorf("%s: no function %s in %s", m.file, function, image.Url)
			}
		}
	}
}

// TestUprobesOfLibcHaveATarget checks samples that probe libc in the node components. The
// project's images are static, so only the daemon's container has a libc.
func TestUprobesOfLibcHaveATarget(t *testing.T) {
	probed := 0
	check := func(file, target string, containers *v1alpha1.ContainerSelector) {
		if target != "libc" || containers == nil || containers.Pods.MatchLabels["name"] != "bpfman-daemon" {
			return
		}
		probed++
		if names := containers.ContainerNames; names == nil || !slices.Equal(*names, []string{"bpfman"}) {
			t.Errorf("%s: probes libc in containers %v, of which only bpfman has one", file, names)
		}
	}
	for _, m := range readManifests(t, samplesDir) {
		switch o := m.object.(type) {
		case *v1alpha1.UprobeProgram:
			check(m.file, o.Spec.Target, o.Spec.Containers)
		case *v1alpha1.BpfApplication:
			for _, p := range o.Spec.Programs {
				if p.Uprobe != nil {
					check(m.file, p.Uprobe.Target, p.Uprobe.Containers)
				}
			}
		}
	}
	if probed == 0 {
		t.Error("no sample probes libc in the daemon's pod")
	}
}

// TestSamplesCoverEveryKind checks that the samples that are applied together include each kind
// that users write.
func TestSamplesCoverEveryKind(t *testing.T) {
	content := must.Read(t, filepath.Join(samplesDir, "kustomization.yaml"))
	var kustomization struct{ Resources []string }
	must.Succeed(t, yaml.Unmarshal(content, &kustomization))
	kinds := map[string]bool{}
	for _, m := range readManifests(t, samplesDir) {
		if slices.Contains(kustomization.Resources, filepath.Base(m.file)) {
			kinds[m.object.GetObjectKind().GroupVersionKind().Kind] = true
		}
	}
	for _, kind := range v1alpha1.UserKinds {
		if !kinds[kind.Name] {
			t.Errorf("no sample of %s in kustomization.yaml", kind.Name)
		}
	}
	for _, policy := range []string{v1alpha1.PolicyKind.Name, v1alpha1.RolloutPolicyKind.Name} {
		if !kinds[policy] {
			t.Errorf("no sample of %s in kustomization.yaml", policy)
		}
	}
}

// TestVolumesNameWhatIsThere checks that the program and the maps of each volume exist.
func TestVolumesNameWhatIsThere(t *testing.T) {
	requireBytecode(t)
	manifests := readManifests(t, examplesDir)
	images := map[string]string{}
	for _, m := range manifests {
		if user, ok := m.object.(v1alpha1.UserObject); ok {
			images[user.GetName()] = user.GetAppCommon().ByteCode.Image.Url
		}
	}
	for _, m := range manifests {
		ds, ok := m.object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		for _, volume := range ds.Spec.Template.Spec.Volumes {
			if volume.CSI == nil {
				continue
			}
			attributes := volume.CSI.VolumeAttributes
			image, ok := images[attributes[programAttribute]]
			if !ok {
				t.Errorf("%s: no program %s", m.file, attributes[programAttribute])
				continue
			}
			has := readBytecode(t, image)
			for name := range strings.SplitSeq(attributes[mapsAttribute], ",") {
				if _, ok := has.maps[name]; !ok {
					t.Errorf("%s: no map %s in %s", m.file, name, image)
				}
			}
		}
	}
}

// TestPodsAreRestricted checks every pod against the Pod Security Standard restricted. Pods
// that open maps with bpf(2) can't have the required seccomp profile, because it forbids this
// system call.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, m := range append(readManifests(t, samplesDir), readManifests(t, examplesDir)...) {
		var template corev1.PodTemplateSpec
		switch object := m.object.(type) {
		case *appsv1.DaemonSet:
			template = object.Spec.Template
		case *appsv1.Deployment:
			template = object.Spec.Template
		default:
			continue
		}
		pods++
		level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
		opensMaps := strings.Contains(template.Spec.Containers[0].Image, "/bpfman-counters:")
		if !result.Allowed && (!opensMaps || !slices.Equal(result.ForbiddenReasons, []string{"seccompProfile"})) {
			t.Errorf("%s: %s", m.file, result.ForbiddenDetail())
		}
		if token := template.Spec.AutomountServiceAccountToken; token == nil || *token {
			t.Errorf("%s: the pod gets a token that it has no use for", m.file)
		}
	}
	if pods == 0 {
		t.Error("no pod among samples and examples")
	}
}
