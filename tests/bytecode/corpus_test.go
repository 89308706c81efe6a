// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package bytecode

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	bytecodeobject "github.com/bpfman/bpfman-operator/bytecode/object"
	"github.com/bpfman/bpfman-operator/cli/bytecodeimage"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/internal/reader"
	"github.com/bpfman/bpfman-operator/tests/must"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

var update = flag.Bool("update", false, "write docs/reference/bytecode-of-others.md")

const (
	// corpusPage has the results of TestCorpus, between these lines.
	corpusPage  = "../../docs/reference/bytecode-of-others.md"
	corpusBegin = "<!-- begin: make test-corpus -->\n\n"
	corpusEnd   = "\n<!-- end -->"
	// leastObjects is the number of objects below which the corpus isn't complete.
	leastObjects = 90
)

// written is an eBPF object that somebody else wrote.
type written struct {
	pkg, name string
	content   []byte
}

// outcome is what became of an object's functions.
type outcome struct {
	functions, load, attach int
	// refused are the functions that don't load or aren't attached, by reason.
	refused map[string][]string
	// unloadable and unattachable are how many don't load or aren't attached because of this kernel.
	unloadable, unattachable int
}

// TestCorpus loads each function of the objects in public packages alone with the daemon, as agents do, and attaches it.
// It compares the results with those in the documentation, and the kernel's programs with those that libbpf loads. Each
// function loads, or the reason is known before the daemon is called, or is the kernel's.
func TestCorpus(t *testing.T) {
	dir := os.Getenv("CORPUS")
	if dir == "" {
		prerequisite.Missing(t, "run `make test-corpus`", prerequisite.Corpus)
	}
	all := corpus(t, dir)
	if len(all) < leastObjects {
		t.Fatalf("%d objects, want %d", len(all), leastObjects)
	}
	f := setUp(t)
	kernel, err := bytecodeobject.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	var functions, load, attach, same int
	results := map[string]*outcome{}
	for _, o := range all {
		t.Run(o.pkg+"/"+o.name, func(t *testing.T) {
			described, err := bytecodeobject.Describe(o.content, kernel)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), o.name+".o")
			must.Succeed(t, os.WriteFile(path, described.Adapted, 0o600))
			tags, equal := map[string]string{}, 0
			result := &outcome{functions: len(described.Facts.Functions), refused: map[string][]string{}}
			for _, function := range described.Facts.Functions {
				f.try(t, path, function, result, tags)
			}
			for name, tag := range libbpfTags(t, o) {
				if tags[name] != "" && tags[name] != tag {
					t.Errorf("%s has the tag %s, and %s with libbpf", name, tags[name], tag)
				} else if tags[name] != "" {
					equal++
				}
			}
			results[o.pkg+" "+o.name] = result
			functions, load, attach, same = functions+result.functions, load+result.load, attach+result.attach, same+equal
			rows = append(rows, fmt.Sprintf("| %s | %s | %d | %d | %d | %s |\n", o.pkg, o.name, result.functions, result.load, result.attach, result.reasons()))
		})
	}
	summary := fmt.Sprintf("%d objects, %d functions: %d load, %d are attached. %d of those that load are the same program as with libbpf.", len(all), functions, load, attach, same)
	t.Log(summary)
	if same == 0 {
		t.Error("no program was compared with libbpf's")
	}
	page := must.Read(t, corpusPage)
	before, rest, found := strings.Cut(string(page), corpusBegin)
	recorded, after, also := strings.Cut(rest, corpusEnd)
	if !found || !also {
		t.Fatalf("%s has no place for the results", corpusPage)
	}
	if *update {
		text := summary + "\n\n| Package | Object | Functions | Load | Attached | Not loaded, or not attached |\n|---|---|---|---|---|---|\n" + strings.Join(rows, "")
		must.Succeed(t, os.WriteFile(corpusPage, []byte(before+corpusBegin+text+corpusEnd+after), 0o600))
		return
	}
	for _, change := range worse(recorded, results) {
		t.Error(change)
	}
}

var corpusRow = regexp.MustCompile(`(?m)^\| (\S+) \| (\S+) \| (\d+) \| (\d+) \| (\d+) \|`)

