// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package verify has images verified by bpfman-verify, a process for each
// question, and keeps the answers.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bpfman/bpfman-operator/apis/verification"
)

const (
	// deadline is how long a process may take to answer. It is killed a little later,
	// as it knows best what it waited for.
	deadline = 30 * time.Second
	// maxWords is how much is kept of what a process says on its standard error, in
	// bytes.
	maxWords = 4096
)

// Process runs bpfman-verify.
type Process struct {
	// Path of the executable.
	Path string
	// Deadline is how long it may take; 0 means 30 seconds.
	Deadline time.Duration
}

// Beside is the process whose executable is beside that of this one.
func Beside() (Process, error) {
	own, err := os.Executable()
	if err != nil {
		return Process{}, fmt.Errorf("find bpfman-verify: %w", err)
	}
	return Process{Path: filepath.Join(filepath.Dir(own), verification.Command)}, nil
}

// environment is what the process gets of the agent's: where certificates are and
// which proxies there are.
var environment = []string{"SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// Verify asks the process. That nothing could be found out is an error in the
// answer. Credentials are in nothing but its standard input.
func (p Process) Verify(ctx context.Context, request *verification.Request) verification.Answer {
	answer, err := p.ask(ctx, request)
	if err != nil {
		return verification.Answer{Error: err.Error()}
	}
	return answer
}

func (p Process) ask(ctx context.Context, request *verification.Request) (answer verification.Answer, err error) {
	question, err := json.Marshal(request)
	if err != nil {
		return answer, fmt.Errorf("encode the request to %s: %w", verification.Command, err)
	}
	if len(question) > verification.MaxRequest {
		return answer, fmt.Errorf("the keys and trusted roots of the policies have %d bytes, but %s accepts at most %d", len(question), verification.Command, verification.MaxRequest)
	}
	limit := p.Deadline
	if limit == 0 {
		limit = deadline
	}
	killed := limit + limit/6
	ctx, cancel := context.WithTimeout(ctx, killed)
	defer cancel()
	out, words := bounded{limit: verification.MaxAnswer}, bounded{limit: maxWords, rest: true}
	command := exec.CommandContext(ctx, p.Path, "--timeout="+limit.String())
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(question), &out, &words
	for _, name := range environment {
		if value, set := os.LookupEnv(name); set {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	// A group of its own, so that nothing is left of it once it is killed.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err = command.Run()
	switch {
	case out.full:
		return answer, fmt.Errorf("the answer of %s has more than %d bytes", verification.Command, verification.MaxAnswer)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer, fmt.Errorf("%s didn't answer within %s", verification.Command, killed)
	case err != nil:
		return answer, fmt.Errorf("run %s: %w: %s", verification.Command, err, strings.TrimSpace(words.kept.String()))
	}
	if err := json.Unmarshal(out.kept.Bytes(), &answer); err != nil {
		return verification.Answer{}, fmt.Errorf("read the answer of %s: %w", verification.Command, err)
	}
	return answer, nil
}

// bounded keeps what is written to it up to a limit, in bytes. What is more is an
// error for the writer, or ignored. It doesn't embed the buffer, whose ReadFrom would
// have no limit.
type bounded struct {
	kept  bytes.Buffer
	limit int
	rest  bool // ignore what is more
	full  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	left := b.limit - b.kept.Len()
	if len(p) <= left {
		return b.kept.Write(p) //nolint:wrapcheck // it never fails
	}
	if b.rest {
		b.kept.Write(p[:left])
		return len(p), nil
	}
	b.full = true
	return 0, io.ErrShortWrite
}
