// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecodesource

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// hostile serves a registry with the certificate that the reader trusts, and returns its
// address.
func hostile(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Certificate()}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func (n *node) at(name, address string) *v1alpha1.TcxProgram {
	return n.program(name, v1alpha1.BytecodeSelector{Image: &v1alpha1.BytecodeImage{Url: address + "/x:latest", ImagePullPolicy: v1alpha1.PullAlways}})
}

// victim listens on another loopback address, and counts connections and credentials.
type victim struct {
	address                string
	connections, passwords atomic.Int32
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	v.address = listener.Addr().String()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				v.connections.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				v.passwords.Add(1)
			}
			_, _ = io.WriteString(w, "the node's secret")
		}),
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return v
}

// A registry's answer can't make the agent fetch from the node's own services, and never gets
// credentials for another host or without TLS.
func TestRegistryLeadsElsewhere(t *testing.T) {
	n := start(t)
	v := newVictim(t)
	to := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/v2/":
			case r.Header.Get("Authorization") == "" && strings.Contains(url, "private"):
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			default:
				http.Redirect(w, r, url, http.StatusTemporaryRedirect)
			}
		}
	}
	token := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, v.address))
		w.WriteHeader(http.StatusUnauthorized)
	}
	for name, serve := range map[string]http.HandlerFunc{
		"http":      to("http://" + v.address + "/metrics"),
		"https":     to("https://" + v.address + "/metrics"),
		"private":   to("http://" + v.address + "/private"),
		"linklocal": to("https://169.254.169.254/latest/meta-data"),
		"token":     token,
	} {
		t.Run(name, func(t *testing.T) {
			address := hostile(t, serve)
			s := secret("elsewhere-"+name, corev1.SecretTypeDockerConfigJson, map[string]any{address: basic("hunter2")})
			n.create(s)
			o := n.at("elsewhere-"+name, address)
			o.Spec.ByteCode.Image.ImagePullSecret = &v1alpha1.ImagePullSecretSelector{Name: s.Name, Namespace: namespace}
			n.create(o)
			found := n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, "image "+address)
			if text := found.Status.Conditions[0].Message; strings.Contains(text, "the node's secret") || strings.Contains(text, "hunter2") {
				t.Error(text)
			}
			n.delete(o)
		})
	}
	if v.connections.Load() != 0 || v.passwords.Load() != 0 {
		t.Errorf("%d connections to the node's service, %d with credentials", v.connections.Load(), v.passwords.Load())
	}
}

// What a registry says reaches the condition without characters that change how it is shown.
func TestRegistryWrites(t *testing.T) {
	n := start(t)
	address := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" {
			return
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"\u001b[31mred\u0000 \u202Eabc %s"}]}`, strings.Repeat("x", 3000))
	})
	o := n.at("writes", address)
	n.create(o)
	found := n.fails(o, v1alpha1.BpfProgCondBytecodeSelectorError, "image "+address)
	text := found.Status.Conditions[0].Message
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) || len(text) > 1000 {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// Registries that hang or drip only delay their own objects.
func TestSlowRegistries(t *testing.T) {
	const many = 40
	n := start(t)
	n.Push("fast:latest", build(t, "tcx_test"))
	drips := func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write([]byte{' '}); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Second):
			}
		}
	}
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for i := range many {
		serve := drips
		if i%2 == 0 {
			serve = hangs
		}
		n.create(n.at(fmt.Sprintf("slow-%d", i), hostile(t, serve)))
	}
	const waits, fails = v1alpha1.BpfProgCondNone, v1alpha1.BpfProgCondBytecodeSelectorError
	// told returns the number of objects whose reports have one of the conditions.
	told := func(ctx context.Context, conditions ...v1alpha1.BpfProgramConditionType) (int, error) {
		var list v1alpha1.BpfProgramList
		if err := n.client.List(ctx, &list); err != nil {
			return 0, err
		}
		count := 0
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Node != n.name || len(p.Status.Conditions) == 0 {
				continue
			}
			if slices.Contains(conditions, v1alpha1.BpfProgramConditionType(p.Status.Conditions[0].Type)) {
				count++
			}
		}
		return count, nil
	}
	o := n.program("slow-not", n.image("fast:latest", v1alpha1.PullAlways))
	created := time.Now()
	n.create(o)
	n.loaded(o)
	// On a machine under load, each registry is slow, and waits for some others. It doesn't wait for the deadlines of all that
	// came first.
	count, err := told(t.Context(), fails)
	if err != nil || count == many {
		t.Errorf("attached after %d of %d slow registries had failed, %v", count, many, err)
	}
	t.Logf("attached after %s, and after %d of %d slow registries had failed", time.Since(created), count, many)
	n.eventually("the slow ones to say so", func(ctx context.Context) error {
		count, err := told(ctx, waits, fails)
		if err == nil && count < many {
			err = fmt.Errorf("%d of %d say so", count, many)
		}
		return err
	})
}