// worse returns what got worse than the documentation says: fewer functions of an object load or are attached, and this
// kernel isn't the reason.
func worse(recorded string, results map[string]*outcome) []string {
	var found []string
	rows := corpusRow.FindAllStringSubmatch(recorded, -1)
	for _, row := range rows {
		got := results[row[1]+" "+row[2]]
		if got == nil {
			found = append(found, fmt.Sprintf("%s of %s isn't there anymore", row[2], row[1]))
			continue
		}
		functions, _ := strconv.Atoi(row[3]) // a number, because it matches
		load, _ := strconv.Atoi(row[4])
		attach, _ := strconv.Atoi(row[5])
		// Another version of the package can have other functions.
		if functions == got.functions && (got.load+got.unloadable < load || got.attach+got.unloadable+got.unattachable < attach) {
			found = append(found, fmt.Sprintf("%s of %s: %d functions load and %d are attached, want %d and %d: %s", row[2], row[1], got.load, got.attach, load, attach, got.reasons()))
		}
	}
	for object := range results {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[1]+" "+row[2] == object }) {
			found = append(found, object+" isn't in the documentation: run the test with -update")
		}
	}
	return found
}

func TestWorse(t *testing.T) {
	const recorded = "| Package | Object |\n|---|---|\n| tools | opensnoop | 4 | 3 | 2 | 1: no kind for tp_btf |\n"
	for name, c := range map[string]struct {
		object string
		got    outcome
		want   string
	}{
		"the same":                     {"tools opensnoop", outcome{functions: 4, load: 3, attach: 2}, ""},
		"better":                       {"tools opensnoop", outcome{functions: 4, load: 4, attach: 3}, ""},
		"one loads no more":            {"tools opensnoop", outcome{functions: 4, load: 2, attach: 2}, "2 functions load and 2 are attached, want 3 and 2"},
		"the kernel can't load one":    {"tools opensnoop", outcome{functions: 4, load: 2, attach: 1, unloadable: 1}, ""},
		"one is attached no more":      {"tools opensnoop", outcome{functions: 4, load: 3, attach: 1}, "3 functions load and 1 are attached, want 3 and 2"},
		"the kernel can't attach one":  {"tools opensnoop", outcome{functions: 4, load: 3, attach: 1, unattachable: 1}, ""},
		"another version":              {"tools opensnoop", outcome{functions: 5, load: 2}, ""},
		"another object, and not this": {"tools execsnoop", outcome{}, "opensnoop of tools isn't there anymore\ntools execsnoop isn't in the documentation"},
	} {
		got := strings.Join(worse(recorded, map[string]*outcome{c.object: &c.got}), "\n")
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// reasons returns the reasons for a table.
func (o *outcome) reasons() string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(o.refused)) {
		parts = append(parts, fmt.Sprintf("%d: %s", len(o.refused[reason]), reason))
	}
	return strings.Join(parts, "<br>")
}

func (o *outcome) add(reason string, function reader.Function) {
	o.refused[reason] = append(o.refused[reason], function.Name)
}

