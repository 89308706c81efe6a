// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bpfman/bpfman-operator/hack/cluster/component"
	"github.com/bpfman/bpfman-operator/hack/cluster/image"
)

// pulledPod can't start before the kubelet has pulled its image.
const pulledPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: shell
    image: %s
    imagePullPolicy: Always
    command: [/bin/busybox, echo, pulled]
`

// TestPodRunsAPushedImage pushes an image to the cluster's registry like a user of the
// host. Pods run it with both names of the registry. The node has no other image with
// that name.
func TestPodRunsAPushedImage(t *testing.T) {
	m := newMachine(t)
	m.run("down")
	m.run("up")
	const repository = "pushed/busybox:v1"
	registry := net.JoinHostPort(m.settings.IP.Addr().String(), component.RegistryPort)
	m.push(registry + "/" + repository)
	for pod, host := range map[string]string{"by-address": registry, "by-name": "quay.io"} {
		m.kubectl(fmt.Sprintf(pulledPod, pod, host+"/"+repository), "apply", "-f", "-")
		m.kubectl("", "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", "pod/"+pod)
		if log := m.kubectl("", "logs", pod); log != "pulled\n" {
			t.Errorf("%s: the pod says %q", host, log)
		}
	}
	m.run("down")
}

// push pushes busybox, trusting the CA that the documentation names.
func (m machine) push(reference string) {
	m.t.Helper()
	catalog := image.Catalog()
	at := slices.IndexFunc(catalog, func(d image.Description) bool { return d.Name == "docker.io/library/busybox:1.37" })
	if at < 0 {
		m.t.Fatal("the catalog has no busybox")
	}
	described, err := catalog[at].Describe(m.t.Context(), image.Sources{})
	if err != nil {
		m.t.Fatal(err)
	}
	built, err := described.Build()
	if err != nil {
		m.t.Fatal(err)
	}
	ca, err := os.ReadFile(m.settings.RegistryCA())
	if err != nil {
		m.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		m.t.Fatalf("no certificate in %s", m.settings.RegistryCA())
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	tag, err := name.NewTag(reference)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := remote.Write(tag, built, remote.WithContext(m.t.Context()), remote.WithTransport(transport)); err != nil {
		m.t.Fatalf("push %s: %v", reference, err)
	}
}
