// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package firstpacket

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bpfman/bpfman-operator/internal/cri"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// image is the only image, whose command is tests/cmd/first-packet.
const image = "test.invalid/first-packet:1"

// parentGroup is the parent of the pods' control groups.
const parentGroup = "/first-packet"

//go:embed containerd.toml
var containerdConfig string

// network is the configuration of pods' networks.
const network = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods0", "isGateway": true,
	"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni/addresses"}}]}`

// containerd is a container runtime in the daemon's namespaces.
type containerd struct {
	t       testing.TB
	runtime runtimeapi.RuntimeServiceClient
	logs    string
}

// startContainerd starts containerd in a place, with an image of the command.
func startContainerd(tb testing.TB, place *daemontest.Place) *containerd {
	tb.Helper()
	dir := tb.TempDir()
	c := &containerd{t: tb, logs: filepath.Join(dir, "logs")}
	binaries := filepath.Dir(binary(tb, containerdVariable))
	config := strings.ReplaceAll(containerdConfig, "SHIM", filepath.Join(binaries, "containerd-shim-runc-v2"))
	must.Succeed(tb, os.WriteFile(filepath.Join(dir, "containerd.toml"), []byte(config), 0o600))
	must.Succeed(tb, os.MkdirAll(place.Path("/run/cni"), 0o700))
	must.Succeed(tb, os.WriteFile(place.Path("/run/cni/pods.conflist"), []byte(network), 0o600))
	// The context of the test ends before the pods are removed.
	run(tb, place.Command(context.WithoutCancel(tb.Context()), filepath.Join(binaries, "containerd"), "--config", filepath.Join(dir, "containerd.toml")), "containerd")
	conn, _, err := cri.Dial(place.Path("/run"))
	for err != nil && tb.Context().Err() == nil { // until the socket exists
		<-time.After(pollInterval)
		conn, _, err = cri.Dial(place.Path("/run"))
	}
	must.Succeed(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	c.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	within(tb, "containerd to be ready", func(ctx context.Context) error {
		status, err := c.runtime.Status(ctx, &runtimeapi.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.GetStatus().GetConditions() {
			if is := condition.GetType(); !condition.GetStatus() && (is == runtimeapi.RuntimeReady || is == runtimeapi.NetworkReady) {
				return fmt.Errorf("%s: %s", condition.GetType(), condition.GetMessage())
			}
		}
		return nil
	})
	archive := filepath.Join(dir, "image.tar")
	must.Succeed(tb, writeImage(archive, binary(tb, commandVariable)))
	ctr := place.Command(tb.Context(), "ctr", "--namespace=k8s.io", "images", "import", archive)
	if output, err := ctr.CombinedOutput(); err != nil {
		tb.Fatalf("import the image: %v: %s", err, output)
	}
	tb.Cleanup(func() { removeGroups(tb) })
	tb.Cleanup(c.removeAll)
	return c
}

// removeGroups removes the control groups of the pods.
func removeGroups(tb testing.TB) {
	tb.Helper()
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, err := filepath.Glob(hierarchy + parentGroup)
		must.Succeed(tb, err)
		for _, group := range groups {
			if err := os.Remove(group); err != nil {
				tb.Errorf("remove the pods' control group: %v", err)
			}
		}
	}
}

// writeImage writes an image with a command as /first-packet to an archive.
func writeImage(archive, command string) error {
	content, err := os.ReadFile(command)
	if err != nil {
		return err
	}
	layer, err := layerOf("first-packet", content)
	if err != nil {
		return err
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	made, err = mutate.ConfigFile(made, &v1.ConfigFile{
		Architecture: "amd64", OS: "linux", Config: v1.Config{Entrypoint: []string{"/first-packet"}, Cmd: []string{"pause"}},
		RootFS: must1(made.ConfigFile()).RootFS,
	})
	if err != nil {
		return err
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, made)
}

// pod is a pod of a test.
type pod struct {
	*containerd

	name    string
	config  *runtimeapi.PodSandboxConfig
	sandbox string
}

// newPod returns a pod that doesn't run yet.
func (c *containerd) newPod(namespace, name, uid string, labels map[string]string) *pod {
	all := map[string]string{cri.PodNamespaceLabel: namespace, cri.PodNameLabel: name, cri.PodUIDLabel: uid}
	maps.Copy(all, labels)
	return &pod{containerd: c, name: name, config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: namespace, Name: name, Uid: uid}, Labels: all, LogDirectory: filepath.Join(c.logs, uid),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parentGroup, SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{}}},
	}}
}

// run starts the sandbox, as the kubelet does before the first container.
func (p *pod) run(ctx context.Context) error {
	response, err := p.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	p.sandbox = response.GetPodSandboxId()
	return err
}

// start starts a container, and returns its ID.
func (p *pod) start(ctx context.Context, name string, args ...string) (string, error) {
	created, err := p.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.sandbox, SandboxConfig: p.config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image}, Args: args, LogPath: name + ".log",
			Labels: map[string]string{
				cri.PodNamespaceLabel: p.config.GetMetadata().GetNamespace(), cri.PodNameLabel: p.name, cri.PodUIDLabel: p.config.GetMetadata().GetUid(), cri.ContainerNameLabel: name,
			},
		},
	})
	if err != nil {
		return "", err
	}
	_, err = p.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()})
	return created.GetContainerId(), err
}

// ended waits until a container has ended successfully.
func (p *pod) ended(ctx context.Context, id string) error {
	return eventually.Succeeds(ctx, timeout, pollInterval, func(ctx context.Context) error {
		response, err := p.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return err
		}
		if status := response.GetStatus(); status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || status.GetExitCode() != 0 {
			return fmt.Errorf("container %s of pod %s is %s, with exit code %d", status.GetMetadata().GetName(), p.name, status.GetState(), status.GetExitCode())
		}
		return nil
	})
}

// removeAll removes all pods.
func (c *containerd) removeAll() {
	const atATime = 16
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout)
	defer cancel()
	list, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		c.t.Errorf("list the pods that are left: %v", err)
	}
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, s := range list.GetItems() {
		group.Go(func() error {
			_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
			if err == nil {
				_, err = c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		c.t.Errorf("remove a pod that is left: %v", err)
	}
}

// run starts a command until the test ends, and shows the end of its output if the test fails. It returns the command.
func run(tb testing.TB, command *exec.Cmd, what string) *exec.Cmd {
	tb.Helper()
	log, err := os.Create(filepath.Join(tb.TempDir(), what+".log"))
	must.Succeed(tb, err)
	command.Stdout, command.Stderr = log, log // see startAgent
	must.Succeed(tb, command.Start())
	tb.Cleanup(func() {
		_ = command.Process.Kill() // an error means that it has ended
		_ = command.Wait()
		_ = log.Close()
		const tail = 16384
		if text := must.Read(tb, log.Name()); tb.Failed() {
			tb.Logf("the end of the output of %s:\n%s", what, text[max(0, len(text)-tail):])
		}
	})
	return command
}
