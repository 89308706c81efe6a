// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package simulation

import (
	"context"
	"fmt"
	"log/slog"
	stdmaps "maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/csi/access"
	"github.com/bpfman/bpfman-operator/csi/driver"
	"github.com/bpfman/bpfman-operator/csi/maps"
	"github.com/bpfman/bpfman-operator/csi/program"
	"github.com/bpfman/bpfman-operator/internal/globals"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// ResourceMounts is the resource of events in which a CSI plugin changes the node's mounts. Their verbs are publish and
// unpublish, and their name is the volume's target.
const ResourceMounts = "mounts"

// Volume is what a mounted volume shows.
type Volume struct {
	maps.Volume

	Maps   []maps.Map
	Access maps.Access
}

// mounts is a node's mount table. It stays while the CSI plugin is restarted.
type mounts struct {
	mu       sync.Mutex
	byTarget map[string]Volume
}

func (m *mounts) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.byTarget)
}

// Volumes returns the volumes that are mounted on the node, ordered by their targets.
func (n *Node) Volumes() []Volume {
	n.mounts.mu.Lock()
	defer n.mounts.mu.Unlock()
	var all []Volume
	for _, target := range slices.Sorted(stdmaps.Keys(n.mounts.byTarget)) {
		all = append(all, n.mounts.byTarget[target])
	}
	return all
}

// pluginVolumes are the node's volumes as a process of the plugin changes them. They implement [driver.Volumes].
type pluginVolumes struct {
	*process

	node *Node
}

func (v *pluginVolumes) Ready() error { return nil }

func (v *pluginVolumes) List() ([]maps.Volume, error) {
	var all []maps.Volume
	for _, volume := range v.node.Volumes() {
		all = append(all, volume.Volume)
	}
	return all, nil
}

func (v *pluginVolumes) Read(target string) (maps.State, error) {
	v.node.mounts.mu.Lock()
	defer v.node.mounts.mu.Unlock()
	mounted, ok := v.node.mounts.byTarget[target]
	if !ok {
		return maps.State{}, nil
	}
	state := maps.State{Mounted: true, ReadOnly: mounted.Access.ReadOnly}
	for _, m := range mounted.Maps {
		pin := maps.Pin{Name: globals.File(m.Name), ID: m.ID, Mode: mounted.Access.PinMode()}
		if group := mounted.Access.Group; group != nil {
			pin.Group = *group
		}
		state.Pins = append(state.Pins, pin)
	}
	return state, nil
}

func (v *pluginVolumes) Publish(volume maps.Volume, shown []maps.Map, access maps.Access) error {
	return v.change("publish", volume.Target, func(all map[string]Volume) { all[volume.Target] = Volume{volume, shown, access} })
}

// Protect does nothing: the simulated volumes are complete or absent.
func (v *pluginVolumes) Protect(string) error { return nil }

func (v *pluginVolumes) Unpublish(target string) error {
	return v.change("unpublish", target, func(all map[string]Volume) { delete(all, target) })
}

func (v *pluginVolumes) change(verb, target string, change func(map[string]Volume)) error {
	e := Event{Actor: v.Name, Verb: verb, Resource: ResourceMounts, Name: target}
	if err := v.happen(v.alive, e); err != nil {
		return err
	}
	v.node.mounts.mu.Lock()
	change(v.node.mounts.byTarget)
	v.node.mounts.mu.Unlock()
	e.Done = true
	return v.happen(v.alive, e)
}

// kernelPins are the maps of the daemon's programs. They implement [program.Pins].
type kernelPins struct{ daemon *Daemon }

func (k kernelPins) Pinned(directory string) ([]maps.Map, error) {
	var owner []uint32
	for _, p := range k.daemon.Programs() {
		if p.Pins == directory && (owner == nil || filepath.Base(directory) == fmt.Sprint(p.ID)) {
			owner = p.MapIDs
		}
	}
	if owner == nil {
		return nil, fmt.Errorf("open map pins: %w", os.ErrNotExist)
	}
	var all []maps.Map
	for i, name := range k.daemon.Maps {
		all = append(all, maps.Map{Name: name, Path: filepath.Join(directory, name), ID: ebpf.MapID(owner[min(i, len(owner)-1)])})
	}
	return all, nil
}

