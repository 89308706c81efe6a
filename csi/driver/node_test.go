// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
)

// fakePrograms has one program, and counts calls.
type fakePrograms struct {
	asked  int
	err    error
	query  program.Query
	since  time.Time
	id     uint32
	loaded map[ebpf.MapID]bool
	// before, if not nil, is what loaded was a little before. looked contains how old it could have been.
	before map[ebpf.MapID]bool
	looked []time.Duration
}

func (f *fakePrograms) Find(_ context.Context, query program.Query, since time.Time) ([]program.Program, error) {
	f.asked++
	f.query, f.since = query, since
	id := cmp.Or(f.id, 7)
	return []program.Program{{ID: id, Name: query.Name, Kind: "TcxProgram", Pins: fmt.Sprint("/pins/", id)}}, f.err
}

func (f *fakePrograms) Loaded(since time.Time) (map[ebpf.MapID]bool, error) {
	f.looked = append(f.looked, time.Since(since))
	if f.before != nil && time.Since(since) >= loadedReuse {
		return f.before, nil
	}
	return f.loaded, nil
}

func (f *fakePrograms) Maps(programs []program.Program, wanted []string) ([]maps.Map, error) {
	return program.Choose([]program.Pinned{{Program: programs[0], Maps: mapsOf(programs[0])}}, wanted)
}

// fakeVolumes records the published maps by target.
type fakeVolumes struct {
	published map[string][]maps.Map
	access    maps.Access
	ready     error
	err       error
	// unreadable is the error of each read.
	unreadable error
	// writable means that the volumes are writable although they are read-only for their pods.
	writable bool
	// entered and proceed delay a publication.
	entered, proceed chan struct{}
}

func (f *fakeVolumes) Ready() error { return f.ready }

// mapsOf returns a program's maps. Their id is that of the program.
func mapsOf(program program.Program) []maps.Map {
	var found []maps.Map
	for _, name := range []string{"config", "counters"} {
		found = append(found, maps.Map{Name: name, Path: program.Pins + "/" + name, ID: ebpf.MapID(program.ID)})
	}
	return found
}

func (f *fakeVolumes) Read(target string) (maps.State, error) {
	published, ok := f.published[target]
	state := maps.State{Mounted: ok, ReadOnly: f.access.ReadOnly && !f.writable}
	for _, m := range published {
		pin := maps.Pin{Name: m.Name, ID: m.ID, Bytes: 4096, Mode: f.access.PinMode()}
		if f.access.Group != nil {
			pin.Group = *f.access.Group
		}
		state.Pins = append(state.Pins, pin)
	}
	return state, f.unreadable
}

func (f *fakeVolumes) List() ([]maps.Volume, error) {
	var volumes []maps.Volume
	for target := range f.published {
		volumes = append(volumes, maps.Volume{ID: publishRequest().GetVolumeId(), Target: target})
	}
	return volumes, nil
}

func (f *fakeVolumes) Publish(volume maps.Volume, maps []maps.Map, access maps.Access) error {
	if f.entered != nil {
		close(f.entered)
		<-f.proceed
	}
	if f.err != nil {
		return f.err
	}
	f.published[volume.Target], f.access = maps, access
	return nil
}

func (f *fakeVolumes) Protect(string) error {
	f.writable = f.err != nil
	return f.err
}

func (f *fakeVolumes) Unpublish(target string) error {
	delete(f.published, target)
	return f.err
}

type policy struct{ err error }

func (p policy) Check(context.Context, access.Use) error { return p.err }

func newTestNode() (*node, *fakePrograms, *fakeVolumes, *bytes.Buffer) {
	programs, volumes, log := &fakePrograms{}, &fakeVolumes{published: map[string][]maps.Map{}}, &bytes.Buffer{}
	return newNode(Options{
		NodeName: "node-1", Version: "v1", Programs: programs, Volumes: volumes, Policy: access.All{},
		Denied: func() {}, Log: slog.New(slog.NewTextHandler(log, nil)),
	}), programs, volumes, log
}

