// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/bpfman"
	"github.com/bpfman/bpfman-operator/internal/daemontest/sandbox"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	counterMap = "tracepoint_stats_map"
	group      = 2000
	// namespace is the namespace of the pods.
	namespace = "team"
)

func TestMain(m *testing.M) {
	sandbox.Main(m, map[string]sandbox.Child{
		"open": func(args []string) error {
			m, err := ebpf.LoadPinnedMap(args[0], &ebpf.LoadPinOptions{ReadOnly: args[1] == "ro"})
			if err != nil {
				return err
			}
			return m.Close()
		},
		"plugin": func(args []string) error {
			os.Args = append([]string{"bpfman-csi"}, args...)
			main()
			return nil
		},
	})
}

// kubelet talks to a running plugin like the kubelet.
type kubelet struct {
	options
	node     csi.NodeClient
	identity csi.IdentityClient
	// stop stops the plugin, like SIGTERM.
	stop func() error
}

func startPlugin(tb testing.TB, daemonSocket string) *kubelet {
	tb.Helper()
	directory := sandbox.Root(tb)
	k := &kubelet{options: options{
		endpoint: filepath.Join(directory, "csi.sock"), identityEndpoint: filepath.Join(directory, "identity.sock"),
		daemonSocket: daemonSocket, mapsRoot: sandbox.DaemonMaps,
		kubeletRoot: filepath.Join(directory, "kubelet"), nodeName: "node-1",
		registrationDir: filepath.Join(directory, "no-registration"),
		clusterAccess:   accessAll, metricsAddress: "127.0.0.1:0",
	}}
	if err := os.MkdirAll(filepath.Join(k.kubeletRoot, "pods"), 0o755); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, k.options, slog.New(slog.DiscardHandler)) }()
	k.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	tb.Cleanup(func() {
		if err := k.stop(); err != nil {
			tb.Error(err)
		}
	})
	k.connect(tb)
	return k
}

// connect waits until the plugin responds.
func (k *kubelet) connect(tb testing.TB) {
	tb.Helper()
	// If the socket doesn't exist yet, retry soon.
	soon := backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 10 * time.Millisecond}
	connection, err := grpc.NewClient("unix:"+k.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// If it is zero, an attempt takes at most BaseDelay, and a connection that was just established is closed
		// during its first call.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Minute}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { connection.Close() })
	k.node, k.identity = csi.NewNodeClient(connection), csi.NewIdentityClient(connection)
	if _, err := k.identity.Probe(tb.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		tb.Fatal(err)
	}
}

// request returns a request for the volume of a pod, and creates the pod's directory.
func (k *kubelet) request(tb testing.TB, pod string) *csi.NodePublishVolumeRequest {
	tb.Helper()
	parent := filepath.Join(k.kubeletRoot, "pods", pod, "volumes/kubernetes.io~csi/maps")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		tb.Fatal(err)
	}
	return &csi.NodePublishVolumeRequest{
		VolumeId:   "csi-" + pod,
		TargetPath: filepath.Join(parent, "mount"),
		VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{
			Mount: &csi.VolumeCapability_MountVolume{VolumeMountGroup: fmt.Sprint(group)},
		}},
		VolumeContext: map[string]string{
			v1alpha1.VolumeAttributeProgram:    "counter",
			v1alpha1.VolumeAttributeMaps:       counterMap,
			"csi.storage.k8s.io/pod.name":      pod,
			"csi.storage.k8s.io/pod.namespace": namespace,
		},
	}
}

// publish publishes volumes, which must succeed.
func (k *kubelet) publish(tb testing.TB, requests ...*csi.NodePublishVolumeRequest) {
	tb.Helper()
	for _, request := range requests {
		if _, err := k.node.NodePublishVolume(tb.Context(), request); err != nil {
			tb.Fatalf("publish: %v", err)
		}
	}
}

// unpublish unpublishes volumes, which must succeed.
func (k *kubelet) unpublish(tb testing.TB, requests ...*csi.NodePublishVolumeRequest) {
	tb.Helper()
	for _, request := range requests {
		if _, err := k.node.NodeUnpublishVolume(tb.Context(), unpublishOf(request)); err != nil {
			tb.Errorf("unpublish: %v", err)
		}
	}
}

