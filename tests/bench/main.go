// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

// Command bench compares declaring programs as Kubernetes objects with calling the
// daemon directly, on a running cluster: the time, the requests to the API server, and
// the memory. docs/benchmarks.md explains the figures.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/figures"
	"github.com/bpfman/bpfman-operator/tests/node"
)

const (
	namePrefix = "bench-"
	// declareTimeout bounds the wait for objects.
	declareTimeout = 3 * time.Minute
)

// sizes are the numbers of programs to measure with.
var sizes = []int{1, 20, 60}

func programName(i int) string { return fmt.Sprintf("%s%02d", namePrefix, i) }

type options struct {
	rounds     int
	image      string
	function   string
	probeImage string
	kubectl    string
	auditLog   string
	// cosign signs the image at signedAt, whose registry has a certificate of signedCA.
	// Without cosign, the cost of policies isn't measured.
	cosign, signedAt, signedCA string
	// certificates are those that a distribution ships.
	certificates string
	reboot       bool
	out          string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "How often each is measured.")
	flags.StringVar(&o.image, "image", "quay.io/bpfman-bytecode/go-tracepoint-counter:latest", "Bytecode image with a tracepoint program.")
	flags.StringVar(&o.function, "function", "tracepoint_kill_recorder", "The program's function.")
	flags.StringVar(&o.probeImage, "probe-image", "quay.io/bpfman/bpfman-node-probe:latest", "The node probe's image, for a pod on the node.")
	flags.StringVar(&o.kubectl, "kubectl", "kubectl", "The kubectl to apply with.")
	flags.StringVar(&o.auditLog, "audit-log", "", "The API server's audit log, if it can be read here.")
	flags.StringVar(&o.cosign, "cosign", "", "cosign, to sign the image with; without it what policies cost isn't measured.")
	flags.StringVar(&o.signedAt, "sign-at", "", "The image as cosign reaches it, if not by its name.")
	flags.StringVar(&o.signedCA, "sign-ca", "", "Certificates that cosign trusts, if not the machine's.")
	flags.StringVar(&o.certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt", "Certificates as a distribution ships them, for the daemon that runs as upstream ships it.")
	flags.BoolVar(&o.reboot, "reboot", false, "Also simulate a reboot of the node, which removes everything that bpfman has loaded there; needs --sign-at.")
	flags.StringVar(&o.out, "out", "bench.json", "File for the figures.")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse arguments: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	measured, err := measure(ctx, o)
	if err != nil {
		return err
	}
	measured.print(os.Stdout)
	if err := figures.Write(o.out, measured.json()); err != nil {
		return err
	}
	fmt.Println("\nwritten to", o.out)
	return nil
}

// measure does all rounds. The measurements alternate, so that variations of the machine
// affect all of them.
func measure(ctx context.Context, o options) (f *results, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	restConfig, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("load the API client's configuration: %w", err)
	}
	c, err := client.NewWithWatch(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	nodeName, err := nodeUnderTest(ctx, c)
	if err != nil {
		return nil, err
	}
	fmt.Printf("node %s: %s of %s, %d rounds\n", nodeName, o.function, o.image, o.rounds)
	h, err := startHelper(ctx, restConfig, o.kubectl, nodeName, o.probeImage)
	defer func() { err = errors.Join(err, h.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	certificates, err := bundle(o.certificates, o.signedCA)
	if err != nil {
		return nil, err
	}
	if err := h.startShipped(ctx, c, nodeName, o.probeImage, certificates); err != nil {
		return nil, err
	}
	b := bench{options: o, cluster: cluster{client: c, kubectl: o.kubectl, node: nodeName}, helper: h, results: newResults()}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.cleanUp(context.WithoutCancel(ctx)))
		}
	}()
	if err := b.all(ctx); err != nil {
		return nil, err
	}
	if o.auditLog == "" {
		return b.results, nil
	}
	return b.results, b.results.readRequests(o.auditLog)
}

// all makes all measurements.
func (b *bench) all(ctx context.Context) error {
	b.signedAt = cmp.Or(b.signedAt, b.image)
	// The first objects make the node pull the image, and fill kubectl's caches.
	if _, err := b.declare(ctx, 1, newResults()); err != nil {
		return err
	}
	var err error
	if b.file, err = b.helper.stored(ctx, b.image); err != nil {
		return err
	}
	if err := b.round(ctx, 1, 0, newResults()); err != nil {
		return err
	}
	for round := range b.rounds {
		for _, n := range sizes {
			if err := b.round(ctx, n, round, b.results); err != nil {
				return err
			}
		}
	}
	if err := b.memoryAfterLoads(ctx); err != nil {
		return err
	}
	if b.cosign != "" {
		if err := b.policies(ctx); err != nil {
			return err
		}
	}
	if !b.options.reboot {
		return nil
	}
	b.results.reboot, err = b.reboot(ctx)
	return err
}

type bench struct {
	options
	cluster cluster
	helper  helper
	results *results
	// file is the object of the image in the node's store.
	file string
}

// round measures the daemon as upstream ships it, the cluster's daemon, and declared
// objects. Each round starts with another one.
func (b *bench) round(ctx context.Context, n, round int, f *results) error {
	var t timesOfRound
	steps := []func() error{
		func() (err error) {
			t.shipped, err = b.helper.shipped(ctx, n, b.image, b.function)
			return err
		},
		func() (err error) {
			t.own, err = b.helper.direct(ctx, n, b.file, b.function)
			return err
		},
		func() (err error) {
			t.ours, err = b.declare(ctx, n, f)
			return err
		},
	}
	for i := range steps {
		if err := steps[(round+i)%len(steps)](); err != nil {
			return err
		}
	}
	f.add(n, t)
	fmt.Printf("%3d programs: daemon as shipped %6.2f s, the cluster's daemon alone %6.2f s, kubectl apply to all attached %6.2f s\n",
		n, loadAndAttach(t.shipped).Seconds(), loadAndAttach(t.own).Seconds(), t.ours.Attached.Seconds())
	return nil
}

// manyLoads is the number of loads after which the daemon's memory is measured again.
const manyLoads = 600

// memoryAfterLoads measures the daemon's memory after many loads. The rounds count, as the
// daemon is the same.
func (b *bench) memoryAfterLoads(ctx context.Context) error {
	for loads := b.results.loads(); loads < manyLoads; loads += sizes[len(sizes)-1] {
		if _, err := b.helper.direct(ctx, sizes[len(sizes)-1], b.file, b.function); err != nil {
			return err
		}
	}
	resident, err := b.helper.memory(ctx, node.Daemon)
	b.results.afterLoads = resident[node.Daemon]
	return err
}

func (b bench) declare(ctx context.Context, n int, f *results) (declaredTimes, error) {
	manifest, err := b.cluster.manifest(n, b.image, b.function)
	if err != nil {
		return declaredTimes{}, err
	}
	return b.cluster.declare(ctx, manifest, n, func(ctx context.Context) error {
		if n != sizes[len(sizes)-1] {
			return nil
		}
		resident, err := b.helper.memory(ctx, measuredProcesses...)
		f.addMemory(resident)
		return err
	})
}

// cleanUp removes the objects of a failed run.
func (b bench) cleanUp(ctx context.Context) error {
	manifest, err := b.cluster.manifest(sizes[len(sizes)-1], b.image, b.function)
	if err != nil {
		return err
	}
	_, err = runKubectl(ctx, b.kubectl, manifest, "delete", "--ignore-not-found", "--wait=false", "-f", "-")
	return err
}
