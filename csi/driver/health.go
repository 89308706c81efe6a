// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/bpfman/bpfman-operator/csi/maps"
)

// reasonStale is the reason, for programs, of a volume whose maps aren't those of the
// loaded program.
const reasonStale = "StaleMaps"

// NodeGetVolumeStats returns the number of maps in a volume, as inodes, the kernel
// memory that they use, and the volume's condition.
func (n *node) NodeGetVolumeStats(_ context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := checkVolume(request.GetVolumeId(), request.GetVolumePath()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	pins, condition, err := n.inspect(request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	memory := int64(0)
	for _, pin := range pins {
		memory += int64(pin.Bytes) //nolint:gosec // this machine's memory fits
	}
	count := int64(len(pins))
	response := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Used: memory, Total: memory},
		{Unit: csi.VolumeUsage_INODES, Used: count, Total: count},
	}}
	setCondition(response, condition)
	return response, nil
}

// NodeGetVolumeHealth returns the volume's condition in the format of CSI 1.13.
func (n *node) NodeGetVolumeHealth(_ context.Context, request *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id, target := request.GetVolumeId(), request.GetVolumePublishPath()
	if err := checkName(id, maxVolumeID); err != nil {
		return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("volume id: %v", err))
	}
	if target == "" {
		volumes, err := n.Volumes.List()
		if err != nil {
			return nil, statusOf(err)
		}
		at := slices.IndexFunc(volumes, func(v maps.Volume) bool { return v.ID == id })
		if at < 0 {
			return nil, status.Error(codes.NotFound, fmt.Sprintf("no volume %q is mounted", id))
		}
		target = volumes[at].Target
	}
	_, condition, err := n.inspect(target)
	if err != nil {
		return nil, err
	}
	health := &csi.VolumeHealth{VolumeId: id}
	if condition != "" {
		health.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{
			Status: csi.VolumeHealthErrorType_DEGRADED, Reason: reasonStale, Message: condition,
		}}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// inspect reads a volume, and returns its problem, if there is one.
func (n *node) inspect(target string) ([]maps.Pin, string, error) {
	state, err := n.Volumes.Read(target)
	if err == nil && !state.Mounted || errors.Is(err, maps.ErrPath) {
		return nil, "", status.Error(codes.NotFound, fmt.Sprintf("no volume is mounted on %q", target))
	}
	if err != nil {
		return nil, "", statusOf(err)
	}
	remark := n.remarks.about(target)
	reuse := loadedReuse
	if remark != "" {
		reuse = 0 // the program may just have been unloaded
	}
	loaded, err := n.loadedOf(reuse, state.Pins)
	if err != nil {
		return nil, "", statusOf(err)
	}
	return state.Pins, condition(state.Pins, loaded, remark), nil
}

// loadedReuse is the maximum age of the maps of the loaded programs when a volume has no others.
const loadedReuse = 10 * time.Second

// loadedOf returns the maps of the loaded programs, for volumes with these pins, which were read before. Maps that are loaded
// can be out of date by a time, and maps that aren't can't.
func (n *node) loadedOf(reuse time.Duration, pins ...[]maps.Pin) (map[ebpf.MapID]bool, error) {
	now := time.Now()
	loaded, err := n.Programs.Loaded(now.Add(-reuse))
	unknown := func(pin maps.Pin) bool { return !loaded[pin.ID] }
	if err == nil && slices.ContainsFunc(pins, func(of []maps.Pin) bool { return slices.ContainsFunc(of, unknown) }) {
		return n.Programs.Loaded(now)
	}
	return loaded, err
}

// condition describes the problem of a volume, if there is one.
func condition(pins []maps.Pin, loaded map[ebpf.MapID]bool, remark string) string {
	var stale []string
	for _, pin := range pins {
		if !loaded[pin.ID] {
			stale = append(stale, pin.Name)
		}
	}
	var text string
	if len(stale) > 0 {
		text = "no loaded program has these maps anymore: " + strings.Join(stale, ", ")
	}
	switch {
	case text == "":
		return remark
	case remark == "":
		return text
	default:
		return text + "; " + remark
	}
}

// Counts contains numbers of volumes on this node.
type Counts struct {
	// Live is the number of mounted volumes. Stale is the number of those that don't
	// show the maps of a loaded program, or not of the newest, although their pods didn't
	// ask to keep the maps that they have, or that can't be read.
	Live, Stale int
}

// Count counts the volumes in the mount table.
func (d *Driver) Count() (Counts, error) {
	volumes, err := d.node.Volumes.List()
	if err != nil {
		return Counts{}, err
	}
	counts := Counts{Live: len(volumes)}
	if len(volumes) == 0 {
		return counts, nil
	}
	var targets []string
	var pins [][]maps.Pin
	for _, volume := range volumes {
		state, err := d.node.Volumes.Read(volume.Target)
		if err != nil {
			// One volume doesn't keep the others from being counted.
			d.node.Log.Log(context.Background(), d.node.levelOf(volume.Target, err), "Failed to read a volume", "target", volume.Target, "error", err)
			counts.Stale++
			continue
		}
		if !state.Mounted {
			counts.Live-- // unpublished in the meantime
			continue
		}
		if p, known := d.node.live.get(volume.Target); known && !p.follow {
			continue
		}
		targets, pins = append(targets, volume.Target), append(pins, state.Pins)
	}
	loaded, err := d.node.loadedOf(loadedReuse, pins...)
	if err != nil {
		return Counts{}, err
	}
	for i, target := range targets {
		if condition(pins[i], loaded, d.node.remarks.about(target)) != "" {
			counts.Stale++
		}
	}
	return counts, nil
}

// Field numbers of the condition in CSI before 1.13. Kubelets of Kubernetes 1.36 and
// earlier read it.
const (
	fieldCondition = 2
	fieldAbnormal  = 1
	fieldMessage   = 2
)

// setCondition adds the condition to the response in the format of CSI 1.12.
func setCondition(response *csi.NodeGetVolumeStatsResponse, condition string) {
	var message []byte
	if condition != "" {
		message = protowire.AppendTag(message, fieldAbnormal, protowire.VarintType)
		message = protowire.AppendVarint(message, protowire.EncodeBool(true))
	} else {
		condition = "the maps are those of the loaded program"
	}
	message = protowire.AppendTag(message, fieldMessage, protowire.BytesType)
	message = protowire.AppendString(message, condition)
	field := protowire.AppendTag(nil, fieldCondition, protowire.BytesType)
	response.ProtoReflect().SetUnknown(protowire.AppendBytes(field, message))
}
