// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
)

type node struct {
	csi.UnimplementedNodeServer
	Options
	busy targets
	// live are the volumes that this process published, or published again.
	live live
	// remarks contains the problem of each volume that has one.
	remarks remarks
}

var _ csi.NodeServer = (*node)(nil)

func newNode(options Options) *node {
	return &node{Options: options}
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.NodeName}, nil
}

// volumeCondition is the capability to return a volume's condition in its stats. CSI
// 1.13 removed its name in favor of NodeGetVolumeHealth, but kubelets still require it.
const volumeCondition csi.NodeServiceCapability_RPC_Type = 4

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, capability := range []csi.NodeServiceCapability_RPC_Type{
		// With this capability, the kubelet passes a pod's fsGroup, instead of changing
		// owners itself.
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		volumeCondition,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// NodePublishVolume makes a program's maps visible on the target path. The kubelet calls
// it repeatedly for a running pod (requiresRepublish). An error would then result in an
// Event about a failed mount, although the pod keeps its maps.
func (n *node) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	p, err := parsePublication(request)
	log := n.publicationLog(p)
	if err == nil {
		err = n.publish(ctx, p, log)
	} else {
		err = status.Error(codes.InvalidArgument, err.Error())
	}
	if err != nil {
		// Often, a pod waits for its program. The kubelet retries.
		log.Log(ctx, n.levelOf(p.target, err), "Failed to publish the volume", "error", err)
		return nil, statusOf(err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// levelOf returns the level at which to log a volume's failure. A repeated failure has a
// lower level.
func (n *node) levelOf(target string, err error) slog.Level {
	if n.remarks.note(target, err.Error()) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (n *node) publish(ctx context.Context, p publication, log *slog.Logger) error {
	release, err := n.busy.acquire(ctx, p.target)
	if err != nil {
		return err
	}
	defer release()
	state, err := n.Volumes.Read(p.target)
	if err != nil {
		return err
	}
	n.live.add(p) // before it looks up the program: see Driver.Follow
	if state.Complete(p.maps, p.access) {
		n.follow(ctx, p, state, time.Now().Add(-followReuse), log)
		return nil
	}
	if err := n.create(ctx, p, log); err != nil {
		n.live.remove(p.target)
		return err
	}
	return nil
}

// createReuse is the maximum age of the daemon's list of programs when a volume is
// created. It matters when many pods start at the same time.
const createReuse = time.Second

func (n *node) create(ctx context.Context, p publication, log *slog.Logger) error {
	start := time.Now()
	found, err := n.find(ctx, p, start.Add(-createReuse))
	if errors.Is(err, program.ErrNotFound) || errors.Is(err, program.ErrAmbiguous) {
		found, err = n.find(ctx, p, start)
	}
	if err != nil {
		return err
	}
	lookup := time.Since(start)
	if err := n.Volumes.Publish(p.volume(), found.maps, p.access); err != nil {
		return err
	}
	n.remarks.forget(p.target)
	log.Info("Published the volume", "kind", found.program.Kind, "programID", found.program.ID, "maps", len(found.maps),
		"readOnly", p.access.ReadOnly, "lookup", lookup, "total", time.Since(start))
	return nil
}

// found is a program with the maps that a pod can mount.
type found struct {
	program program.Program
	maps    []maps.Map
}

func (n *node) find(ctx context.Context, p publication, since time.Time) (found, error) {
	programs, err := n.Programs.Find(ctx, p.query, since)
	if err != nil {
		return found{}, err
	}
	// Check before the maps, so that a denied pod doesn't learn their names.
	if err := n.check(ctx, access.Use{Pod: p.pod, Program: programs[0], ReadOnly: p.access.ReadOnly}); err != nil {
		return found{}, err
	}
	chosen, err := n.Programs.Maps(programs, p.maps)
	return found{programs[0], chosen}, err
}

func (n *node) check(ctx context.Context, use access.Use) error {
	err := n.Policy.Check(ctx, use)
	if errors.Is(err, access.ErrDenied) {
		n.Denied()
	}
	return err
}

// NodeUnpublishVolume removes the volume. It works without the daemon.
func (n *node) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	log := n.endLog(request.GetVolumeId(), request.GetTargetPath())
	if err := n.unpublish(ctx, request.GetVolumeId(), request.GetTargetPath()); err != nil {
		log.Error("Failed to unpublish the volume", "error", err)
		return nil, statusOf(err)
	}
	log.Info("Unpublished the volume")
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (n *node) unpublish(ctx context.Context, id, target string) error {
	if err := checkVolume(id, target); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	release, err := n.busy.acquire(ctx, target)
	if err != nil {
		return err
	}
	defer release()
	if err := n.Volumes.Unpublish(target); err != nil {
		return err
	}
	n.live.remove(target)
	n.remarks.forget(target)
	return nil
}

// endLog returns a logger for a volume that ends. If another process published the
// volume, only its id and target are known.
func (n *node) endLog(id, target string) *slog.Logger {
	if p, ok := n.live.get(target); ok && p.volumeID == id {
		return n.publicationLog(p)
	}
	return n.volumeLog(id, target)
}

func (n *node) volumeLog(id, target string) *slog.Logger {
	return n.Log.With("volume", id, "target", target)
}

func (n *node) publicationLog(p publication) *slog.Logger {
	return n.volumeLog(p.volumeID, p.target).With("namespace", p.pod.Namespace, "pod", p.pod.Name, "program", p.query.Name)
}

// targets contains the target paths that are in use.
type targets struct {
	// paths contains, for each path, a channel that is closed when the plugin's own work
	// on it is done, or nil if a request uses it.
	paths sync.Map
}

// acquire reserves a target for a request. If another request uses it, acquire returns
// the error that CSI specifies. It waits for the plugin's own work, which is short.
func (t *targets) acquire(ctx context.Context, path string) (release func(), err error) {
	for {
		holder, taken := t.paths.LoadOrStore(path, nil)
		if !taken {
			return func() { t.paths.Delete(path) }, nil
		}
		done, own := holder.(chan struct{})
		if !own {
			return nil, status.Error(codes.Aborted, fmt.Sprintf("another request for %s is in progress", path))
		}
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-done:
		}
	}
}

// acquireFree reserves a target for the plugin's own work, unless a request uses it.
func (t *targets) acquireFree(path string) (release func(), ok bool) {
	done := make(chan struct{})
	if _, taken := t.paths.LoadOrStore(path, done); taken {
		return nil, false
	}
	return func() {
		t.paths.Delete(path)
		close(done)
	}, true
}
