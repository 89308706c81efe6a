// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command bpfman-reader answers one request of the agent: what is in an image, and who
// signed it. It reads the request from standard input, writes the answer to standard
// output and the object to other files, and exits. This way, the memory that this needs
// isn't part of the agent's, and a bug in a parser has none of the agent's rights.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bpfman/bpfman-operator/apis/version"
	"github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/bytecode/plain"
	"github.com/bpfman/bpfman-operator/bytecode/registry"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/reader/sandbox"
)

const (
	// memory is the target of the garbage collector, in bytes. hardMemory is the
	// process's limit in the kernel. The agent's container has its own limit, at which
	// the kernel would also kill the agent.
	memory     = 96 << 20
	hardMemory = 512 << 20
	// maxFiles is the maximum number of open files and connections.
	maxFiles = 128
	// maxError is the maximum length of an error in the answer, in bytes.
	maxError = 1000
)

func main() {
	timeout := flag.Duration("timeout", 30*time.Second, "Time limit for the answer.")
	printVersion := flag.Bool("version", false, "Only print the version.")
	flag.Parse()
	if *printVersion {
		fmt.Println(version.Version)
		return
	}
	err := limit()
	if err == nil {
		sandbox.Enter(object.KernelTypes, object.KernelConfig)
		err = run(os.Stdin, os.Stdout, inherited, *timeout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", reader.Command, err)
		os.Exit(1)
	}
}

// limit limits what this process can use, no matter what it reads.
func limit() error {
	debug.SetMemoryLimit(memory)
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA: hardMemory, unix.RLIMIT_FSIZE: reader.MaxObject, unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit resource %d: %w", resource, err)
		}
	}
	return nil
}

// inherited returns the files that a request about an object comes with.
func inherited() files {
	return files{os.NewFile(reader.ObjectFile, "the object's file"), os.NewFile(reader.AdaptedFile, "the file for the daemon")}
}

// run answers the request. It opens files only if it comes with some: otherwise, their numbers are those of others, such as
// the runtime's, and an os.File that isn't used anymore closes its number.
func run(in io.Reader, out io.Writer, open func() files, timeout time.Duration) error {
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
	var to files
	if request.Object || request.Image == "" {
		to = open()
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	a := answer(ctx, &request, to, timeout)
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if len(text) > reader.MaxAnswer {
		text, err = json.Marshal(reader.Answer{Problem: problem.TooMuchToRead, Error: "the answer is too long", Unfit: a.Object != nil})
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// answer returns within the timeout. Reading bytecode can't be canceled.
func answer(ctx context.Context, request *reader.Request, to files, timeout time.Duration) reader.Answer {
	found := make(chan reader.Answer, 1)
	go func() { found <- find(ctx, request, to) }()
	select {
	case a := <-found:
		return a
	case <-ctx.Done():
		// The search ends too, and its error says what it was waiting for.
		select {
		case a := <-found:
			return a
		case <-time.After(time.Second):
			return reader.Answer{Problem: problem.RegistrySlow, Error: fmt.Sprintf("reading the image takes longer than %s", timeout)}
		}
	}
}

// failed removes credentials from the error, because any library can include them.
func failed(err error, c *reader.Credentials) reader.Answer {
	text := err.Error()
	if c != nil && c.Password != "" {
		text = strings.ReplaceAll(text, c.Password, "…")
	}
	a := reader.Answer{Error: plain.Truncate(text, maxError), Problem: problem.Of(err), Unfit: isUnfit(err)}
	_, a.NeedsCredentials = errors.AsType[*registry.NeedsCredentialsError](err)
	if busy, ok := errors.AsType[*registry.BusyError](err); ok {
		a.RetryAfter = int64(math.Ceil(busy.Wait.Seconds()))
	}
	return a
}
