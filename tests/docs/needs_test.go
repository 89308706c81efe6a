// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// Scripts that replace the commands that the check uses.
const (
	engineRuns    = `[ "$1" = info ] && echo '"rootless": false' || [ "$1" = version ] && echo 20.10.24`
	engineIsDown  = `[ "$1" = buildx ]`
	buildx        = `case $1 in info|buildx) ;; version) echo 28.0.1 ;; esac`
	withoutBuildx = `case $1 in info) ;; version) echo 28.0.1 ;; *) exit 1 ;; esac`
)

// standIns creates a directory of commands: scripts, and tools of this machine.
func standIns(t *testing.T, commands map[string]string, tools ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range commands {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	for _, tool := range tools {
		must.Succeed(t, os.Symlink(lookPath(t, tool), filepath.Join(dir, tool)))
	}
	return dir
}

// makeTools are what make itself and its scripts need.
var makeTools = strings.Fields("make bash sh env awk sed grep git cat dirname uname ls mktemp rm")

func lookPath(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		prerequisite.Missing(t, err.Error(), prerequisite.Shell)
	}
	return path
}

func goIs(version string) string { return "echo go version go" + version + " linux/amd64" }

func kubectlIs(version string) string { return "echo Client Version: v" + version }

// TestNeeds runs the check for run-on-kind on machines that have all, one, or none of the requirements.
func TestNeeds(t *testing.T) {
	bash := lookPath(t, "bash")
	all := map[string]string{"docker": buildx, "go": goIs("1.26.8"), "kubectl": kubectlIs("1.36.3")}
	with := func(changes map[string]string) map[string]string {
		commands := map[string]string{}
		for _, set := range []map[string]string{all, changes} {
			for name, script := range set {
				commands[name] = script
				if script == "" {
					delete(commands, name)
				}
			}
		}
		return commands
	}
	for name, c := range map[string]struct {
		commands map[string]string
		// lacks are the prefixes of the lines about what is missing, in order.
		lacks []string
	}{
		"all":                    {all, nil},
		"podman":                 {with(map[string]string{"docker": "", "podman": engineRuns}), nil},
		"rootless podman":        {with(map[string]string{"docker": "", "podman": `echo '"security": { "rootless": true }'`}), []string{"an engine that isn't rootless: podman is"}},
		"rootless docker":        {with(map[string]string{"docker": `echo '"SecurityOptions":["name=seccomp,profile=builtin","name=rootless"]'`}), []string{"an engine that isn't rootless: docker is"}},
		"podman beside docker":   {with(map[string]string{"docker": engineIsDown, "podman": engineRuns}), nil},
		"an old docker":          {with(map[string]string{"docker": `case $1 in info) ;; version) echo 20.10.24 ;; *) exit 1 ;; esac`}), nil},
		"docker without buildx":  {with(map[string]string{"docker": withoutBuildx}), []string{"BuildKit: Docker 28.0.1 takes it from the plugin buildx"}},
		"docker that is stopped": {with(map[string]string{"docker": engineIsDown}), []string{`a container engine that runs: docker is installed, but "docker info" fails`}},
		"docker that is stopped, without buildx": {with(map[string]string{"docker": `[ "$1" = version ] && echo 28.0.1; exit 1`}), []string{
			`a container engine that runs: docker is installed, but "docker info" fails`, "BuildKit: Docker 28.0.1 takes it from the plugin buildx",
		}},
		"podman and docker that are stopped": {with(map[string]string{"docker": `exit 1`, "podman": `exit 1`}), []string{"a container engine that runs: docker podman is installed"}},
		"no engine":                          {with(map[string]string{"docker": ""}), []string{"a container engine, Docker or Podman"}},
		"no Go":                              {with(map[string]string{"go": ""}), []string{"Go 1.21 or later: "}},
		"an old Go":                          {with(map[string]string{"go": goIs("1.19.8")}), []string{"Go 1.21 or later, not go1.19.8 linux/amd64"}},
		"no kubectl":                         {with(map[string]string{"kubectl": ""}), []string{"kubectl 1.31 or later: "}},
		"an old kubectl":                     {with(map[string]string{"kubectl": kubectlIs("1.20.2")}), []string{"kubectl 1.31 or later, not v1.20"}},
		"nothing":                            {nil, []string{"a container engine, Docker", "Go 1.21", "kubectl 1.31"}},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), bash, filepath.Join(root, "hack/needs.sh"), "engine", "rootful", "buildkit", "go", "kubectl")
			command.Env = []string{"PATH=" + standIns(t, c.commands)}
			output, err := command.CombinedOutput()
			if len(c.lacks) == 0 {
				if err != nil || len(output) > 0 {
					t.Errorf("error %v: %s", err, output)
				}
				return
			}
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			if err == nil || len(lines) != 1+len(c.lacks) {
				t.Fatalf("error %v: %s", err, output)
			}
			for i, want := range c.lacks {
				if !strings.HasPrefix(lines[i+1], "  - "+want) {
					t.Errorf("%q doesn't begin with %q", lines[i+1], want)
				}
			}
		})
	}
}

// TestRun_NamesEverythingThatIsMissing runs the target without any of its requirements.
func TestRun_NamesEverythingThatIsMissing(t *testing.T) {
	dir := standIns(t, map[string]string{"id": "echo 1000"}, makeTools...)
	command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", root, "run", "LOCALBIN="+t.TempDir(), "CACHE="+t.TempDir())
	command.Env = []string{"PATH=" + dir, "HOME=" + t.TempDir()}
	output, err := command.CombinedOutput()
	if err == nil {
		t.Errorf("it succeeds: %s", output)
	}
	for _, want := range []string{"nothing was changed", "- root access", "- Debian 12", "- Go 1.21", "- Rust 1.85"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output lacks %q: %s", want, output)
		}
	}
}

