// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/bpfman/bpfman-operator/tests/node"
)

// TestProxy loads a program whose image only an HTTP proxy can pull: nothing listens at the registry's port in its
// reference, and the proxy connects to the right one. The operator has the proxy in its environment.
func TestProxy(t *testing.T) {
	requireType(t, "TCX")
	requirePush(t)
	const address = "127.0.0.1:13128" // on each node, whose network the components use
	host, _, err := net.SplitHostPort(settings.push)
	if err != nil {
		t.Fatalf("the registry %s: %v", settings.push, err)
	}
	target := net.JoinHostPort(host, "15000")
	program := tcx("e2e-proxy", "lo")
	program.Spec.ByteCode.Image.Url = target + "/" + bytecodePrefix + "/tcx_test:latest"
	var end func() map[string]map[string]int
	feature(t,
		step{"no proxy", func(ctx context.Context, s *testing.T) {
			create(ctx, t, program)
			awaitFailure(ctx, s, program, "refuses connections")
		}},
		step{"a proxy", func(ctx context.Context, s *testing.T) {
			end = runProxies(ctx, t, address, target)
			useProxy(ctx, t, "http://"+address)
			awaitSuccess(ctx, s, program)
		}},
		step{"only for the registry", func(_ context.Context, s *testing.T) {
			for name, requested := range end() {
				if len(requested) != 1 || requested[target] == 0 {
					s.Errorf("the proxy of %s was asked for %v, want only %s", name, requested, target)
				}
			}
		}},
	)
}

// runProxies runs a proxy on each node until the returned function is called, which returns how often each proxy was
// asked for what.
func runProxies(ctx context.Context, t *testing.T, address, target string) (end func() map[string]map[string]int) {
	t.Helper()
	stops := map[string]func() map[string]int{}
	for _, name := range under.nodes() {
		stops[name] = inBackground[map[string]int](ctx, t, name, []string{"proxy", address, target, settings.push}, "end-proxy", address)
		await(ctx, t, "a proxy on "+name, func(ctx context.Context) (bool, string) {
			page, err := ask[node.Page](ctx, name, "fetch", "http://"+address)
			return err == nil, fmt.Sprint(page, err)
		})
	}
	return func() map[string]map[string]int { return answers(stops) }
}

// useProxy configures a proxy as `kubectl set env` does, until the test ends.
func useProxy(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	variable := corev1.EnvVar{Name: "HTTPS_PROXY", Value: url}
	set := func(ctx context.Context, change func([]corev1.EnvVar) []corev1.EnvVar, want bool) {
		modify(ctx, t, operatorDeployment(), func(d *appsv1.Deployment) {
			operator := &d.Spec.Template.Spec.Containers[0]
			operator.Env = change(operator.Env)
		})
		awaitNodeComponents(ctx, t, func(d *appsv1.DaemonSet) bool {
			return !slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
				return slices.Contains(c.Env, variable) != (c.Name == "bpfman-agent" && want)
			})
		})
	}
	t.Cleanup(func() {
		set(context.WithoutCancel(ctx), func(env []corev1.EnvVar) []corev1.EnvVar {
			return slices.DeleteFunc(env, func(v corev1.EnvVar) bool { return v == variable })
		}, false)
	})
	set(ctx, func(env []corev1.EnvVar) []corev1.EnvVar { return append(env, variable) }, true)
}
