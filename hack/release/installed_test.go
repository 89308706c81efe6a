// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bpfman/bpfman-operator/hack/cluster/image"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/tutorials"
)

// The versions of TestInstalled.
const (
	formerVersion = "0.98.6"
	newVersion    = "0.98.7"
)

// patience is how long a rollout may take.
const patience = 4 * time.Minute

// user is a user of a release, on a cluster of this machine that knows nothing but the release.
type user struct {
	*machine

	// pages are the published pages, and home is the user's directory.
	pages, home string
	// own replaces what a page lets its readers choose.
	own *strings.Replacer
	// others is the start of the names of other projects' images.
	others string
	// onNode runs a script on the node, whose state is in a directory.
	onNode func(script string)
	state  string
}

// TestInstalled releases two versions under a name that no file contains. On a cluster that has no other images, it then
// does what the pages say, with the pages' own commands: it gets and verifies the first version, installs it, runs the
// first program, reads its map in a volume, upgrades to the second version, and uninstalls that. The container runtime
// and bpfman only know the registry's authority.
func TestInstalled(t *testing.T) {
	u := newUser(t)
	u.publish(formerRelease(t), formerVersion)
	clone := u.publish("HEAD", newVersion)
	u.run("make", "-C", clone, "--no-print-directory", "docs-names", "REGISTRY="+u.registry, "SOURCE="+u.source)
	u.pages = filepath.Join(clone, "docs")

	for _, way := range []struct{ name, install, upgrade, uninstall string }{
		{"Helm", "Helm", "With Helm", "Uninstall after helm install"},
		{"files", "Files", "With files", "Uninstall files"},
	} {
		t.Run(way.name, func(t *testing.T) {
			u := u.in(t)
			u.own = u.choices(newVersion, formerVersion)
			u.follow("install.md", "Get a release", "Verify a release", way.install)
			u.trustRegistry()
			u.follow("install.md", "Check the installation")
			u.runsOnly(formerVersion)
			u.follow("get-started.md", "Attach a program", "Read its map from a pod")
			before := u.used()

			u.own = u.choices()
			u.follow("install.md", "Get a release", "Verify a release")
			u.follow("upgrade.md", way.upgrade)
			u.follow("install.md", "Check the installation")
			u.runsOnly(newVersion)
			u.keeps(before)

			u.follow("get-started.md", "Clean up")
			u.follow("install.md", "Uninstall", way.uninstall)
			u.nothingIsLeft()
		})
	}
	t.Run("catalog", u.installsFromCatalog)
	mirror := strings.Replace(u.host, "registry.", "mirror.", 1)
	for _, way := range []struct{ name, install, uninstall string }{
		{"Helm without internet", "Install the copy with Helm", "Uninstall after helm install"},
		{"files without internet", "Install the copied files", "Uninstall files"},
	} {
		t.Run(way.name, func(t *testing.T) {
			u := u.in(t)
			u.moveTo(mirror)
			u.own = u.choices("registry.example.com/bpfman-bytecode/go-tcx-counter:latest", mirror+"/bpfman-bytecode/go-tcx-counter:v"+newVersion, "registry.example.com", mirror)
			u.follow("air-gapped.md", "Copy a release", way.install)
			u.follow("install.md", "Check the installation")
			u.runsOnly(newVersion)
			u.follow("air-gapped.md", "Try it")
			u.follow("get-started.md", "Read its map from a pod")
			u.used()
			u.follow("get-started.md", "Clean up")
			u.follow("install.md", "Uninstall", way.uninstall)
			u.nothingIsLeft()
		})
	}
}

// formerRelease returns the commit of the former release: the last tag, or before there is one, the first commit from
// which everything can be released.
func formerRelease(t *testing.T) string {
	t.Helper()
	m := &machine{t: t}
	if tag, err := m.try("git", "describe", "--tags", "--abbrev=0", "--match=v*", "--exclude=*-*", "HEAD~1"); err == nil {
		return strings.TrimSpace(tag)
	}
	commits := strings.Fields(m.run("git", "log", "--format=%H", "--diff-filter=A", "--", "images/publish.go"))
	if len(commits) == 0 {
		t.Fatal("the clone has no history")
	}
	return commits[len(commits)-1]
}

