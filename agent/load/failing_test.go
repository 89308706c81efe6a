// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package load

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/shorten"
	"github.com/bpfman/bpfman-operator/internal/verifierlog"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// rejection is the daemon's text about a function, with the log of Linux 6.18.
func rejection(first string, instructions int) string {
	var log strings.Builder
	for n := range instructions {
		fmt.Fprintf(&log, "%d: (73) *(u8 *)(r0 +27) = r1       ; R0=map_value(map=flows,ks=4,vs=96)\n", n)
	}
	return `BpfProgramError(LoadError { io_error: Os { code: 13, kind: PermissionDenied, message: "Permission denied" }, verifier_log: ` +
		first + log.String() + "invalid access to map value, value_size=96 off=98 size=1\nR0 min value is outside of the allowed memory range\n" +
		"stack depth 8\nprocessed 2106 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n })"
}

// The status of an application names the function that fails, and why, no matter how much is cut from the middle.
func TestFailingFunctionsAreNamed(t *testing.T) {
	request := &gobpfman.LoadRequest{}
	for n := range 20 {
		request.Info = append(request.Info, &gobpfman.LoadInfo{Name: fmt.Sprintf("count_%d", n)})
	}
	const verdict = "invalid access to map value, value_size=96 off=98 size=1"
	op := "load count_0, count_1, count_2, count_3, count_4 and 15 more from image quay.io/" + strings.Repeat("x", 50) + ":v1"
	declares := func(name string) string {
		return "0: R1=ctx() R10=fp0\n; int " + name + "(struct __sk_buff *skb) @ count.bpf.c:9\n"
	}
	for name, c := range map[string]struct {
		texts []string
		want  string
	}{
		"one":                   {[]string{rejection(declares("count_11"), 3000)}, "loading 20 functions, of which count_11 fails, from image quay.io/"},
		"two":                   {[]string{rejection(declares("count_11"), 3000), rejection(declares("count_1"), 3000)}, "loading 20 functions, of which count_11, count_1 fail, from image"},
		"many":                  {[]string{rejection(declares("count_1"), 1), rejection(declares("count_2"), 1), rejection(declares("count_3"), 1), rejection(declares("count_4"), 1)}, "of which count_1, count_2, count_3 and 1 more fail, from"},
		"a declaration follows": {[]string{rejection("arg#0 reference type('UNKNOWN ') size cannot be determined: -22\n"+declares("count_7"), 9)}, "of which count_7 fails, from"},
		"by a macro":            {[]string{rejection("0: R1=ctx() R10=fp0\n; int BPF_PROG(count_7, struct sock *sk) @ count.bpf.c:9\n", 9)}, "of which count_7 fails, from"},
		"none is named":         {[]string{rejection("0: R1=ctx() R10=fp0\n; return count_77; @ count.bpf.c:13\n", 9)}, "loading count_0, count_1, count_2, count_3, count_4 and 15 more from image"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "one or more programs failed to load: [" + strings.Join(c.texts, ", ") + "]"
			err := namingFailed(request, &daemon.Error{Op: op, Cause: status.Error(codes.FailedPrecondition, text)})
			const limit = 600 // of a failure in the status of the user's object
			first, _, _ := strings.Cut(err.Error(), "\n")
			if got := shorten.Middle(first, limit); !strings.Contains(got, c.want) || !strings.HasPrefix(got, "the kernel's verifier refuses the program: R0 min value is outside of the allowed memory range") {
				t.Errorf("no %q or no verdict in %q", c.want, got)
			}
			refused := (*daemon.Error)(nil)
			if !errors.As(err, &refused) || !refused.Permanent() || !strings.Contains(err.Error(), verdict) {
				t.Error("the error lost its cause")
			}
		})
	}

	request.Info = request.Info[:1]
	single := &daemon.Error{Op: op, Cause: status.Error(codes.FailedPrecondition, rejection(declares("count_0"), 1))}
	if err := namingFailed(request, single); err.Error() != single.Error() {
		t.Errorf("the error about a single function became %s", err)
	}
}

// Whoever writes the bytecode chooses the lines of source in the logs, and how many functions there are. The work doesn't grow
// with the product.
func TestFailingFunctionsOfLargeLogs(t *testing.T) {
	allocations := func(size int) float64 {
		loaded := sets.New[string]()
		for n := range size {
			loaded.Insert(fmt.Sprintf("count_%d", n))
		}
		lines := strings.Repeat("; verifier_log: ; a @ count.bpf.c:9\n", size)
		last := fmt.Sprintf("count_%d", size-1)
		return testing.AllocsPerRun(1, func() {
			refused := &daemon.Error{Cause: status.Error(codes.FailedPrecondition, lines+rejection("; int "+last+"()\n", 1))}
			if got := refused.Failing(loaded); !slices.Equal(got, []string{last}) {
				t.Errorf("%q fail", got)
			}
		})
	}
	const times = 4
	if few, many := allocations(100), allocations(times*100); many > 2*times*few {
		t.Errorf("%.0f allocations, and %.0f for %d times as many lines and functions", few, many, times)
	}
}

// The refusals of many Loads are kept, so that the log of the verifier, which can have megabytes, is shortened before. What
// objects show of it stays: the functions, which are found in the whole log, and the verdict.
func TestKeptRefusalsAreShort(t *testing.T) {
	l := newNode(t)
	request := &gobpfman.LoadRequest{Info: []*gobpfman.LoadInfo{{Name: "count_1"}, {Name: "count_2"}}}
	const instructions = 10_000
	text := "one or more programs failed to load: [" + rejection("; int count_1()\n", instructions) + ", " + rejection("; int count_2()\n", instructions) + "]"
	l.daemon.Fault = func(call string, _ proto.Message, _ bool) error {
		if call != "Load" {
			return nil
		}
		return status.Error(codes.Aborted, text)
	}
	owner := program.Key{Kind: "BpfApplication", Name: "flows"}
	err := l.request(t.Context(), owner, request)
	refused := (*daemon.Error)(nil)
	if !errors.As(err, &refused) || !refused.Permanent() {
		t.Fatalf("not a refusal: %v", err)
	}
	got := err.Error()
	if most := len(refused.Op) + len(": ") + maxFailure; len(got) > most || len(text) < 10*most {
		t.Errorf("%d bytes are kept of %d", len(got), len(text))
	}
	for _, want := range []string{"count_1, count_2 fail", "bytes left out", "off=98 size=1"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %.200q", want, got)
		}
	}

	// The node keeps the whole text, until the Load succeeds or is refused in few words.
	whole := func() []string {
		texts, err := l.Logs.Read(verifierlog.Owner{Kind: owner.Kind, Name: owner.Name})
		if err != nil {
			t.Fatal(err)
		}
		return texts
	}
	if texts := whole(); len(texts) != 1 || strings.Contains(texts[0], "bytes left out") || strings.Count(texts[0], "off=98 size=1") < 2 || !strings.Contains(texts[0], "count_1, count_2 fail") {
		t.Errorf("the node keeps %d texts", len(texts))
	}
	text = "`perf_event_open` failed"
	if err := l.request(t.Context(), owner, request); err == nil || len(whole()) > 0 {
		t.Errorf("after a short refusal, the node keeps %q", whole())
	}
}