func unpublishOf(request *csi.NodePublishVolumeRequest) *csi.NodeUnpublishVolumeRequest {
	return &csi.NodeUnpublishVolumeRequest{VolumeId: request.GetVolumeId(), TargetPath: request.GetTargetPath()}
}

func TestPluginStops(t *testing.T) {
	k := startPlugin(t, "/run/no-daemon.sock")
	name, err := k.identity.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || name.GetName() != v1alpha1.CSIDriverName {
		t.Errorf("plugin %v, %v", name, err)
	}
	if err := k.stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(k.endpoint), "*.sock")); err != nil || len(left) != 0 {
		t.Errorf("sockets left: %v, %v", left, err)
	}
}

func TestWithoutDaemon(t *testing.T) {
	k := startPlugin(t, "/run/no-daemon.sock")
	request := k.request(t, "pod")
	start := time.Now()
	_, err := k.node.NodePublishVolume(t.Context(), request)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "bpfman daemon") {
		t.Errorf("publish: %v", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("publish took %v", took)
	}
	k.unpublish(t, request)
}

// load makes the daemon load a program for a user object.
func load(tb testing.TB, daemon gobpfman.BpfmanClient, kind, namespace string) uint32 {
	tb.Helper()
	return loadNamed(tb, daemon, "counter", kind, namespace)
}

func loadNamed(tb testing.TB, daemon gobpfman.BpfmanClient, name, kind, namespace string) uint32 {
	tb.Helper()
	return loadFrom(tb, daemon, "go-tracepoint-counter", "tracepoint_kill_recorder", name, kind, namespace)
}

// loadFrom makes the daemon load a tracepoint program from one of the examples.
func loadFrom(tb testing.TB, daemon gobpfman.BpfmanClient, example, function, name, kind, namespace string) uint32 {
	tb.Helper()
	object, err := filepath.Abs("../../../bin/bytecode/" + example + ".o")
	if err != nil {
		tb.Fatal(err)
	}
	metadata := map[string]string{
		v1alpha1.MetadataProgramName: name, v1alpha1.MetadataKind: kind, v1alpha1.MetadataUUID: name + kind + namespace,
	}
	if namespace != "" {
		metadata[v1alpha1.MetadataNamespace] = namespace
	}
	response, err := daemon.Load(tb.Context(), &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: object}},
		Metadata: metadata,
		Info:     []*gobpfman.LoadInfo{{Name: function, ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT}},
	})
	if err != nil {
		tb.Fatalf("load: %v", err)
	}
	return response.GetPrograms()[0].GetKernelInfo().GetId()
}

// mapID returns the kernel's id of a pinned map.
func mapID(tb testing.TB, pin string) ebpf.MapID {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(pin, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		tb.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

func TestWithTheRealDaemon(t *testing.T) {
	bpfman := sandbox.StartDaemon(t)
	daemon, k := bpfman.Client, startPlugin(t, bpfman.Socket)
	request := k.request(t, "pod-1")
	if _, err := k.node.NodePublishVolume(t.Context(), request); status.Code(err) != codes.NotFound {
		t.Fatalf("publish before the program is loaded: %v", err)
	}

	cluster := load(t, daemon, "TracepointProgram", "")
	load(t, daemon, "TracepointNsProgram", "other")
	pinned := func(id uint32) ebpf.MapID {
		return mapID(t, filepath.Join(sandbox.DaemonMaps, fmt.Sprint(id), counterMap))
	}
	for range 2 {
		k.publish(t, request)
	}
	pin := filepath.Join(request.GetTargetPath(), counterMap)
	if mapID(t, pin) != pinned(cluster) {
		t.Error("the volume doesn't show the cluster-scoped program's map")
	}
	for mode, gid := range map[string]uint32{"rw": group, "ro": group} {
		user := &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{gid}}
		if err := sandbox.Run(t, "open", user, sandbox.Fault{}, pin, mode); err != nil {
			t.Errorf("open %s as a group member: %v", mode, err)
		}
	}

	own := load(t, daemon, "TracepointNsProgram", namespace)
	second := k.request(t, "pod-2")
	second.Readonly = true
	second.VolumeContext[v1alpha1.VolumeAttributeMaps] = "*"
	k.publish(t, second)
	secondPin := filepath.Join(second.GetTargetPath(), counterMap)
	if mapID(t, secondPin) != pinned(own) {
		t.Error("the volume doesn't show the map of the program in the pod's namespace")
	}
	for who, user := range map[string]*syscall.Credential{"a user": {Uid: 1000, Gid: 1000, Groups: []uint32{group}}, "root": {}} {
		if err := sandbox.Run(t, "open", user, sandbox.Fault{}, secondPin, "rw"); err == nil {
			t.Errorf("a read-only volume's map was opened for writing by %s", who)
		}
	}

	third := k.request(t, "pod-3")
	third.VolumeContext[v1alpha1.VolumeAttributeMaps] = "typo"
	_, err := k.node.NodePublishVolume(t.Context(), third)
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), counterMap) {
		t.Errorf("publish of an unknown map: %v", err)
	}
	load(t, daemon, "BpfNsApplication", namespace)
	third.VolumeContext[v1alpha1.VolumeAttributeMaps] = counterMap
	_, err = k.node.NodePublishVolume(t.Context(), third)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "BpfNsApplication, TracepointNsProgram") {
		t.Errorf("publish of an ambiguous name: %v", err)
	}
	third.VolumeContext[v1alpha1.VolumeAttributeKind] = "TracepointNsProgram"
	k.publish(t, third)

	bpfman.Kill()
	k.publish(t, request)
	k.unpublish(t, request, second, third)
	if mounts := sandbox.Mounts(t, k.kubeletRoot); mounts != 0 {
		t.Errorf("%d mounts left", mounts)
	}
}