func (kernelPins) Globals(uint32) ([]maps.Map, error) { return nil, nil }

func (k kernelPins) Loaded() (map[ebpf.MapID]bool, error) {
	loaded := map[ebpf.MapID]bool{}
	for _, p := range k.daemon.Programs() {
		for _, id := range p.MapIDs {
			loaded[ebpf.MapID(id)] = true
		}
	}
	return loaded, nil
}

// registrar keeps the node service of a CSI driver, which the kubelet calls.
type registrar struct{ node csi.NodeServer }

// RegisterService implements [grpc.ServiceRegistrar].
func (r *registrar) RegisterService(_ *grpc.ServiceDesc, implementation any) {
	if node, ok := implementation.(csi.NodeServer); ok {
		r.node = node
	}
}

// runPlugin runs a CSI plugin until it ends.
func (n *Node) runPlugin(p *process) error {
	programs := program.New(gobpfman.NewBpfmanClient(&daemonConn{process: p, daemon: n.Daemon}), kernelPins{n.Daemon})
	plugin := driver.New(driver.Options{
		NodeName: n.Name, Version: "simulation", Programs: programs, Volumes: &pluginVolumes{p, n},
		Policy: access.All{}, Denied: func() {}, Log: slog.New(slog.DiscardHandler),
	})
	var served registrar
	plugin.Register(&served)
	n.setPlugin(p, served.node)
	changes := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() { // in place of inotify
		for {
			next := n.programs.next()
			programs.Changed()
			select {
			case changes <- struct{}{}:
			default:
			}
			select {
			case <-next:
			case <-p.ctx.Done():
				return
			}
		}
	})
	plugin.Follow(p.ctx, changes)
	watching.Wait()
	return nil
}

// served is the node service of the running plugin.
type served struct {
	process *process
	node    csi.NodeServer
}

func (n *Node) setPlugin(p *process, node csi.NodeServer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plugin = served{p, node}
}

// callPlugin makes a call as the kubelet. A plugin that crashes doesn't answer.
func callPlugin[Q, R any](n *Node, request Q, call func(csi.NodeServer, context.Context, Q) (R, error)) error {
	n.mu.Lock()
	plugin := n.plugin
	n.mu.Unlock()
	if plugin.process == nil || plugin.process.ctx.Err() != nil || plugin.process.alive.Err() != nil {
		return status.Error(codes.Unavailable, "the plugin doesn't run")
	}
	const kubeletTimeout = 2 * time.Minute
	ctx, stop := context.WithTimeout(context.Background(), kubeletTimeout)
	defer stop()
	answered := make(chan error, 1)
	go func() {
		_, err := call(plugin.node, ctx, request)
		answered <- err
	}()
	select {
	case err := <-answered:
		return err
	case <-plugin.process.alive.Done():
		return errKilled
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kubeletRoot is the kubelet's root directory.
const kubeletRoot = "/var/lib/kubelet"

// volumesOf returns the volumes of a pod that the CSI plugin mounts.
func volumesOf(pod *corev1.Pod) (volumes []*csi.NodePublishVolumeRequest) {
	for _, v := range pod.Spec.Volumes {
		if v.CSI == nil || v.CSI.Driver != v1alpha1.CSIDriverName {
			continue
		}
		attributes := stdmaps.Clone(v.CSI.VolumeAttributes)
		attributes["csi.storage.k8s.io/pod.name"], attributes["csi.storage.k8s.io/pod.namespace"] = pod.Name, pod.Namespace
		attributes["csi.storage.k8s.io/serviceAccount.name"] = pod.Spec.ServiceAccountName
		volumes = append(volumes, &csi.NodePublishVolumeRequest{
			VolumeId:      fmt.Sprintf("csi-%s-%s", pod.UID, v.Name),
			TargetPath:    filepath.Join(kubeletRoot, "pods", string(pod.UID), "volumes/kubernetes.io~csi", v.Name, "mount"),
			VolumeContext: attributes, Readonly: v.CSI.ReadOnly != nil && *v.CSI.ReadOnly,
			VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			},
		})
	}
	return volumes
}
