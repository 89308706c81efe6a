// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
)

// publish publishes like the kubelet for a pod that starts or runs. An error would cause an
// Event on the pod.
func publish(t *testing.T, n *node, request *csi.NodePublishVolumeRequest) {
	t.Helper()
	if _, err := n.NodePublishVolume(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

// shown returns the id of the program whose maps are in the test's volume.
func shown(t *testing.T, volumes *fakeVolumes) ebpf.MapID {
	t.Helper()
	shown := volumes.published[publishRequest().GetTargetPath()]
	if len(shown) != 1 {
		t.Fatalf("published %v", shown)
	}
	return shown[0].ID
}

func TestLiveVolumeFollowsItsProgram(t *testing.T) {
	n, programs, volumes, log := newTestNode()
	publish(t, n, publishRequest())
	publish(t, n, publishRequest())
	if age := time.Since(programs.since); age < createReuse {
		t.Errorf("a live volume asks for what is %v old at most", age)
	}
	programs.id = 9
	publish(t, n, publishRequest())
	if shown(t, volumes) != 9 {
		t.Error("the volume shows the old map")
	}
	if strings.Count(log.String(), "Updated the volume") != 1 {
		t.Errorf("log %q", log)
	}
}

func TestLiveVolumeKeepsItsMaps(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*node, *fakePrograms)
		says  string
	}{
		"program gone": {func(_ *node, p *fakePrograms) { p.err = fmt.Errorf("program %w", program.ErrNotFound) }, "program not found"},
		"map gone": {func(n *node, p *fakePrograms) {
			p.id = 9
			n.Programs = without{p}
		}, "map not found"},
		"right gone": {func(n *node, p *fakePrograms) {
			p.id = 9
			n.Policy = policy{fmt.Errorf("%w: needs use", access.ErrDenied)}
		}, "needs use"},
		"daemon down": {func(_ *node, p *fakePrograms) { p.err = program.ErrDaemon }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, programs, volumes, log := newTestNode()
			publish(t, n, publishRequest())
			programs.loaded = map[ebpf.MapID]bool{7: true}
			test.spoil(n, programs)
			for range 3 {
				publish(t, n, publishRequest())
			}
			if shown(t, volumes) != 7 {
				t.Error("the volume shows another map")
			}
			lines := strings.Count(log.String(), "it keeps its maps")
			if want := min(len(test.says), 1); lines != want {
				t.Errorf("%d lines, want %d: %s", lines, want, log)
			}
			if abnormal, message := conditionOf(t, n); abnormal != (test.says != "") || !strings.Contains(message, test.says) {
				t.Errorf("condition %v, %q", abnormal, message)
			}
		})
	}
}

// TestReadersFollowIfTheyMayWrite updates a read-only volume of a pod that has
// permission to read only. During the update, root in the pod could open the maps for
// writing.
func TestReadersFollowIfTheyMayWrite(t *testing.T) {
	n, programs, volumes, _ := newTestNode()
	n.Policy = access.Read{Writers: policy{fmt.Errorf("%w: needs use", access.ErrDenied)}}
	request := publishRequest()
	if _, err := n.NodePublishVolume(t.Context(), request); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "write access: ") {
		t.Errorf("published to be written: %v", err)
	}
	request.Readonly = true
	publish(t, n, request)
	programs.id = 9
	programs.loaded = map[ebpf.MapID]bool{9: true}
	publish(t, n, request)
	if shown(t, volumes) != 7 {
		t.Error("the volume was open to writing")
	}
	if abnormal, message := conditionOf(t, n); !abnormal || !strings.Contains(message, "needs use") {
		t.Errorf("condition %v, %q", abnormal, message)
	}
	n.Policy = access.Read{Writers: access.All{}}
	publish(t, n, request)
	if shown(t, volumes) != 9 {
		t.Error("the volume doesn't follow")
	}
}

