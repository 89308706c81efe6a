// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Package sanity runs csi-sanity, the CSI community's test suite, on the plugin with the
// real bpfman daemon.
package sanity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

const (
	// pluginVariable is the environment variable with the path of the plugin's binary.
	pluginVariable = "BPFMAN_CSI"
	// programFile contains the program whose maps are mounted.
	programFile  = "../../bin/bytecode/go-tracepoint-counter.o"
	programName  = "counter"
	namespace    = "team"
	startTimeout = 10 * time.Second
)

// notOurs are the parts of the suite for services that the plugin doesn't have.
var notOurs = map[string]string{
	"[Controller Server]": "the plugin is node-only: pods' volumes are ephemeral, and nothing creates, attaches or snapshots them",
	"[GroupController":    "the plugin is node-only: there are no snapshots",
}

func TestSanity(t *testing.T) {
	socket, pods := startPlugin(t)
	config := sanity.NewTestConfig()
	config.Address = "unix:" + socket
	config.TargetPath = filepath.Join(pods, "mount-parent")
	config.StagingPath = filepath.Join(t.TempDir(), "staging")
	config.DialOptions = append(config.DialOptions, grpc.WithUnaryInterceptor(standInController))

	suiteContext := sanity.GinkgoTest(&config)
	defer suiteContext.Finalize()
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("skipped tests", listSkipped)
	suite, reporter := ginkgo.GinkgoConfiguration()
	for part := range notOurs {
		suite.SkipStrings = append(suite.SkipStrings, strings.NewReplacer("[", `\[`, "]", `\]`).Replace(part))
	}
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
}

// listSkipped prints the skipped tests, grouped by reason.
func listSkipped(report types.Report) {
	counts := map[types.SpecState]int{}
	skipped := map[string][]string{}
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		counts[spec.State]++
		if spec.State == types.SpecStateSkipped || spec.State == types.SpecStatePending {
			reason := reasonOf(spec)
			skipped[reason] = append(skipped[reason], spec.FullText())
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Printf("skipped: %s\n    %s\n", reason, strings.Join(skipped[reason], "\n    "))
	}
	fmt.Printf("csi-sanity: %d passed, %d failed, %d skipped, %d pending\n", counts[types.SpecStatePassed],
		counts[types.SpecStateFailed], counts[types.SpecStateSkipped], counts[types.SpecStatePending])
}

func reasonOf(spec types.SpecReport) string {
	for part, reason := range notOurs {
		if strings.Contains(spec.FullText(), part) {
			return reason
		}
	}
	return cmp.Or(spec.Failure.Message, "pending in csi-test itself")
}

// startPlugin starts the plugin in the mount namespace of a daemon that has one program
// loaded. It returns the plugin's socket, and its directory of pods.
func startPlugin(t *testing.T) (socket, pods string) {
	t.Helper()
	binary := os.Getenv(pluginVariable)
	if binary == "" {
		prerequisite.Missing(t, pluginVariable+" isn't set to the path of bpfman-csi", prerequisite.Commands)
	}
	d := daemontest.Start(t)
	load(t, d.Client)
	dir := t.TempDir()
	socket, pods = filepath.Join(dir, "csi.sock"), filepath.Join(dir, "kubelet/pods")
	must.Succeed(t, os.MkdirAll(pods, 0o750))
	command := d.Command(t.Context(), binary, "--endpoint=unix://"+socket, "--daemon-socket="+d.Socket,
		"--kubelet-root="+filepath.Dir(pods), "--node-name=node-1")
	command.Stderr = t.Output()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatalf("start plugin: %v", err)
	}
	t.Cleanup(func() { _ = command.Wait() }) // the end of the context killed it
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if _, err := csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("plugin not ready: %v", err)
	}
	return socket, pods
}

func load(t *testing.T, client gobpfman.BpfmanClient) {
	t.Helper()
	file, err := filepath.Abs(programFile)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Load(t.Context(), &gobpfman.LoadRequest{
		Bytecode: &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: file}},
		Metadata: map[string]string{v1alpha1.MetadataProgramName: programName, v1alpha1.MetadataKind: "TracepointProgram"},
		Info:     []*gobpfman.LoadInfo{{Name: "tracepoint_kill_recorder", ProgramType: gobpfman.BpfmanProgramType_TRACEPOINT}},
	})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
}

// standInController replaces the controller service from which the suite gets volumes,
// so that its tests of whole lives of volumes run on the plugin. In Kubernetes, the
// kubelet creates such volumes for pods.
func standInController(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	switch method {
	case csi.Identity_GetPluginCapabilities_FullMethodName:
		if err := invoke(ctx, method, request, reply, conn, options...); err != nil {
			return err
		}
		merge(reply, &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}})
	case csi.Controller_CreateVolume_FullMethodName:
		merge(reply, &csi.CreateVolumeResponse{Volume: &csi.Volume{
			VolumeId: "csi-" + request.(*csi.CreateVolumeRequest).GetName(), //nolint:errcheck // it has the type of this method
			VolumeContext: map[string]string{
				v1alpha1.VolumeAttributeProgram:    programName,
				v1alpha1.VolumeAttributeMaps:       "*",
				"csi.storage.k8s.io/pod.name":      "reader",
				"csi.storage.k8s.io/pod.namespace": namespace,
			},
		}})
	case csi.Controller_DeleteVolume_FullMethodName, csi.Controller_ControllerGetCapabilities_FullMethodName:
	default:
		return invoke(ctx, method, request, reply, conn, options...)
	}
	return nil
}

func merge(reply any, with proto.Message) {
	proto.Merge(reply.(proto.Message), with) //nolint:errcheck // gRPC's codec requires this type
}
