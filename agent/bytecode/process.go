// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

const (
	// deadline is the default timeout of a request. The process is killed a little
	// later than that, because its own error says what it waited for.
	deadline = 30 * time.Second
	// maxWords is the maximum length of the process's standard error that is kept, in
	// bytes.
	maxWords = 4096
)

// Process runs bpfman-reader.
type Process struct {
	// Path is the path of the executable.
	Path string
	// Deadline is the timeout of a request. 0 means 30 seconds.
	Deadline time.Duration
}

// NewProcess returns the Process with bpfman-reader in the directory of this process's
// executable.
func NewProcess() (Process, error) {
	own, err := os.Executable()
	if err != nil {
		return Process{}, problem.Errorf(problem.ReaderFails, "find bpfman-reader: %w", err)
	}
	return Process{Path: filepath.Join(filepath.Dir(own), reader.Command)}, nil
}

// environment contains the names of variables that the process inherits: the paths of
// certificates, and proxies.
var environment = []string{"SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// Read runs the process, which writes the object to files if it is requested. Errors are
// in the answer. Credentials are only passed on standard input.
func (p Process) Read(ctx context.Context, request *reader.Request, files *Files) reader.Answer {
	answer, err := p.ask(ctx, request, files)
	if err != nil {
		return reader.Answer{Error: err.Error()}
	}
	return answer
}

func (p Process) ask(ctx context.Context, request *reader.Request, files *Files) (answer reader.Answer, err error) {
	question, err := json.Marshal(request)
	if err != nil {
		return answer, problem.Errorf(problem.ReaderFails, "encode the request to %s: %w", reader.Command, err)
	}
	if len(question) > reader.MaxRequest {
		return answer, problem.Errorf(problem.TooMuchToRead, "the keys and trusted roots of the policies have %d bytes, but %s accepts at most %d", len(question), reader.Command, reader.MaxRequest)
	}
	limit := p.Deadline
	if limit == 0 {
		limit = deadline
	}
	killed := limit + limit/6
	ctx, cancel := context.WithTimeout(ctx, killed)
	defer cancel()
	out, words := bounded{limit: reader.MaxAnswer}, bounded{limit: maxWords, rest: true}
	command := exec.CommandContext(ctx, p.Path, "--timeout="+limit.String())
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(question), &out, &words
	if files != nil {
		command.ExtraFiles = []*os.File{files.Object, files.Adapted} // reader.ObjectFile and reader.AdaptedFile
	}
	for _, name := range environment {
		if value, set := os.LookupEnv(name); set {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	// A process group, so that its children are killed too.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err = command.Run()
	switch {
	case out.full:
		return answer, problem.Errorf(problem.TooMuchToRead, "the answer of %s has more than %d bytes", reader.Command, reader.MaxAnswer)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer, problem.Errorf(problem.ReaderFails, "%s didn't answer within %s", reader.Command, killed)
	case err != nil:
		return answer, problem.Errorf(problem.ReaderFails, "run %s: %w: %s", reader.Command, err, strings.TrimSpace(words.kept.String()))
	}
	if err := json.Unmarshal(out.kept.Bytes(), &answer); err != nil {
		return reader.Answer{}, problem.Errorf(problem.ReaderFails, "read the answer of %s: %w", reader.Command, err)
	}
	return answer, nil
}

// bounded stores what is written to it, up to a limit in bytes. It discards the rest,
// or returns an error. It doesn't embed the buffer, whose ReadFrom method has no limit.
type bounded struct {
	kept  bytes.Buffer
	limit int
	rest  bool // discard the rest
	full  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	left := b.limit - b.kept.Len()
	if len(p) <= left {
		return b.kept.Write(p)
	}
	if b.rest {
		b.kept.Write(p[:left])
		return len(p), nil
	}
	b.full = true
	return 0, io.ErrShortWrite
}