// newUser starts a cluster, and a registry whose name nobody has ever used.
func newUser(t *testing.T) *user {
	t.Helper()
	tools, instance := os.Getenv("RELEASE_INSTALLED"), os.Getenv("CLUSTER_INSTANCE")
	if tools == "" {
		t.Skip("it takes many minutes: make test-release-installed runs it")
	}
	u := &user{home: t.TempDir()}
	kubeconfig := filepath.Join(u.home, "kubeconfig")
	u.state = "/var/lib/bpfman-cluster" + instance
	cluster := func(arguments ...string) {
		t.Helper()
		flags := []string{"--instance", instance, "--state-dir", u.state, "--kubernetes", os.Getenv("CLUSTER_KUBERNETES"), "--kubeconfig", kubeconfig, "--bin", filepath.Join(u.home, "bin")}
		command := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(tools, "cluster"), append(flags, arguments...)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("cluster %q: %v\n%s", arguments, err, output)
		}
	}
	// The only image of this project that the node has is that of sandboxes.
	(&machine{t: t}).run("install", "-D", filepath.Join(tools, "pause"), filepath.Join(u.home, "bin", "pause"))
	t.Cleanup(func() { cluster("down") })
	cluster("up")
	name, address := strings.ToLower(rand.Text()[:12]), "10.97."+instance+".1"
	u.machine = newMachine(t, "RELEASE_INSTALLED", address, "registry."+name+".test", "files."+name+".test", "mirror."+name+".test")
	u.enter("bash")
	u.environment = append(u.environment, "KUBECONFIG="+kubeconfig, "COSIGN_KEY="+u.key+".pub", "COSIGN_INSECURE_IGNORE_TLOG=true",
		"PATH="+u.commands()+":"+os.Getenv("PATH"))
	u.pushDaemon()
	u.serveFiles("files." + name + ".test")
	u.onNode = func(script string) { cluster("exec", "sh", "-c", script) }
	u.reach(u.host)
	u.others = u.host + "/other/"
	return u
}

// reach makes the node know a registry, and the container runtime trust it, as the cluster's administrator does. The node
// then reaches no other one.
func (u *user) reach(host string) {
	u.t.Helper()
	authority := filepath.Join(u.state, "etc/release-ca.crt")
	u.write(authority, u.read(u.ca))
	u.write(filepath.Join(u.state, "etc/certs.d", host, "hosts.toml"), fmt.Sprintf("server = %q\n[host.%[1]q]\n  ca = %q\n", "https://"+host, authority))
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		u.t.Fatal(err)
	}
	u.onNode("grep -v '[.]test$' /etc/hosts >/tmp/hosts; echo '" + u.address + " " + name + "' >>/tmp/hosts; cat /tmp/hosts >/etc/hosts")
}

// in returns the user for a subtest.
func (u *user) in(t *testing.T) *user {
	t.Helper()
	m, in := *u.machine, *u
	m.t, in.machine = t, &m
	return &in
}

// moveTo makes the user, and the node, use another registry alone.
func (u *user) moveTo(mirror string) {
	u.t.Helper()
	u.reach(mirror)
	u.registry, u.others = mirror, mirror+"/"
	u.write(filepath.Join(u.home, "ca.crt"), u.read(u.ca))
}

// enter puts a wrapper of a command into the path of the test, which gives it the machine's /etc/hosts.
func (u *user) enter(command string) {
	u.t.Helper()
	path, err := exec.LookPath(command)
	if err != nil {
		u.t.Fatal(err)
	}
	wrapper := filepath.Join(u.dir, "entered", command)
	u.write(wrapper, fmt.Sprintf("#!/bin/sh\nexec unshare --mount sh -ec '%s' %s %s \"$@\"\n", withHosts, u.hosts, path))
	if err := os.Chmod(wrapper, 0o700); err != nil {
		u.t.Fatal(err)
	}
	u.environment = append(u.environment, "PATH="+os.Getenv("PATH"))
	u.t.Setenv("PATH", filepath.Dir(wrapper)+":"+os.Getenv("PATH"))
}