func TestPublish(t *testing.T) {
	n, programs, volumes, log := newTestNode()
	request := publishRequest()
	request.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
	for range 3 {
		publish(t, n, request)
	}
	if programs.asked != 1 {
		t.Errorf("a volume that doesn't follow asked %d times", programs.asked)
	}
	if programs.query != (program.Query{Name: "counter", Namespace: "team"}) {
		t.Errorf("query %+v", programs.query)
	}
	if got := volumes.published[request.GetTargetPath()]; len(got) != 1 || got[0] != (maps.Map{Name: "counters", Path: "/pins/7/counters", ID: 7}) {
		t.Errorf("published %v", got)
	}
	if volumes.access.Group == nil || *volumes.access.Group != 2000 {
		t.Errorf("access %+v", volumes.access)
	}
	for _, word := range []string{"volume=" + request.GetVolumeId(), "namespace=team", "pod=reader-0", "program=counter"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("log %q lacks %s", log, word)
		}
	}
}

func TestPublishFailures(t *testing.T) {
	tests := map[string]struct {
		spoil func(*node, *fakePrograms, *fakeVolumes, *csi.NodePublishVolumeRequest)
		code  codes.Code
		says  string
	}{
		"bad request": {func(_ *node, _ *fakePrograms, _ *fakeVolumes, r *csi.NodePublishVolumeRequest) {
			r.VolumeContext[v1alpha1.VolumeAttributeMaps] = "../x"
		}, codes.InvalidArgument, "../x"},
		"unknown program": {func(_ *node, p *fakePrograms, _ *fakeVolumes, _ *csi.NodePublishVolumeRequest) {
			p.err = fmt.Errorf("program %w", program.ErrNotFound)
		}, codes.NotFound, "program"},
		"ambiguous program": {func(_ *node, p *fakePrograms, _ *fakeVolumes, _ *csi.NodePublishVolumeRequest) {
			p.err = program.ErrAmbiguous
		}, codes.FailedPrecondition, ""},
		"daemon down": {func(_ *node, p *fakePrograms, _ *fakeVolumes, _ *csi.NodePublishVolumeRequest) {
			p.err = program.ErrDaemon
		}, codes.Unavailable, ""},
		"unknown map": {func(_ *node, _ *fakePrograms, _ *fakeVolumes, r *csi.NodePublishVolumeRequest) {
			r.VolumeContext[v1alpha1.VolumeAttributeMaps] = "typo"
		}, codes.NotFound, "config, counters"},
		"denied": {func(n *node, _ *fakePrograms, _ *fakeVolumes, _ *csi.NodePublishVolumeRequest) {
			n.Policy = policy{access.ErrDenied}
		}, codes.PermissionDenied, ""},
		"path": {func(_ *node, _ *fakePrograms, v *fakeVolumes, _ *csi.NodePublishVolumeRequest) {
			v.err = maps.ErrPath
		}, codes.InvalidArgument, ""},
		"mount": {func(_ *node, _ *fakePrograms, v *fakeVolumes, _ *csi.NodePublishVolumeRequest) {
			v.err = errors.New("fsopen bpffs: operation not permitted")
		}, codes.Internal, "fsopen"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n, programs, volumes, log := newTestNode()
			request := publishRequest()
			test.spoil(n, programs, volumes, request)
			_, err := n.NodePublishVolume(t.Context(), request)
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want code %v that says %q", err, test.code, test.says)
			}
			if len(volumes.published) != 0 {
				t.Error("published all the same")
			}
			if !strings.Contains(log.String(), "pod=reader-0") {
				t.Errorf("log %q", log)
			}
		})
	}
}

