// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command csi-node-driver-registrar replaces kubernetes-csi's sidecar of that name if its
// image isn't available. It does the same as v2.13.0 and v2.17.0: it accepts the flags
// that the node components use, gets the plugin's name, and registers it with the kubelet.
// Like these, it doesn't notice that its socket is removed. Its mode
// kubelet-registration-probe, which was once meant for a liveness probe, always succeeds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	modeProbe = "kubelet-registration-probe"
	// registrationDir is the kubelet's directory, as mounted into the sidecar.
	registrationDir = "/registration"
	pluginTimeout   = 30 * time.Second
)

func main() {
	csiAddress := flag.String("csi-address", "/run/csi/socket", "")
	endpoint := flag.String("kubelet-registration-path", "", "")
	mode := flag.String("mode", "registration", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if *mode == modeProbe {
		return
	}
	if err := register(ctx, *csiAddress, *endpoint); err != nil {
		log.Fatal(err)
	}
}

// register serves the kubelet until the context ends.
func register(ctx context.Context, csiAddress, endpoint string) error {
	name, err := driverName(ctx, csiAddress)
	if err != nil {
		return err
	}
	path := filepath.Join(registrationDir, name+"-reg.sock")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of another run: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for the kubelet: %w", err)
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, &registration{name: name, endpoint: endpoint})
	context.AfterFunc(ctx, server.Stop) // this removes the socket
	return server.Serve(listener)
}

func driverName(ctx context.Context, csiAddress string) (string, error) {
	connection, err := grpc.NewClient("unix:"+csiAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("plugin at %s: %w", csiAddress, err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", fmt.Errorf("ask the plugin at %s for its name: %w", csiAddress, err)
	}
	return info.GetName(), nil
}

type registration struct {
	registerapi.UnimplementedRegistrationServer
	name, endpoint string
}

func (r *registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus exits if the kubelet refuses the plugin. The sidecar is then
// restarted, and tries again.
func (r *registration) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		log.Fatal("the kubelet refused the plugin: ", status.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
