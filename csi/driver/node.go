// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

type node struct {
	csi.UnimplementedNodeServer
	Options
	busy targets
}

var _ csi.NodeServer = (*node)(nil)

func newNode(options Options) *node {
	return &node{Options: options}
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.NodeName}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	// The kubelet hands over a pod's fsGroup, instead of changing owners itself.
	mountGroup := &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{
		Type: csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
	}}
	return &csi.NodeGetCapabilitiesResponse{
		Capabilities: []*csi.NodeServiceCapability{{Type: mountGroup}},
	}, nil
}

// NodePublishVolume shows a program's maps on the target path.
func (n *node) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	attributes := request.GetVolumeContext()
	log := n.volumeLog(request.GetVolumeId(), request.GetTargetPath()).With(
		"namespace", attributes[attributeNamespace], "pod", attributes[attributePod],
		"program", attributes[v1alpha1.VolumeAttributeProgram])
	if err := n.publish(ctx, request, log); err != nil {
		// Often a pod that waits for its program; the kubelet tries again.
		log.Warn("volume not published", "error", err)
		return nil, statusOf(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) publish(ctx context.Context, request *csi.NodePublishVolumeRequest, log *slog.Logger) error {
	start := time.Now()
	p, err := parsePublication(request)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	release, err := n.busy.acquire(p.target)
	if err != nil {
		return err
	}
	defer release()
	// The kubelet repeats itself; the daemon needn't be asked again.
	complete, err := n.Volumes.Complete(p.target, p.maps, p.access)
	if err != nil {
		return err
	}
	if complete {
		log.Debug("volume is there already")
		return nil
	}
	programs, err := n.Programs.Find(ctx, p.query)
	if err != nil {
		return err
	}
	found := time.Since(start)
	if err := n.Policy.Check(ctx, p.pod, programs[0]); err != nil {
		return err
	}
	chosen, err := n.Programs.Maps(programs, p.maps)
	if err != nil {
		return err
	}
	if err := n.Volumes.Publish(p.target, chosen, p.access); err != nil {
		return err
	}
	log.Info("volume published", "kind", programs[0].Kind, "programID", programs[0].ID, "maps", len(chosen),
		"readOnly", p.access.ReadOnly, "lookup", found, "total", time.Since(start))
	return nil
}

// NodeUnpublishVolume removes the volume. It doesn't need the daemon.
func (n *node) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	log := n.volumeLog(request.GetVolumeId(), request.GetTargetPath())
	if err := n.unpublish(request.GetVolumeId(), request.GetTargetPath()); err != nil {
		log.Error("volume not unpublished", "error", err)
		return nil, statusOf(err)
	}
	log.Info("volume unpublished")
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (n *node) unpublish(id, target string) error {
	if err := checkVolume(id, target); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	release, err := n.busy.acquire(target)
	if err != nil {
		return err
	}
	defer release()
	return n.Volumes.Unpublish(target)
}

func (n *node) volumeLog(id, target string) *slog.Logger {
	return n.Log.With("volume", id, "target", target)
}

// targets are the target paths that a request works on.
type targets struct {
	paths sync.Map
}

// acquire reserves a target, or refuses as CSI asks while another request has it.
func (t *targets) acquire(path string) (release func(), err error) {
	if _, taken := t.paths.LoadOrStore(path, nil); taken {
		return nil, status.Error(codes.Aborted, fmt.Sprintf("another request for %s is running", path))
	}
	return func() { t.paths.Delete(path) }, nil
}