// TestVolumesFollowTheRealDaemon reloads a program like the agent, which loads the new program before it unloads
// the old one.
func TestVolumesFollowTheRealDaemon(t *testing.T) {
	bpfman := sandbox.StartDaemon(t)
	daemon, k := bpfman.Client, startPlugin(t, bpfman.Socket)
	old := load(t, daemon, "TracepointProgram", "")
	following, staying := k.request(t, "pod-1"), k.request(t, "pod-2")
	staying.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
	k.publish(t, following, staying)
	pin := func(request *csi.NodePublishVolumeRequest) string {
		return filepath.Join(request.GetTargetPath(), counterMap)
	}
	first := mapID(t, pin(following))
	renewed := load(t, daemon, "TracepointProgram", "")
	want := mapID(t, filepath.Join(sandbox.DaemonMaps, fmt.Sprint(renewed), counterMap))
	start := time.Now()
	awaitMap(t, pin(following), want)
	t.Logf("followed after %v", time.Since(start))
	if _, err := daemon.Unload(t.Context(), &gobpfman.UnloadRequest{Id: old}); err != nil {
		t.Fatal(err)
	}
	if got := mapID(t, pin(staying)); got != first {
		t.Errorf("a volume that stays shows map %d, not %d", got, first)
	}
	if message := k.condition(t, following); message != "" {
		t.Errorf("condition of a volume that followed: %s", message)
	}
	if message := k.condition(t, staying); !strings.Contains(message, counterMap) {
		t.Errorf("condition of a volume that stays: %q", message)
	}

	if _, err := daemon.Unload(t.Context(), &gobpfman.UnloadRequest{Id: renewed}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k.publish(t, following)
	}
	if got := mapID(t, pin(following)); got != want {
		t.Errorf("with the program gone the volume shows map %d, not %d", got, want)
	}
	if message := k.condition(t, following); !strings.Contains(message, counterMap) {
		t.Errorf("condition with the program gone: %q", message)
	}
	again := load(t, daemon, "TracepointProgram", "")
	awaitMap(t, pin(following), mapID(t, filepath.Join(sandbox.DaemonMaps, fmt.Sprint(again), counterMap)))
	k.unpublish(t, following, staying)
}

