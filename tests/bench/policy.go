// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// policyTimes are the times from the creation of one program until it is loaded.
type policyTimes struct {
	// Without is without a policy. First is with a policy that the agent evaluates for
	// the first time. Known is with one that it has evaluated before.
	Without, First, Known time.Duration
}

// signer signs the measured image with its own key.
type signer struct {
	cosign, signedAt, ca string
	dir                  string
}

// sign creates a key pair, signs the image, and returns the public key.
func (s signer) sign(ctx context.Context) (string, error) {
	for _, arguments := range [][]string{
		{"generate-key-pair", "--output-key-prefix", filepath.Join(s.dir, "bench")},
		{"sign", "--key", filepath.Join(s.dir, "bench.key"), "--yes", "--tlog-upload=false", "--use-signing-config=false", s.signedAt},
	} {
		command := exec.CommandContext(ctx, s.cosign, arguments...)
		command.Dir = s.dir
		command.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+s.dir)
		if s.ca != "" {
			command.Env = append(command.Env, "SSL_CERT_FILE="+s.ca)
		}
		if out, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("cosign %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(s.dir, "bench.pub"))
	if err != nil {
		return "", fmt.Errorf("read public key: %w", err)
	}
	return string(public), nil
}

// policies measures, in each round, one program without a policy, and two with a policy
// that has a new name. The name is part of the agent's request, so no answer is cached.
func (b bench) policies(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fmt.Errorf("make directory of keys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	key, err := signer{b.cosign, b.signedAt, b.signedCA, dir}.sign(ctx)
	if err != nil {
		return err
	}
	for round := range b.rounds {
		var t policyTimes
		if t.Without, err = b.loadOne(ctx); err != nil {
			return err
		}
		policy := &v1alpha1.BytecodePolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d-%d", namePrefix, time.Now().Unix(), round)}}
		policy.Spec.Rules = []v1alpha1.BytecodeRule{{Name: "signed", Images: []string{b.image}, SignedBy: []string{"bench"}}}
		policy.Spec.Authorities = []v1alpha1.BytecodeAuthority{{Name: "bench", Key: &v1alpha1.AuthorityKey{PEM: key}}}
		if err := b.cluster.client.Create(ctx, policy); err != nil {
			return fmt.Errorf("create policy: %w", err)
		}
		t.First, err = b.loadOne(ctx)
		if err == nil {
			t.Known, err = b.loadOne(ctx)
		}
		if err := errors.Join(err, client.IgnoreNotFound(b.cluster.client.Delete(context.WithoutCancel(ctx), policy))); err != nil {
			return fmt.Errorf("under a policy: %w", err)
		}
		b.results.policies = append(b.results.policies, t)
		fmt.Printf("one program: without a policy %v, first under one %v, known %v\n", t.Without, t.First, t.Known)
	}
	return nil
}

// loadOne declares one program, and returns the time from its creation until it is
// loaded.
func (b bench) loadOne(ctx context.Context) (time.Duration, error) {
	t, err := b.declare(ctx, 1, newResults())
	return t.Loaded - t.Seen, err
}
