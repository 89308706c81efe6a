// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
)

// TestBreakOut tries to access objects of others from a pod in namespace team, with the real
// daemon, through each field of a request. Another tenant has the programs "secret" and
// "counter". There is also a cluster-scoped "counter".
func TestBreakOut(t *testing.T) {
	bpfman := sandbox.StartDaemon(t)
	daemon := bpfman.Client
	const tenant = "other"
	loadNamed(t, daemon, "secret", "TracepointNsProgram", tenant)
	theirs := load(t, daemon, "TracepointNsProgram", tenant)
	load(t, daemon, "TracepointProgram", "")
	k := startPlugin(t, bpfman.Socket)
	outside := filepath.Join(filepath.Dir(k.kubeletRoot), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "mount"), 0o755); err != nil {
		t.Fatal(err)
	}

	attribute := func(key, value string) func(*csi.NodePublishVolumeRequest) {
		return func(r *csi.NodePublishVolumeRequest) { r.VolumeContext[key] = value }
	}
	target := func(path string) func(*csi.NodePublishVolumeRequest) {
		return func(r *csi.NodePublishVolumeRequest) { r.TargetPath = path }
	}
	programPins := filepath.Join(sandbox.DaemonMaps, fmt.Sprint(theirs))
	for name, test := range map[string]struct {
		ask  func(*csi.NodePublishVolumeRequest)
		code codes.Code
	}{
		"another tenant's program":            {attribute(v1alpha1.VolumeAttributeProgram, "secret"), codes.NotFound},
		"another tenant's program, with kind": {attribute(v1alpha1.VolumeAttributeKind, "TracepointNsProgram"), codes.NotFound},
		"another tenant's program, by path":   {attribute(v1alpha1.VolumeAttributeProgram, "other/secret"), codes.InvalidArgument},
		"a program by its pins":               {attribute(v1alpha1.VolumeAttributeProgram, programPins), codes.InvalidArgument},
		"a program by nothing":                {attribute(v1alpha1.VolumeAttributeProgram, ""), codes.InvalidArgument},
		"a program with NUL":                  {attribute(v1alpha1.VolumeAttributeProgram, "counter\x00secret"), codes.InvalidArgument},
		"a program of 4 kB":                   {attribute(v1alpha1.VolumeAttributeProgram, strings.Repeat("x", 4096)), codes.InvalidArgument},
		"a program by pattern":                {attribute(v1alpha1.VolumeAttributeProgram, "*"), codes.NotFound},
		"no namespace":                        {attribute("csi.storage.k8s.io/pod.namespace", ""), codes.InvalidArgument},
		"a map by ..":                         {attribute(v1alpha1.VolumeAttributeMaps, fmt.Sprintf("../%d/%s", theirs, counterMap)), codes.InvalidArgument},
		"a map by an absolute path":           {attribute(v1alpha1.VolumeAttributeMaps, filepath.Join(programPins, counterMap)), codes.InvalidArgument},
		"a map of dots":                       {attribute(v1alpha1.VolumeAttributeMaps, ".."), codes.InvalidArgument},
		"a map with NUL":                      {attribute(v1alpha1.VolumeAttributeMaps, counterMap+"\x00"), codes.InvalidArgument},
		"a map of 4 kB":                       {attribute(v1alpha1.VolumeAttributeMaps, strings.Repeat("x", 4096)), codes.InvalidArgument},
		"a map twice":                         {attribute(v1alpha1.VolumeAttributeMaps, counterMap+", "+counterMap), codes.InvalidArgument},
		"a map between commas":                {attribute(v1alpha1.VolumeAttributeMaps, ","+counterMap), codes.InvalidArgument},
		"a map with a blank within":           {attribute(v1alpha1.VolumeAttributeMaps, "tracepoint stats_map"), codes.NotFound},
		"the program's constants":             {attribute(v1alpha1.VolumeAttributeMaps, ".rodata"), codes.NotFound},
		"the kernel's list of all maps":       {attribute(v1alpha1.VolumeAttributeMaps, "maps.debug"), codes.NotFound},
		"a temporary pin":                     {attribute(v1alpha1.VolumeAttributeMaps, "~"+counterMap), codes.NotFound},
		"a volume id with separators":         {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "../../x" }, codes.InvalidArgument},
		"a volume id of 4 kB":                 {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = strings.Repeat("x", 4096) }, codes.InvalidArgument},
		"a target outside the kubelet's root": {target(filepath.Join(outside, "mount")), codes.InvalidArgument},
		"a target that leaves by ..":          {target(k.kubeletRoot + "/pods/../../outside/mount"), codes.InvalidArgument},
		"a relative target":                   {target("pods/x/mount"), codes.InvalidArgument},
		"the directory of pods as a target":   {target(k.kubeletRoot + "/pods"), codes.InvalidArgument},
		"a target with NUL":                   {target(k.kubeletRoot + "/pods/x\x00/mount"), codes.InvalidArgument},
		"a target of 8 kB":                    {target(k.kubeletRoot + "/pods/" + strings.Repeat("x/", 4096) + "mount"), codes.InvalidArgument},
		"a target behind a symbolic link":     {target(plant(t, filepath.Join(k.kubeletRoot, "pods/linked"), outside)), codes.InvalidArgument},
		"a target that is a symbolic link":    {func(r *csi.NodePublishVolumeRequest) { plant(t, r.GetTargetPath(), outside) }, codes.InvalidArgument},
		"a group that is all groups":          {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.GetMount().VolumeMountGroup = "4294967295" }, codes.InvalidArgument},
		"a raw device": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{}}
		}, codes.InvalidArgument},
		"to follow in a way that there isn't":   {attribute(v1alpha1.VolumeAttributeFollow, "../x"), codes.InvalidArgument},
		"more maps than any program could have": {attribute(v1alpha1.VolumeAttributeMaps, strings.Repeat("x,", 10000)+"x"), codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			request := k.request(t, "pod-"+strings.NewReplacer(" ", "-", "'", "", ",", "", ".", "").Replace(name))
			test.ask(request)
			_, err := k.node.NodePublishVolume(t.Context(), request)
			if status.Code(err) != test.code {
				t.Errorf("publish: %v, want %v", err, test.code)
			}
			if err != nil && strings.Contains(err.Error(), fmt.Sprintf("%q", tenant)) {
				t.Errorf("tells of another tenant: %v", err)
			}
			_, _ = k.node.NodeUnpublishVolume(t.Context(), unpublishOf(request))
			if mounts := sandbox.Mounts(t, filepath.Dir(k.kubeletRoot)); mounts != 0 {
				t.Errorf("%d mounts", mounts)
			}
			if _, err := os.Stat(filepath.Join(outside, "mount")); err != nil {
				t.Errorf("outside: %v", err)
			}
		})
	}
}