// corpus returns the objects in unpacked packages: files, and those that are embedded in programs and libraries.
func corpus(t *testing.T, dir string) []written {
	t.Helper()
	var all []written
	seen := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files, err := bytecodeimage.Open(path)
		if err != nil {
			return nil //nolint:nilerr // an executable without objects
		}
		pkg, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/")
		for _, file := range files {
			if bytes.HasPrefix(file.Content, []byte(elf.ELFMAG)) && !seen[string(file.Content)] {
				seen[string(file.Content)] = true
				all = append(all, written{pkg, strings.TrimSuffix(file.Name, ".o"), file.Content})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b written) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
	return all
}

// try loads and attaches a function of an object.
func (f *fixture) try(t *testing.T, path string, function reader.Function, result *outcome, tags map[string]string) {
	t.Helper()
	if function.Unusable != "" {
		reason := function.Unusable
		if _, kind, found := strings.Cut(reason, "programs of type "); found {
			reason = "no kind for " + strings.Trim(kind, `"`)
		}
		result.add(reason, function)
		return
	}
	p := programOf(function)
	loaded, err := f.load(t.Context(), file(path), nil, p)
	if err != nil {
		reason := kernelRefusal(err)
		text := status.Convert(err).Message()
		switch {
		case reason != "":
			result.unloadable++
			result.add("the kernel has no BPF trampolines", function)
		case strings.Contains(text, "unknown#195896080"):
			result.unloadable++
			result.add("the kernel lacks a field or type that it reads", function)
		case strings.Contains(text, "UnknownBtfTypeName"):
			result.unloadable++
			result.add("the kernel lacks the function that its section names", function)
		case strings.Contains(text, "failed to create map"):
			result.add("its program sets sizes of maps before it loads it", function)
		case verifierLog.MatchString(text):
			result.add("the kernel's verifier refuses it", function)
		default:
			result.add("the daemon refuses it", function)
			t.Errorf("Load %s: %v", function.Name, text)
		}
		t.Logf("Load %s: %.1500s", function.Name, text)
		return
	}
	program := loaded.GetPrograms()[0]
	defer f.unload(t, program.GetKernelInfo().GetId())
	result.load++
	tags[function.Name] = fmt.Sprintf("%016s", program.GetKernelInfo().GetTag()) // the daemon leaves zeros out
	if p.attach == nil {
		result.add("not attached here: its section names no attach point", function)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	attached, err := f.Client.Attach(ctx, &gobpfman.AttachRequest{Id: program.GetKernelInfo().GetId(), Attach: p.attach})
	switch reason := kernelRefusal(err); {
	case reason != "":
		result.unattachable++
		result.add("the kernel can't attach "+strings.ToLower(p.kind.String())+"s", function)
	case err != nil:
		result.unattachable++
		result.add("the kernel lacks the attach point of its section", function)
		t.Logf("Attach %s: %v", function.Name, err)
	default:
		result.attach++
		f.detach(t, attached.GetLinkId())
	}
}

// programOf returns how to load a function, and to attach it if its section says where.
func programOf(function reader.Function) program {
	prefix, to, _ := strings.Cut(function.Section, "/")
	prefix, _, _ = strings.Cut(prefix, ".")
	p := program{function: function.Name}
	switch {
	case strings.HasPrefix(prefix, "xdp"):
		return xdp(function.Name, "")
	case prefix == "tp" || prefix == "tracepoint":
		p = tracepoint(function.Name, "")
		p.attach.GetTracepointAttachInfo().Tracepoint = to
	case prefix == "fentry" || prefix == "fexit":
		p = fentry(function.Name, "")
		if prefix == "fexit" {
			p = fexit(function.Name, "")
		}
		p.traced = to
	case strings.HasPrefix(prefix, "u"):
		p.kind = gobpfman.BpfmanProgramType_UPROBE
	case strings.HasPrefix(prefix, "k"):
		p.kind = gobpfman.BpfmanProgramType_KPROBE
		if to != "" {
			p = kprobe(function.Name, "")
			p.attach.GetKprobeAttachInfo().FnName = to
		}
	default:
		return tcx(function.Name, "")
	}
	return p
}

// loadWithLibbpf loads the object in its argument with libbpf, and prints the name and the description of each program.
// Pins are in a file system of its own, which ends with it: objects can also pin their maps by name.
//
//nolint:dupword // the type of the file system, and its source
const loadWithLibbpf = `set -e
mount -t bpf bpf /sys/fs/bpf
bpftool prog loadall "$1" /sys/fs/bpf/all >&2
for pin in /sys/fs/bpf/all/*; do
	printf '{"name": "%s", "program": %s}\n' "${pin##*/}" "$(bpftool -j prog show pinned "$pin")"
done`

// libbpfTags returns the tags of an object's functions if libbpf can load the object as it is, all functions at the same time.
func libbpfTags(t *testing.T, o written) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), o.name+".o")
	must.Succeed(t, os.WriteFile(path, o.content, 0o600))
	command := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", loadWithLibbpf, "sh", path)
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.Output()
	if err != nil {
		t.Logf("with libbpf: %v: %.200s", err, failed.Bytes()[max(0, failed.Len()-200):])
		return nil
	}
	tags := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var loaded struct {
			Name    string
			Program struct{ Tag string }
		}
		must.Succeed(t, decoder.Decode(&loaded))
		tags[loaded.Name] = loaded.Program.Tag
	}
	return tags
}
