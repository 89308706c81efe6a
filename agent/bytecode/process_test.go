// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bpfman/bpfman-operator/internal/reader"
)

// script returns a Process with a shell script in place of bpfman-reader.
func script(t *testing.T, text string) Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), reader.Command)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return Process{Path: path, Deadline: 500 * time.Millisecond}
}

func TestProcess(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   reader.Answer
	}{
		"answers":      {`cat >/dev/null; echo '{"digest":"d","signatures":[{"authority":"p/a","signer":"s"}]}'`, reader.Answer{Digest: "d", Signatures: []reader.Finding{{Authority: "p/a", Signer: "s"}}}},
		"says unfit":   {`echo '{"error":"no object","unfit":true}'`, reader.Answer{Error: "no object", Unfit: true}},
		"is asked":     {`read -r q; case $q in *'"image":"i@d"'*) echo '{"digest":"asked"}';; esac`, reader.Answer{Digest: "asked"}},
		"arguments":    {`printf '{"digest":"%s"}' "$*"`, reader.Answer{Digest: "--timeout=500ms"}},
		"environment":  {`printf '{"digest":"%s %s %s"}' "$SSL_CERT_FILE" "$AGENT_SECRET" "$https_proxy"`, reader.Answer{Digest: "/ca.crt  http://proxy"}},
		"no more":      {`printf '{"digest":"%s"}' "$(env | sed 's/=.*//' | sort | tr '\n' ' ')"`, reader.Answer{Digest: "PWD SSL_CERT_FILE https_proxy "}},
		"own group":    {`read -r stat </proc/$$/stat; set -- $stat; [ "$5" = $$ ] && echo '{"digest":"own"}'`, reader.Answer{Digest: "own"}},
		"fails":        {`echo words >&2; exit 3`, reader.Answer{Error: "run bpfman-reader: exit status 3: words"}},
		"is killed":    {`kill -9 $$`, reader.Answer{Error: "run bpfman-reader: signal: killed: "}},
		"says much":    {`head -c 100000 /dev/zero | tr '\0' x >&2; exit 3`, reader.Answer{Error: "run bpfman-reader: exit status 3: " + strings.Repeat("x", maxWords)}},
		"too much":     {`head -c 2000000 /dev/zero`, reader.Answer{Error: "the answer of bpfman-reader has more than 1048576 bytes"}},
		"no JSON":      {`echo no`, reader.Answer{Error: "read the answer of bpfman-reader: invalid character 'o' in literal null (expecting 'u')"}},
		"half of it":   {`echo '{"digest":"d","manifest":7}'`, reader.Answer{Error: "read the answer of bpfman-reader: json: cannot unmarshal number into Go struct field Answer.manifest of type string"}},
		"nothing":      {`:`, reader.Answer{Error: "read the answer of bpfman-reader: unexpected end of JSON input"}},
		"without file": {`if { echo x >&3; } 2>/dev/null; then echo '{"digest":"file"}'; else echo '{"digest":"none"}'; fi`, reader.Answer{Digest: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inherited := range environment {
				t.Setenv(inherited, "") // restored at the end
				if err := os.Unsetenv(inherited); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("SSL_CERT_FILE", "/ca.crt")
			t.Setenv("https_proxy", "http://proxy")
			t.Setenv("AGENT_SECRET", "s3cr3t")
			if got := script(t, c.script).Read(t.Context(), &reader.Request{Image: "i@d"}, nil); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	if got := (Process{Path: "/absent"}).Read(t.Context(), &reader.Request{}, nil); !strings.Contains(got.Error, "no such file") {
		t.Errorf("%+v", got)
	}
	long := reader.Request{Authorities: []reader.Authority{{TrustedRoot: strings.Repeat("x", reader.MaxRequest)}}}
	if got := script(t, `echo '{}'`).Read(t.Context(), &long, nil); !strings.Contains(got.Error, "bpfman-reader accepts at most 16777216") {
		t.Errorf("%+v", got)
	}
	if p, err := NewProcess(); err != nil || filepath.Base(p.Path) != reader.Command || !filepath.IsAbs(p.Path) {
		t.Errorf("%+v, %v", p, err)
	}
}

// The object is written to the files of the caller. Credentials are only on standard input.
func TestProcessWritesTheObject(t *testing.T) {
	files, err := (&Store{Dir: t.TempDir()}).Create()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Discard()
	const secret = "s3cr3t"
	p := script(t, `printf 'for the daemon' >&4; printf 'the object' >&3; tr '\0' '\n' </proc/$$/cmdline >&3; tr '\0' '\n' </proc/$$/environ >&3; grep -c s3cr3t >&2; echo '{"digest":"d"}'`)
	request := &reader.Request{Image: "i", Object: true, Credentials: &reader.Credentials{Username: "u", Password: secret}}
	if got := p.Read(t.Context(), request, files); !reflect.DeepEqual(got, reader.Answer{Digest: "d"}) {
		t.Errorf("%+v", got)
	}
	if content, err := os.ReadFile(files.Adapted.Name()); err != nil || string(content) != "for the daemon" {
		t.Errorf("%q, %v", content, err)
	}
	content, err := os.ReadFile(files.Object.Name())
	if err != nil || !strings.HasPrefix(string(content), "the object") || strings.Contains(string(content), secret) {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := files.Object.WriteString("more"); err != nil {
		t.Errorf("the file was closed: %v", err)
	}
}

// A process that doesn't respond is killed together with its children. So is one that isn't
// needed anymore.
func TestProcessIsKilledWithItsChildren(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled bool
		want      string
	}{
		"deadline":  {false, "bpfman-reader didn't answer within 583.333333ms"},
		"cancelled": {true, "run bpfman-reader: signal: killed: "},
	} {
		t.Run(name, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			p := script(t, fmt.Sprintf("sleep 600 & echo $! >%s.new; mv %s.new %s; sleep 600", pids, pids, pids))
			var pid string
			started := func() bool {
				content, err := os.ReadFile(pids)
				pid = strings.TrimSpace(string(content))
				return err == nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancelled {
				p.Deadline = time.Minute
				go func() {
					_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) { return started(), nil })
					cancel()
				}()
			}
			start := time.Now()
			if got := p.Read(ctx, &reader.Request{}, nil); got.Error != c.want {
				t.Errorf("%+v, want %q", got, c.want)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			if !started() {
				t.Fatal("it never ran")
			}
			err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				state, err := os.ReadFile("/proc/" + pid + "/stat")
				return os.IsNotExist(err) || strings.Contains(string(state), ") Z "), nil
			})
			if err != nil {
				t.Errorf("process %s is left", pid)
			}
		})
	}
}