// commands returns a directory with the commands that the pages require.
func (u *user) commands() string {
	u.t.Helper()
	dir := filepath.Join(u.home, "commands")
	for _, command := range []string{"helm", "cosign", "kubectl", "oras"} {
		u.run("install", "-D", filepath.Join(u.tools, command), filepath.Join(dir, command))
	}
	return dir
}

// pushDaemon publishes copies of the other projects' images that are installed.
func (u *user) pushDaemon() {
	u.t.Helper()
	u.pushOthers()
	for _, each := range image.Catalog() {
		to := map[string]string{"quay.io/bpfman/bpfman:v0.6.0": u.daemon, image.Registry + "/csi-node-driver-registrar:latest": u.registrar}[each.Name]
		if to == "" {
			continue
		}
		described, err := each.Describe(u.t.Context(), image.Sources{Bin: u.tools, Daemon: os.Getenv("CLUSTER_DAEMON")})
		if err != nil {
			u.t.Fatal(err)
		}
		built, err := described.Build()
		if err != nil {
			u.t.Fatal(err)
		}
		config, err := built.ConfigFile()
		if err != nil {
			u.t.Fatal(err)
		}
		u.push(to, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
			Add: built, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture}},
		}))
	}
}

// serveFiles serves the files of releases, as GitHub does.
func (u *user) serveFiles(called string) {
	u.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(u.t.Context(), "tcp", net.JoinHostPort(u.address, "0"))
	if err != nil {
		u.t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(filepath.Join(u.home, "files"))), ReadHeaderTimeout: time.Minute}
	u.t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(listener, u.ca, u.caKey) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		u.t.Fatal(err)
	}
	u.source = "https://" + net.JoinHostPort(called, port) + "/project"
}

// publish releases a commit as docs/releasing.md says, and returns the clone.
func (u *user) publish(commit, version string) string {
	u.t.Helper()
	clone := u.clone(commit)
	u.run("make", "-C", clone, "--no-print-directory", "bump", "NEW="+version)
	changelog := filepath.Join(clone, "CHANGELOG.md")
	u.write(changelog, strings.Replace(u.read(changelog), "## Unreleased", "## "+version+" - "+time.Now().Format(time.DateOnly), 1))
	u.run("git", "-C", clone, "commit", "--quiet", "--all", "--message", "Release "+version)
	u.tag(clone, version)
	began := time.Now()
	output, err := u.release(clone, version, "PUBLISH=yes")
	if err != nil {
		u.t.Fatalf("release %s of %s: %v\n%s", version, commit, err, output)
	}
	u.t.Logf("released %s of %s in %s", version, commit, time.Since(began).Round(time.Second))
	served := filepath.Join(u.home, "files/project/releases/download/v"+version)
	if err := errors.Join(os.MkdirAll(filepath.Dir(served), 0o750), os.Symlink(filepath.Join(clone, "bin/release-files"), served)); err != nil {
		u.t.Fatal(err)
	}
	return clone
}

// choices returns what replaces parts of the pages: what a site sets, and more.
func (u *user) choices(more ...string) *strings.Replacer {
	u.t.Helper()
	site, err := json.Marshal(map[string]string{"registryCA": u.read(u.ca)})
	if err != nil {
		u.t.Fatal(err)
	}
	u.write(filepath.Join(u.home, "site.yaml"), string(site))
	return strings.NewReplacer(append([]string{"helm install bpfman ", "helm install bpfman --values site.yaml "}, more...)...)
}

// follow does what the sections of a page say.
func (u *user) follow(page string, sections ...string) {
	u.t.Helper()
	for _, section := range sections {
		steps, err := tutorials.Steps([]byte(u.read(filepath.Join(u.pages, page))), section)
		if err != nil {
			u.t.Fatalf("%s: %v", page, err)
		}
		for i := range steps {
			steps[i].Script, steps[i].Content = u.own.Replace(steps[i].Script), u.own.Replace(steps[i].Content)
		}
		if err := tutorials.Follow(u.t.Context(), steps, u.home, u.t.TempDir(), u.environment, u.t.Logf); err != nil {
			u.t.Fatalf("%s, %s: %v\n%s", page, section, err, u.situation())
		}
	}
}

