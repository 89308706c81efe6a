// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bpfman/bpfman-operator/internal/reader"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Stage writes the object of an image to a file in the daemon's container, and returns its
// location for the daemon, which has no access to registries. It runs the agent's reader
// as the agent does. The file is replaced in one step: the daemon may be reading it for a test
// that runs at the same time.
func Stage(ctx context.Context, image string) (*gobpfman.BytecodeLocation, error) {
	sum := sha256.Sum256([]byte(image))
	path := filepath.Join("/tmp", "staged-"+hex.EncodeToString(sum[:8])+".o")
	seen, err := seenAs(Daemon, path)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(seen), "staged-")
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", image, err)
	}
	err = errors.Join(readPatiently(ctx, image, file), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), seen)
	}
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", image, errors.Join(err, os.Remove(file.Name())))
	}
	return &gobpfman.BytecodeLocation{Location: &gobpfman.BytecodeLocation_File{File: path}}, nil
}

// reads is how often an image is read while its registry doesn't answer, as on a slow machine.
const reads = 5

// readPatiently reads an image again like the agent, if that can help.
func readPatiently(ctx context.Context, image string, object *os.File) error {
	var answer reader.Answer
	for range reads {
		var err error
		if answer, err = read(ctx, image, object); err != nil {
			return err
		}
		if answer.Error == "" || answer.Unfit {
			break
		}
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// read runs the reader in the agent's root, with its environment.
func read(ctx context.Context, image string, object *os.File) (answer reader.Answer, err error) {
	agents, err := Processes(Agent)
	if err != nil || len(agents) == 0 {
		return answer, errors.Join(fmt.Errorf("%d processes run %s", len(agents), Agent), err)
	}
	request, err := json.Marshal(reader.Request{Image: image, Object: true})
	if err != nil {
		return answer, fmt.Errorf("encode the request: %w", err)
	}
	environment, err := os.ReadFile(filepath.Join(procOf(agents[0]), "environ"))
	if err != nil {
		return answer, fmt.Errorf("read the agent's environment: %w", err)
	}
	command := exec.CommandContext(ctx, "/"+reader.Command)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: filepath.Join(procOf(agents[0]), "root")}
	command.Dir = "/"
	command.Env = strings.Split(strings.Trim(string(environment), "\x00"), "\x00")
	command.Stdin, command.ExtraFiles = bytes.NewReader(request), []*os.File{object}
	var words bytes.Buffer
	command.Stderr = &words
	out, err := command.Output()
	if err != nil {
		return answer, fmt.Errorf("run %s: %w: %s", reader.Command, err, &words)
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return answer, fmt.Errorf("read the answer of %s: %w", reader.Command, err)
	}
	return answer, nil
}
