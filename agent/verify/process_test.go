// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package verify

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

	"github.com/bpfman/bpfman-operator/apis/reader"
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
		"answers":     {`cat >/dev/null; echo '{"helpers":["a"],"signatures":[{"authority":"p/a","signer":"s"}]}'`, reader.Answer{Helpers: []string{"a"}, Signatures: []reader.Finding{{Authority: "p/a", Signer: "s"}}}},
		"is asked":    {`read -r q; case $q in *'"image":"i@d"'*) echo '{"helpers":["asked"]}';; esac`, reader.Answer{Helpers: []string{"asked"}}},
		"arguments":   {`printf '{"helpers":["%s"]}' "$*"`, reader.Answer{Helpers: []string{"--timeout=500ms"}}},
		"environment": {`printf '{"helpers":["%s %s"]}' "$SSL_CERT_FILE" "$AGENT_SECRET"`, reader.Answer{Helpers: []string{"/ca.crt "}}},
		"fails":       {`echo words >&2; exit 3`, reader.Answer{Error: "run bpfman-reader: exit status 3: words"}},
		"says much":   {`head -c 100000 /dev/zero | tr '\0' x >&2; exit 3`, reader.Answer{Error: "run bpfman-reader: exit status 3: " + strings.Repeat("x", maxWords)}},
		"too much":    {`head -c 2000000 /dev/zero`, reader.Answer{Error: "the answer of bpfman-reader has more than 1048576 bytes"}},
		"no JSON":     {`echo no`, reader.Answer{Error: "read the answer of bpfman-reader: invalid character 'o' in literal null (expecting 'u')"}},
		"nothing":     {`:`, reader.Answer{Error: "read the answer of bpfman-reader: unexpected end of JSON input"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SSL_CERT_FILE", "/ca.crt")
			t.Setenv("AGENT_SECRET", "s3cr3t")
			if got := script(t, c.script).Verify(t.Context(), &reader.Request{Image: "i@d"}); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	if got := (Process{Path: "/absent"}).Verify(t.Context(), &reader.Request{}); !strings.Contains(got.Error, "no such file") {
		t.Errorf("%+v", got)
	}
	long := reader.Request{Authorities: []reader.Authority{{TrustedRoot: strings.Repeat("x", reader.MaxRequest)}}}
	if got := script(t, `echo '{}'`).Verify(t.Context(), &long); !strings.Contains(got.Error, "bpfman-reader accepts at most 16777216") {
		t.Errorf("%+v", got)
	}
}

// A process that doesn't respond is killed together with its children.
func TestProcessIsKilledWithItsChildren(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	p := script(t, fmt.Sprintf("sleep 600 & echo $! >%s; sleep 600", pids))
	start := time.Now()
	got := p.Verify(t.Context(), &reader.Request{})
	if want := "bpfman-reader didn't answer within 583.333333ms"; got.Error != want {
		t.Errorf("%+v, want %q", got, want)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	content, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(content)) + "/stat")
		return os.IsNotExist(err) || strings.Contains(string(state), ") Z "), nil
	})
	if err != nil {
		t.Errorf("process %s is left", content)
	}
}