// A plugin that is killed while it updates a read-only volume leaves it writable. The next one makes it read-only again, even if
// the program is gone, the pod may not write, or the volume doesn't follow its program.
func TestVolumeThatWasLeftWritable(t *testing.T) {
	for name, spoil := range map[string]func(*node, *fakePrograms, *csi.NodePublishVolumeRequest){
		"program gone": func(_ *node, p *fakePrograms, _ *csi.NodePublishVolumeRequest) {
			p.err = fmt.Errorf("program %w", program.ErrNotFound)
		},
		"right gone": func(n *node, _ *fakePrograms, _ *csi.NodePublishVolumeRequest) {
			n.Policy = access.Read{Writers: policy{fmt.Errorf("%w: needs use", access.ErrDenied)}}
		},
		"kept": func(_ *node, _ *fakePrograms, r *csi.NodePublishVolumeRequest) {
			r.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, programs, volumes, log := newTestNode()
			request := publishRequest()
			request.Readonly = true
			publish(t, n, request)
			volumes.writable = true
			spoil(n, programs, request)
			volumes.err = errors.New("busy")
			publish(t, n, request)
			if said := strings.Count(log.String(), "Failed to make the volume read-only again"); !volumes.writable || said != 1 {
				t.Errorf("said %d times that the volume is writable: %s", said, log)
			}
			volumes.err = nil
			publish(t, n, request)
			if volumes.writable {
				t.Error("the volume stays writable")
			}
		})
	}
}

// without lacks the wanted map.
type without struct{ *fakePrograms }

func (w without) Maps(programs []program.Program, _ []string) (_ []maps.Map, err error) {
	return nil, fmt.Errorf("map %w in program %q", program.ErrNotFound, programs[0].Name)
}

func TestPinnedVolumeStays(t *testing.T) {
	n, programs, volumes, _ := newTestNode()
	request := publishRequest()
	request.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
	for range 2 {
		publish(t, n, request)
		programs.id = 9
	}
	n.followEach(t.Context(), n.live.all())
	if shown(t, volumes) != 7 {
		t.Error("the volume followed")
	}
}

// A failed request about a volume that is complete doesn't stay in its condition.
func TestPinnedVolumeForgetsAFailure(t *testing.T) {
	n, programs, _, _ := newTestNode()
	programs.loaded = map[ebpf.MapID]bool{7: true}
	request := publishRequest()
	request.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
	publish(t, n, request)
	release, _ := n.busy.acquireFree(request.GetTargetPath())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.NodePublishVolume(ctx, request); err == nil {
		t.Fatal("a request that was canceled succeeds")
	}
	release()
	if abnormal, _ := conditionOf(t, n); !abnormal {
		t.Error("the condition doesn't have the failure")
	}
	publish(t, n, request)
	if abnormal, message := conditionOf(t, n); abnormal {
		t.Errorf("condition %q", message)
	}
}

func TestCreateAsksAgain(t *testing.T) {
	n, programs, _, _ := newTestNode()
	programs.err = program.ErrNotFound
	start := time.Now()
	if _, err := n.NodePublishVolume(t.Context(), publishRequest()); status.Code(err) != codes.NotFound {
		t.Errorf("publish: %v", err)
	}
	if programs.asked != 2 || programs.since.Before(start) {
		t.Errorf("asked %d times, last for what was so at %v", programs.asked, programs.since)
	}
}

func TestFollowWithoutTheKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, programs, volumes, _ := newTestNode()
		publish(t, n, publishRequest())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes := make(chan struct{}, 1)
		go (&Driver{node: n}).Follow(ctx, changes)
		programs.id = 9
		changed := time.Now()
		changes <- struct{}{}
		<-time.After(time.Second)
		synctest.Wait()
		if shown(t, volumes) != 9 {
			t.Error("the volume shows the old map")
		}
		if programs.since.Before(changed) {
			t.Error("took what was known before the change")
		}
		// An unpublished volume isn't published again.
		unpublish := &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: publishRequest().GetTargetPath()}
		if _, err := n.NodeUnpublishVolume(t.Context(), unpublish); err != nil {
			t.Fatal(err)
		}
		asked := programs.asked
		changes <- struct{}{}
		<-time.After(time.Second)
		synctest.Wait()
		if len(volumes.published) != 0 || programs.asked != asked {
			t.Errorf("published %v", volumes.published)
		}
	})
}

// TestFollowAfterABusyRequest reloads the program while a request publishes the maps that it had
// before.
func TestFollowAfterABusyRequest(t *testing.T) {
	for name, live := range map[string]bool{"a new volume": false, "a live volume": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, programs, volumes, _ := newTestNode()
				if live {
					publish(t, n, publishRequest())
					programs.id = 8
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				changes := make(chan struct{}, 1)
				go (&Driver{node: n}).Follow(ctx, changes)
				volumes.entered, volumes.proceed = make(chan struct{}), make(chan struct{})
				published := make(chan error, 1)
				go func() {
					_, err := n.NodePublishVolume(ctx, publishRequest())
					published <- err
				}()
				<-volumes.entered
				programs.id = 9
				changes <- struct{}{}
				<-time.After(time.Minute) // virtual
				volumes.entered = nil
				close(volumes.proceed)
				if err := <-published; err != nil {
					t.Fatal(err)
				}
				<-time.After(2 * settle)
				synctest.Wait()
				if shown(t, volumes) != 9 {
					t.Errorf("the volume shows the maps of program %d", shown(t, volumes))
				}
			})
		})
	}
}