func TestOneRequestPerTarget(t *testing.T) {
	n, _, volumes, _ := newTestNode()
	volumes.entered, volumes.proceed = make(chan struct{}), make(chan struct{})
	request := publishRequest()
	first := make(chan error, 1)
	go func() {
		_, err := n.NodePublishVolume(context.Background(), request)
		first <- err
	}()
	<-volumes.entered
	if _, err := n.NodePublishVolume(t.Context(), request); status.Code(err) != codes.Aborted {
		t.Errorf("second publish: %v", err)
	}
	unpublish := &csi.NodeUnpublishVolumeRequest{VolumeId: request.GetVolumeId(), TargetPath: request.GetTargetPath()}
	if _, err := n.NodeUnpublishVolume(t.Context(), unpublish); status.Code(err) != codes.Aborted {
		t.Errorf("unpublish meanwhile: %v", err)
	}
	unpublish.TargetPath += "2"
	if _, err := n.NodeUnpublishVolume(t.Context(), unpublish); err != nil {
		t.Errorf("another volume: %v", err)
	}
	close(volumes.proceed)
	if err := <-first; err != nil {
		t.Error(err)
	}
	unpublish.TargetPath = request.GetTargetPath()
	if _, err := n.NodeUnpublishVolume(t.Context(), unpublish); err != nil {
		t.Errorf("unpublish afterwards: %v", err)
	}
}

func TestUnpublishRefuses(t *testing.T) {
	n, programs, _, _ := newTestNode()
	for _, request := range []*csi.NodeUnpublishVolumeRequest{
		{}, {VolumeId: "v"}, {TargetPath: "/t"}, {VolumeId: "a/b", TargetPath: "/t"},
	} {
		if _, err := n.NodeUnpublishVolume(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", request, err)
		}
	}
	if programs.asked != 0 {
		t.Error("the daemon was asked")
	}
}

func TestIdentity(t *testing.T) {
	n, _, volumes, _ := newTestNode()
	i := &identity{Options: n.Options}
	info, err := i.GetPluginInfo(t.Context(), nil)
	if err != nil || info.GetName() != "csi.bpfman.io" || info.GetVendorVersion() != "v1" {
		t.Errorf("info %v, %v", info, err)
	}
	if probe, err := i.Probe(t.Context(), nil); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("probe %v, %v", probe, err)
	}
	volumes.ready = errors.New("no directory")
	if probe, err := i.Probe(t.Context(), nil); err != nil || probe.GetReady().GetValue() {
		t.Errorf("probe %v, %v", probe, err)
	}
	node, err := n.NodeGetInfo(t.Context(), nil)
	if err != nil || node.GetNodeId() != "node-1" {
		t.Errorf("node %v, %v", node, err)
	}
	capabilities, err := n.NodeGetCapabilities(t.Context(), nil)
	var types []csi.NodeServiceCapability_RPC_Type
	for _, capability := range capabilities.GetCapabilities() {
		types = append(types, capability.GetRpc().GetType())
	}
	if err != nil || !slices.Contains(types, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) || !slices.Contains(types, volumeCondition) {
		t.Errorf("capabilities %v, %v", types, err)
	}
	if _, err := n.NodeStageVolume(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("stage: %v", err)
	}
}

// TestLogOfTheEnd checks that the last line about a volume contains its pod and program.
func TestLogOfTheEnd(t *testing.T) {
	n, _, volumes, log := newTestNode()
	publish(t, n, publishRequest())
	request := &csi.NodeUnpublishVolumeRequest{VolumeId: publishRequest().GetVolumeId(), TargetPath: publishRequest().GetTargetPath()}
	log.Reset()
	if n.endLog("another", request.GetTargetPath()).Info("The end"); !strings.Contains(log.String(), "volume=another") || strings.Contains(log.String(), "pod=") {
		t.Errorf("log %q of another volume at the same path", log)
	}
	volumes.err = errors.New("busy")
	for _, last := range []string{"Failed to unpublish the volume", "Unpublished the volume"} {
		log.Reset()
		_, err := n.NodeUnpublishVolume(t.Context(), request)
		if (err == nil) != (volumes.err == nil) {
			t.Errorf("unpublish: %v", err)
		}
		for _, word := range []string{last, "namespace=team", "pod=reader-0", "program=counter"} {
			if !strings.Contains(log.String(), word) {
				t.Errorf("log %q lacks %s", log, word)
			}
		}
		volumes.err = nil
	}
}