// situation describes what runs, for the message of a failure.
func (u *user) situation() string {
	pods, _ := u.try("kubectl", "describe", "pods", "--all-namespaces")
	objects, _ := u.try("kubectl", "describe", "tcxprograms,configmap/bpfman-config", "--namespace=bpfman")
	return pods + objects
}

// trustRegistry sets the registry's authority, as docs/air-gapped.md says, unless Helm's values did.
func (u *user) trustRegistry() {
	u.t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"bpfman.registry.ca": u.read(u.ca)}})
	if err != nil {
		u.t.Fatal(err)
	}
	u.run("kubectl", "--namespace=bpfman", "patch", "configmap", "bpfman-config", "--type=merge", "--patch="+string(patch))
}

func (u *user) eventually(what string, check func() error) {
	u.t.Helper()
	err := eventually.Succeeds(u.t.Context(), patience, time.Second, func(context.Context) error { return check() })
	if err != nil {
		u.t.Fatalf("%s: %v\n%s", what, err, u.situation())
	}
}

// runsOnly waits until all containers have an image of the version, or another project's, in the registry.
func (u *user) runsOnly(version string) {
	u.t.Helper()
	released := regexp.MustCompile("^" + regexp.QuoteMeta(u.registry) + "/bpfman-[a-z-]+:v" + regexp.QuoteMeta(version) + "@sha256:[0-9a-f]{64}$")
	u.eventually("only the release's images run", func() error {
		output, err := u.try("kubectl", "get", "pods", "--namespace=bpfman", "-o", `jsonpath={range .items[*].spec.containers[*]}{.image}{"\n"}{end}`)
		if err != nil {
			return errors.New(output)
		}
		images := strings.Fields(output)
		if len(images) < 6 {
			return fmt.Errorf("%d containers run: %q", len(images), images)
		}
		for _, each := range images {
			if !released.MatchString(each) && !strings.HasPrefix(each, u.others) {
				return fmt.Errorf("a container has the image %s", each)
			}
		}
		output, err = u.try("kubectl", "--namespace=bpfman", "rollout", "status", "daemonset/bpfman-daemon", "--timeout=1s")
		if err != nil {
			return errors.New(output)
		}
		return nil
	})
}

// kept is what an upgrade must not change: the reader's pod, with its restarts, and the program's ids.
type kept struct {
	reader, program string
	packets         int
}

var packetsPattern = regexp.MustCompile(`cpu\d+: \{(\d+),`)

func (u *user) used() kept {
	u.t.Helper()
	s := kept{
		reader:  u.run("kubectl", "get", "pod", "packets-reader", "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}"),
		program: u.run("kubectl", "get", "bpfprograms", "-l", "bpfman.io/ownedByProgram=packets", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.status.programid} {.status.bytecode.image}{end}"),
	}
	if !strings.Contains(s.program, " "+u.registry+"/bpfman-bytecode/") {
		u.t.Errorf("the report is %s", s.program)
	}
	for _, found := range packetsPattern.FindAllStringSubmatch(u.run("kubectl", "exec", "packets-reader", "--", "cat", "/maps/tcx_stats_map"), -1) {
		packets, err := strconv.Atoi(found[1])
		if err != nil {
			u.t.Fatal(err)
		}
		s.packets += packets
	}
	return s
}

// keeps checks that the program and the volume have survived.
func (u *user) keeps(before kept) {
	u.t.Helper()
	now := u.used()
	if now.reader != before.reader || now.program != before.program || now.packets <= before.packets {
		u.t.Errorf("%+v became %+v", before, now)
	}
	u.t.Logf("the program is still %s, and its volume counts on: %d packets, then %d", now.program, before.packets, now.packets)
}

func (u *user) nothingIsLeft() {
	u.t.Helper()
	for _, kind := range []string{"namespaces", "customresourcedefinitions", "clusterroles", "clusterrolebindings", "csidrivers", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		if left := u.run("kubectl", "get", kind, "-o", "name"); strings.Contains(left, "bpfman") {
			u.t.Errorf("left are %s", left)
		}
	}
}