// TestSetupKind_PassesItsSettings runs the target with a kind that prints its arguments, and has no cluster yet.
func TestSetupKind_PassesItsSettings(t *testing.T) {
	dir := standIns(t, map[string]string{"kind": `[ "$1" = get ] || echo "$@"`, "docker": engineRuns})
	for name, c := range map[string]struct {
		settings []string
		want     string
	}{
		"none": {nil, "create cluster --name bpfman-deployment --config hack/kind/cluster.yaml --wait 3m\n"},
		"all": {
			[]string{"KIND_CLUSTER_NAME=other", "KIND_CONFIG=nodes.yaml", "KIND_NODE_IMAGE=registry.example.com/node:v1", "KIND_TIMEOUT=10m"},
			"create cluster --name other --config nodes.yaml --image registry.example.com/node:v1 --wait 10m\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory", "-C", root, "setup-kind", "KIND=" + filepath.Join(dir, "kind")}, c.settings...)...)
			command.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
			output, err := command.CombinedOutput()
			if err != nil || string(output) != c.want {
				t.Errorf("error %v: %s", err, output)
			}
		})
	}
}

// TestNeeds_OneNode runs the check of `make run` on machines that lack one of the requirements.
func TestNeeds_OneNode(t *testing.T) {
	bash := lookPath(t, "bash")
	const mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 none rw\n"
	kibibytes := func(n string) string { return "echo Avail; echo " + n }
	for name, c := range map[string]struct {
		user, capabilities, mounts, cargo, free string
		lacks                                   []string
	}{
		"all":                     {"0", "000001ffffffffff", mounts, "cargo 1.95.0", "20000000", nil},
		"a user":                  {"1000", "0000000000000000", mounts, "cargo 1.95.0", "20000000", []string{"root access"}},
		"root in a container":     {"0", "00000000a80425fb", mounts, "cargo 1.95.0", "20000000", []string{"the capability SYS_ADMIN"}},
		"no control groups":       {"0", "000001ffffffffff", "", "cargo 1.95.0", "20000000", []string{"a control group file system"}},
		"Debian 12's Rust":        {"0", "000001ffffffffff", mounts, "cargo 1.65.0", "20000000", []string{"Rust 1.85 or later, not cargo 1.65"}},
		"a disk that is too full": {"0", "000001ffffffffff", mounts, "cargo 1.95.0", "1048576", []string{"8 GiB of free disk space in /home/me, which has 1024 MiB", "8 GiB of free disk space in /var/lib"}},
		"nothing":                 {"0", "0", "", "", "0", []string{"the capability SYS_ADMIN", "Debian 12", "Go 1.21", "Rust 1.85", "a control group", "8 GiB", "8 GiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			commands := map[string]string{"id": "echo " + c.user, "cargo": "echo " + c.cargo, "df": kibibytes(c.free)}
			if c.cargo != "" {
				commands["apt-get"], commands["go"] = "", goIs("1.26.8")
			}
			dir := standIns(t, commands, "sed", "grep", "tail")
			files := t.TempDir()
			for file, content := range map[string]string{"status": "CapEff:\t" + c.capabilities + "\n", "mounts": c.mounts} {
				must.Succeed(t, os.WriteFile(filepath.Join(files, file), []byte(content), 0o600))
			}
			command := exec.CommandContext(t.Context(), bash, filepath.Join(root, "hack/needs.sh"), "root", "apt", "go", "rust", "cgroup", "disk")
			command.Env = []string{"PATH=" + dir, "HOME=/home/me", "STATUS=" + filepath.Join(files, "status"), "MOUNTS=" + filepath.Join(files, "mounts")}
			output, err := command.CombinedOutput()
			if (err == nil) != (len(c.lacks) == 0) {
				t.Errorf("error %v: %s", err, output)
			}
			var lines []string
			for line := range strings.Lines(string(output)) {
				if line, found := strings.CutPrefix(line, "  - "); found {
					lines = append(lines, line)
				}
			}
			if len(lines) != len(c.lacks) {
				t.Fatalf("the output lists %q, not %q", lines, c.lacks)
			}
			for i, want := range c.lacks {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("%q doesn't begin with %q", lines[i], want)
				}
			}
		})
	}
}

// TestRunOnKind_ChecksBeforeItCreates runs the target with only kind itself.
func TestRunOnKind_ChecksBeforeItCreates(t *testing.T) {
	called := filepath.Join(t.TempDir(), "called")
	dir := standIns(t, map[string]string{"kind": `echo "$@" >>` + called, "docker": engineIsDown}, makeTools...)
	command := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", root, "run-on-kind", "KIND="+filepath.Join(dir, "kind"), "LOCALBIN="+t.TempDir())
	command.Env = []string{"PATH=" + dir, "HOME=" + t.TempDir()}
	output, err := command.CombinedOutput()
	if err == nil {
		t.Errorf("it succeeds: %s", output)
	}
	for _, want := range []string{"nothing was changed", "a container engine that runs", "Go 1.21", "kubectl 1.31"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output lacks %q: %s", want, output)
		}
	}
	if calls, err := os.ReadFile(called); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kind was called: %s, error %v", calls, err)
	}
}
