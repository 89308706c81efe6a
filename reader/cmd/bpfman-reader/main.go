// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-reader answers one request of the agent: who signed an image, and what
// its bytecode uses. It reads the request from standard input, writes the answer to
// standard output, and exits. This way, the memory that a verification needs isn't part
// of the agent's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"

	"github.com/bpfman/bpfman-operator/apis/reader"
	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/reader/findings"
	"github.com/bpfman/bpfman-operator/reader/registry"
)

const (
	// memory is the target of the garbage collector, in bytes. hardMemory is the
	// process's limit in the kernel. The agent's container has its own limit, at which
	// the kernel would also kill the agent.
	memory     = 96 << 20
	hardMemory = 512 << 20
)

func main() {
	timeout := flag.Duration("timeout", 30*time.Second, "Time limit for the answer.")
	printVersion := flag.Bool("version", false, "Only print the version.")
	flag.Parse()
	if *printVersion {
		fmt.Println(version.Version)
		return
	}
	debug.SetMemoryLimit(memory)
	limit := syscall.Rlimit{Cur: hardMemory, Max: hardMemory}
	err := syscall.Setrlimit(syscall.RLIMIT_DATA, &limit)
	if err == nil {
		err = run(os.Stdin, os.Stdout, *timeout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", reader.Command, err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, timeout time.Duration) error {
	b, err := io.ReadAll(io.LimitReader(in, reader.MaxRequest+1))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if len(b) > reader.MaxRequest {
		return fmt.Errorf("read the request: it has more than %d bytes", reader.MaxRequest)
	}
	var request reader.Request
	if err := json.Unmarshal(b, &request); err != nil {
		// The parser's error can contain parts of a password.
		return errors.New("read the request: it is not valid JSON")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	text, err := json.Marshal(answer(ctx, &request, timeout))
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if len(text) > reader.MaxAnswer {
		text = []byte(`{"error":"the answer is too long"}`)
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// answer returns within the timeout. Reading bytecode can't be canceled.
func answer(ctx context.Context, request *reader.Request, timeout time.Duration) reader.Answer {
	found := make(chan reader.Answer, 1)
	go func() { found <- find(ctx, request) }()
	select {
	case a := <-found:
		return a
	case <-ctx.Done():
		// The search ends too, and its error says what it was waiting for.
		select {
		case a := <-found:
			return a
		case <-time.After(time.Second):
			return reader.Answer{Error: fmt.Sprintf("verification takes longer than %s", timeout)}
		}
	}
}

func find(ctx context.Context, request *reader.Request) reader.Answer {
	var c reader.Credentials
	if request.Credentials != nil {
		c = *request.Credentials
	}
	repository, err := registry.Open(ctx, request.Image, c.Username, c.Password, nil)
	if err != nil {
		return failed(err, c)
	}
	defer repository.Close()
	digests := []v1.Hash{repository.Digest}
	if request.Manifest != "" && request.Manifest != repository.Digest.String() {
		manifest, err := registry.Digest(request.Manifest)
		if err != nil {
			return failed(fmt.Errorf("manifest %q: %w", request.Manifest, err), c)
		}
		digests = append(digests, manifest)
	}
	a := findings.Find(ctx, repository, digests, request)
	if a.Error != "" {
		return failed(errors.New(a.Error), c)
	}
	return a
}

// failed removes credentials from the error, because any library can include them.
func failed(err error, c reader.Credentials) reader.Answer {
	text := err.Error()
	if c.Password != "" {
		text = strings.ReplaceAll(text, c.Password, "…")
	}
	return reader.Answer{Error: text}
}