// TestGlobalsAreOnlyGivenByName requests the constants of a program, which are a map in the kernel. A pod gets them
// only if its volume names their section, and never those of another program.
func TestGlobalsAreOnlyGivenByName(t *testing.T) {
	bpfman := sandbox.StartDaemon(t)
	daemon := bpfman.Client
	program := loadFrom(t, daemon, "globals", "show_globals", "globals", "TracepointProgram", "")
	pinned, err := os.ReadDir(filepath.Join(sandbox.DaemonMaps, fmt.Sprint(program)))
	if err != nil || len(pinned) != 1 {
		t.Errorf("the daemon pins %v, %v", pinned, err)
	}
	loadFrom(t, daemon, "kill_statistics", "kill_statistics", "other", "TracepointProgram", "")
	k := startPlugin(t, bpfman.Socket)
	request := k.request(t, "pod")
	request.VolumeContext[v1alpha1.VolumeAttributeProgram] = "globals"
	for _, list := range []string{".bss", "globals_map,.data", ".", "globals.rodata", "rodata"} {
		request.VolumeContext[v1alpha1.VolumeAttributeMaps] = list
		if _, err := k.node.NodePublishVolume(t.Context(), request); (status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "globals_map")) && status.Code(err) != codes.InvalidArgument {
			t.Errorf("publish of %s: %v", list, err)
		}
	}
	request.VolumeContext[v1alpha1.VolumeAttributeMaps] = "*"
	k.publish(t, request)
	mapID(t, filepath.Join(request.GetTargetPath(), "globals_map"))
	entries, err := os.ReadDir(request.GetTargetPath())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.Contains(entry.Name(), "rodata") {
			t.Errorf("the volume has %s", entry.Name())
		}
	}
	k.unpublish(t, request)
}