// TestGlobals mounts sections of global variables, which the daemon doesn't pin.
func TestGlobals(t *testing.T) {
	started := sandbox.StartDaemon(t)
	daemon, k := started.Client, startPlugin(t, started.Socket)
	statistics := func() uint32 {
		return loadFrom(t, daemon, "kill_statistics", "kill_statistics", "counter", "TracepointProgram", "")
	}
	old := statistics()
	request := k.request(t, "pod")
	for wanted, says := range map[string]string{"*": "such as .bss", ".bss,.none": `map ".none" not found in program "counter", which has: .bss, .data, .rodata`} {
		request.VolumeContext[v1alpha1.VolumeAttributeMaps] = wanted
		_, err := k.node.NodePublishVolume(t.Context(), request)
		if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), says) {
			t.Errorf("publish of %s: %v", wanted, err)
		}
	}
	request.VolumeContext[v1alpha1.VolumeAttributeMaps] = ".bss, .rodata"
	for range 2 {
		k.publish(t, request)
	}
	bss := filepath.Join(request.GetTargetPath(), "bss")
	first := mapID(t, bss)
	for pin, size := range map[string]uint32{"bss": 68, "rodata": 4} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(request.GetTargetPath(), pin), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		value, err := m.LookupBytes(uint32(0))
		if err != nil || uint32(len(value)) != size {
			t.Errorf("%s has %d bytes, error %v", pin, len(value), err)
		}
		m.Close()
	}
	// Only the daemon in Go tells the kernel the types of it.
	which, err := bpfman.Recognize(t.Context(), daemon)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(bss); (err == nil) != (which == bpfman.Go) || err != nil && !errors.Is(err, syscall.EIO) {
		t.Errorf("read as text: %v", err)
	}
	if message := k.condition(t, request); message != "" {
		t.Errorf("condition: %s", message)
	}
	user := &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{group}}
	if err := sandbox.Run(t, "open", user, sandbox.Fault{}, bss, "ro"); err != nil {
		t.Errorf("open as a group member: %v", err)
	}

	statistics()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for mapID(t, bss) == first {
		if ctx.Err() != nil {
			t.Fatal("the volume didn't follow")
		}
	}
	if _, err := daemon.Unload(t.Context(), &gobpfman.UnloadRequest{Id: old}); err != nil {
		t.Fatal(err)
	}
	if message := k.condition(t, request); message != "" {
		t.Errorf("condition after a reload: %s", message)
	}
	k.unpublish(t, request)
}

// TestGlobalsOfNoProgram keeps the maps of a program that was unloaded, and says so.
func TestGlobalsOfNoProgram(t *testing.T) {
	bpfman := sandbox.StartDaemon(t)
	k := startPlugin(t, bpfman.Socket)
	id := loadFrom(t, bpfman.Client, "kill_statistics", "kill_statistics", "counter", "TracepointProgram", "")
	request := k.request(t, "pod")
	request.VolumeContext[v1alpha1.VolumeAttributeMaps] = ".bss"
	request.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
	k.publish(t, request)
	if _, err := bpfman.Client.Unload(t.Context(), &gobpfman.UnloadRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	if message := k.condition(t, request); !strings.Contains(message, "no loaded program has these maps anymore: bss") {
		t.Errorf("condition: %q", message)
	}
	k.unpublish(t, request)
}

// awaitMap waits until the pin refers to the map. The pin must exist all the time.
func awaitMap(t *testing.T, pin string, want ebpf.MapID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for mapID(t, pin) != want {
		if ctx.Err() != nil {
			t.Fatalf("the volume shows map %d, not %d", mapID(t, pin), want)
		}
	}
}

// condition returns the problem of a volume.
func (k *kubelet) condition(t *testing.T, request *csi.NodePublishVolumeRequest) string {
	t.Helper()
	health, err := k.node.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: request.GetVolumeId()})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range health.GetVolumeHealth().GetHealthStatuses() {
		return status.GetMessage()
	}
	return ""
}

func TestProbe(t *testing.T) {
	k := startPlugin(t, "/run/no-daemon.sock")
	if err := probe(k.endpoint); err != nil {
		t.Errorf("probe: %v", err)
	}
	pods := filepath.Join(k.kubeletRoot, "pods")
	if err := os.Rename(pods, pods+"-gone"); err != nil {
		t.Fatal(err)
	}
	if err := probe(k.endpoint); err == nil || !strings.Contains(err.Error(), "isn't ready") {
		t.Errorf("probe without the kubelet's directory: %v", err)
	}
	if err := k.stop(); err != nil {
		t.Fatal(err)
	}
	if err := probe(k.endpoint); err == nil || !strings.Contains(err.Error(), k.endpoint) {
		t.Errorf("probe of nothing: %v", err)
	}
}