// A volume that was never published isn't followed.
func TestFailedVolumeIsForgotten(t *testing.T) {
	n, _, volumes, _ := newTestNode()
	volumes.err = errors.New("no space left on device")
	if _, err := n.NodePublishVolume(t.Context(), publishRequest()); err == nil {
		t.Error("published")
	}
	if live := n.live.all(); len(live) > 0 {
		t.Errorf("live: %v", live)
	}
}

func TestRequestWaitsForFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _, _ := newTestNode()
		release, ok := n.busy.acquireFree(publishRequest().GetTargetPath())
		if !ok {
			t.Fatal("the target isn't free")
		}
		done := make(chan error, 1)
		go func() {
			_, err := n.NodePublishVolume(t.Context(), publishRequest())
			done <- err
		}()
		synctest.Wait()
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDenialIsLoggedOnceAndCounted(t *testing.T) {
	n, _, _, log := newTestNode()
	denials := 0
	n.Denied = func() { denials++ }
	n.Policy = policy{fmt.Errorf("%w: ServiceAccount team/reader needs the verb \"use\"", access.ErrDenied)}
	for range 3 {
		_, err := n.NodePublishVolume(t.Context(), publishRequest())
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "needs the verb") {
			t.Errorf("publish: %v", err)
		}
	}
	if denials != 3 || strings.Count(log.String(), "needs the verb") != 1 {
		t.Errorf("%d denials, log %q", denials, log)
	}
	n.Policy = access.All{}
	publish(t, n, publishRequest())
}

// conditionOf reads the volume's condition like a kubelet with CSI 1.12.
func conditionOf(t *testing.T, n *node) (abnormal bool, message string) {
	t.Helper()
	request := publishRequest()
	stats, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{
		VolumeId: request.GetVolumeId(), VolumePath: request.GetTargetPath(),
	})
	if err != nil {
		t.Fatal(err)
	}
	health, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: request.GetVolumeId()})
	if err != nil {
		t.Fatal(err)
	}
	raw := stats.ProtoReflect().GetUnknown()
	number, kind, n1 := protowire.ConsumeTag(raw)
	if number != 2 || kind != protowire.BytesType {
		t.Fatalf("condition is field %d of type %d", number, kind)
	}
	fields, _ := protowire.ConsumeBytes(raw[n1:])
	for len(fields) > 0 {
		number, kind, tag := protowire.ConsumeTag(fields)
		value := protowire.ConsumeFieldValue(number, kind, fields[tag:])
		if number == 1 {
			set, _ := protowire.ConsumeVarint(fields[tag:])
			abnormal = protowire.DecodeBool(set)
		} else {
			message, _ = protowire.ConsumeString(fields[tag:])
		}
		fields = fields[tag+value:]
	}
	if statuses := health.GetVolumeHealth().GetHealthStatuses(); abnormal != (len(statuses) == 1) || abnormal && statuses[0].GetMessage() != message {
		t.Errorf("condition %v, %q, but health %v", abnormal, message, statuses)
	}
	return abnormal, message
}

// The kubelet asks about each volume. As long as a volume shows loaded maps, the kernel isn't asked again for each. A map that
// was loaded since the last look isn't stale.
func TestStatsShareALook(t *testing.T) {
	n, programs, _, _ := newTestNode()
	publish(t, n, publishRequest())
	for name, c := range map[string]struct {
		before, now map[ebpf.MapID]bool
		looks       int
		stale       bool
	}{
		"loaded":      {map[ebpf.MapID]bool{7: true}, map[ebpf.MapID]bool{7: true}, 1, false},
		"new":         {map[ebpf.MapID]bool{5: true}, map[ebpf.MapID]bool{7: true}, 2, false},
		"stale":       {map[ebpf.MapID]bool{5: true}, map[ebpf.MapID]bool{5: true}, 2, true},
		"none before": {map[ebpf.MapID]bool{}, nil, 2, true},
	} {
		programs.before, programs.loaded, programs.looked = c.before, c.now, nil
		_, condition, err := n.inspect(publishRequest().GetTargetPath())
		if err != nil || (condition != "") != c.stale || len(programs.looked) != c.looks {
			t.Errorf("%s: condition %q, %v, looks %v", name, condition, err, programs.looked)
		}
		programs.looked = nil
		counts, err := (&Driver{node: n}).Count()
		if err != nil || (counts.Stale == 1) != c.stale || len(programs.looked) != c.looks {
			t.Errorf("%s: %+v, %v, looks %v", name, counts, err, programs.looked)
		}
	}
}