// TestBreakOutOfOtherCalls unpublishes and inspects what isn't a volume, or belongs to
// others.
func TestBreakOutOfOtherCalls(t *testing.T) {
	k := startPlugin(t, "/run/no-daemon.sock")
	outside := filepath.Join(filepath.Dir(k.kubeletRoot), "outside")
	sandbox.MountBPFFS(t, filepath.Join(outside, "mount"))
	pod := filepath.Dir(k.request(t, "pod").GetTargetPath())
	for name, test := range map[string]struct{ id, path string }{
		"a volume id with separators": {"../../x", filepath.Join(pod, "mount")},
		"a volume id with NUL":        {"csi-1\x00", filepath.Join(pod, "mount")},
		"no volume id":                {"", filepath.Join(pod, "mount")},
		"a volume id of 4 kB":         {strings.Repeat("x", 4096), filepath.Join(pod, "mount")},
		"no path":                     {"csi-1", ""},
		"a path outside":              {"csi-1", filepath.Join(outside, "mount")},
		"a path that leaves by ..":    {"csi-1", pod + "/../../../../../../outside/mount"},
		"a path behind a link":        {"csi-1", plant(t, filepath.Join(pod, "linked"), outside)},
		"a path that is a link":       {"csi-1", filepath.Dir(plant(t, filepath.Join(pod, "last"), filepath.Join(outside, "mount")))},
		"a path with NUL":             {"csi-1", pod + "/mount\x00/x"},
		"the directory of pods":       {"csi-1", filepath.Join(k.kubeletRoot, "pods")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := k.node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: test.id, TargetPath: test.path})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("unpublish: %v", err)
			}
			_, err = k.node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: test.id, VolumePath: test.path})
			if code := status.Code(err); code != codes.InvalidArgument && code != codes.NotFound {
				t.Errorf("stats: %v", err)
			}
			_, err = k.node.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: test.id, VolumePublishPath: test.path})
			if code := status.Code(err); code != codes.InvalidArgument && code != codes.NotFound {
				t.Errorf("health: %v", err)
			}
			if mounts := sandbox.Mounts(t, outside); mounts != 1 {
				t.Errorf("%d mounts outside", mounts)
			}
		})
	}
}

// plant creates a symbolic link at a component of a target, and returns the target behind
// it.
func plant(t *testing.T, link, destination string) string {
	t.Helper()
	if err := os.Symlink(destination, link); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(link, "mount")
}

// TestBreakOutOfTheRegistrar calls what node-driver-registrar doesn't need.
func TestBreakOutOfTheRegistrar(t *testing.T) {
	k := startPlugin(t, filepath.Join(t.TempDir(), "no-daemon.sock"))
	connection, err := grpc.NewClient("unix:"+k.identityEndpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != v1alpha1.CSIDriverName {
		t.Errorf("the plugin is %v, %v", info, err)
	}
	node := csi.NewNodeClient(connection)
	_, published := node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{})
	_, unpublished := node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{})
	for _, err := range []error{published, unpublished} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("a node's call: %v", err)
		}
	}
}