func TestStatsAndCounts(t *testing.T) {
	n, programs, volumes, _ := newTestNode()
	d := &Driver{node: n}
	if counts, err := d.Count(); err != nil || counts != (Counts{}) {
		t.Errorf("Count = %+v, %v", counts, err)
	}
	publish(t, n, publishRequest())
	programs.loaded = map[ebpf.MapID]bool{7: true}
	if counts, err := d.Count(); err != nil || counts != (Counts{Live: 1}) {
		t.Errorf("Count = %+v, %v", counts, err)
	}
	if abnormal, message := conditionOf(t, n); abnormal || message == "" {
		t.Errorf("condition %v, %q", abnormal, message)
	}
	programs.loaded = nil
	if counts, err := d.Count(); err != nil || counts != (Counts{Live: 1, Stale: 1}) {
		t.Errorf("Count = %+v, %v", counts, err)
	}
	if abnormal, message := conditionOf(t, n); !abnormal || !strings.Contains(message, "counters") {
		t.Errorf("condition %v, %q", abnormal, message)
	}
	volumes.unreadable = errors.New("input/output error")
	if counts, err := d.Count(); err != nil || counts != (Counts{Live: 1, Stale: 1}) {
		t.Errorf("Count with a volume that can't be read = %+v, %v", counts, err)
	}
	volumes.unreadable = nil
	request := publishRequest()
	request.VolumeContext[v1alpha1.VolumeAttributeFollow] = "false"
	publish(t, n, request)
	if counts, err := d.Count(); err != nil || counts != (Counts{Live: 1}) {
		t.Errorf("with a pod that keeps its maps, Count = %+v, %v", counts, err)
	}
	stats, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: request.GetTargetPath()})
	if err != nil || stats.GetUsage()[0].GetUsed() != 4096 || stats.GetUsage()[1].GetUsed() != 1 {
		t.Errorf("stats %v, %v", stats, err)
	}
	for name, bad := range map[string]*csi.NodeGetVolumeStatsRequest{
		"no id":     {VolumePath: request.GetTargetPath()},
		"no target": {VolumeId: "v"},
	} {
		if _, err := n.NodeGetVolumeStats(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("stats with %s: %v", name, err)
		}
	}
	volumes.unreadable = errors.New("input/output error")
	if stats, err := n.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: request.GetTargetPath()}); err == nil {
		t.Errorf("stats %v of a volume that can't be read", stats)
	}
	volumes.unreadable = nil
	for _, id := range []string{"", "unknown"} {
		if _, err := n.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: id}); err == nil {
			t.Errorf("health of volume %q", id)
		}
	}
}

func TestRemarksAreBounded(t *testing.T) {
	var r remarks
	for i := range 3 * maxRemarks {
		r.note(fmt.Sprint(i), errors.ErrUnsupported.Error())
	}
	if len(r.texts) > maxRemarks {
		t.Errorf("%d remarks", len(r.texts))
	}
}

// silent is a daemon that doesn't answer.
type silent struct{ *fakePrograms }

func (s silent) Find(ctx context.Context, _ program.Query, _ time.Time) ([]program.Program, error) {
	s.asked++
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
	return nil, program.ErrDaemon
}

// The time that an update of all volumes takes doesn't depend on their number while the daemon doesn't answer.
func TestFollowWhileTheDaemonHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, programs, volumes, _ := newTestNode()
		const count = 50
		for i := range count {
			request := publishRequest()
			request.TargetPath += fmt.Sprint(i)
			publish(t, n, request)
		}
		n.Programs = silent{programs}
		programs.asked = 0
		began := time.Now()
		n.followEach(t.Context(), n.live.all())
		if took := time.Since(began); took > followTimeout || programs.asked == 0 {
			t.Errorf("took %v with %d calls", took, programs.asked)
		}
		if len(volumes.published) != count {
			t.Errorf("%d volumes are left", len(volumes.published))
		}
	})
}
