// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemon

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bpfman/bpfman-operator/internal/problem"
)

// The daemon of v0.6.0 describes failures in the debug format of Rust's structures, and the one in Go begins with what it did.
// This file turns that into words: first the cause, and the log of the kernel's verifier last.

// refusedProgram matches the beginning of what the daemon says about each program that the kernel refuses. The log follows.
var refusedProgram = regexp.MustCompile(`(?:BpfProgramError\()?LoadError \{ io_error: Os \{ code: (\d+), kind: \w+, message: "([^"]*)" \}, verifier_log: `)

// refusedByKernel matches the beginning of what the daemon in Go says about a program that the kernel refuses. The end of the log
// can follow.
var refusedByKernel = regexp.MustCompile(`^failed to load programs: (?:load program \S+: )?failed to load collection: program \S+: (load program: [^:]*)`)

// structures matches Rust's structures in messages, with what they say to users, and the problem that they are about, or "".
var structures = []struct {
	reason problem.Reason
	text   *regexp.Regexp
	with   string
}{
	{"", regexp.MustCompile(`^An error occurred\. `), ""},
	{"", regexp.MustCompile(`one or more programs failed to load: \[(.*)\]$`), "$1"},
	{problem.NoSuchFunctionInFile, regexp.MustCompile(`BpfFunctionNameNotValid\("([^"]*)"\)`), "the object has no function $1"},
	{problem.ProgramType, regexp.MustCompile(`BpfProgramError\(UnexpectedProgramType\)`), "the section of the function is for another type of program"},
	{problem.NoSuchKernelFunction, regexp.MustCompile(`BpfProgramError\(Btf\(UnknownBtfTypeName \{ type_name: "([^"]*)" \}\)\)`), "this kernel has no function $1"},
	{"", regexp.MustCompile(`SyscallError\(SyscallError \{ call: "([^"]*)", io_error: Os \{ code: \d+, kind: \w+, message: "([^"]*)" \} \}\)`), "$1: $2"},
	{problem.PinTaken, regexp.MustCompile(`UnableToPin(\w+)\((.*)\)`), "can't pin the $1: $2"},
	{"", regexp.MustCompile(`BpfLoadError\((.*)\)$`), "$1"},
	{"", regexp.MustCompile(`BpfProgramError\((.*)\)$`), "$1"},
	{"", regexp.MustCompile(`Os \{ code: \d+, kind: \w+, message: "([^"]*)" \}`), "$1"},
	// Errors about files have no verb.
	{problem.NoSuchTracepoint, regexp.MustCompile("`/sys/kernel/(?:debug/)?tracing/events/([^`]*)/id`"), "the kernel has no tracepoint $1"},
	{problem.ProbesUnsupported, regexp.MustCompile("`/sys/bus/event_source/devices/[ku]probe/type`"), "the kernel is built without such probes: it has no $0"},
	{"", regexp.MustCompile(` \(os error \d+\)`), ""},
	// The daemon in Go only has the end of the log.
	{problem.VerifierRefused, regexp.MustCompile(`^failed to load programs: (?:load program \S+: )?failed to load collection: program \S+: load program: (?:permission denied|invalid argument): `), "the kernel's verifier refuses the program: "},
	{"", regexp.MustCompile(`^failed to load programs: (?:load program \S+: )?failed to load collection: program \S+: load program: (.*)`), "the kernel refuses the program: $1"},
	{"", regexp.MustCompile(`^failed to load programs: `), ""},
}

// errnos are the names of the errors with which the kernel refuses programs, and what they mean.
var errnos = map[string]struct {
	reason problem.Reason
	name   string
}{
	"1": {problem.DispatcherRefused, "(EPERM)"}, "2": {"", "(ENOENT)"}, "7": {problem.ProgramTooComplex, "(E2BIG)"}, "12": {problem.OutOfMemory, "(ENOMEM)"},
	"13": {problem.VerifierRefused, "(EACCES)"}, "22": {problem.VerifierRefused, "(EINVAL)"}, "28": {problem.OutOfMemory, "(ENOSPC)"},
	"95": {problem.ProgramTypeUnsupported, "(EOPNOTSUPP)"}, "524": {problem.ProgramTypeUnsupported, "(ENOTSUPP)"},
}

// inWords returns the cause in a message of the daemon, in a line, and the logs of the kernel's verifier in it.
func inWords(message string) (cause, log string) {
	found := refusedProgram.FindAllStringSubmatchIndex(message, -1)
	if len(found) == 0 {
		for _, s := range structures {
			message = s.text.ReplaceAllString(message, s.with)
		}
		return message, ""
	}
	var causes, logs []string
	for n, at := range found {
		end := len(message)
		if n+1 < len(found) {
			end = found[n+1][0]
		}
		text := strings.TrimRight(message[at[1]:end], " \n})],")
		if text != "" {
			logs = append(logs, text)
		}
		if cause := refusedBy(message[at[2]:at[3]], message[at[4]:at[5]], text); !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	if more := len(causes) - 1; more > 0 {
		causes[0] += fmt.Sprintf(", and %d more refusals", more)
	}
	return causes[0], strings.Join(logs, "\n\n")
}

// refusedBy describes why the kernel refuses a program, from the number and the name of an error, and the verifier's log.
func refusedBy(errno, name, log string) string {
	verdict := verdictOf(log)
	known, is := errnos[errno]
	if verdict != "" && known.reason == problem.VerifierRefused {
		return problem.Notef(problem.VerifierRefused, "the kernel's verifier refuses the program: %s", verdict).Text
	}
	if is {
		name += " " + known.name
	}
	if verdict != "" {
		name += ": " + verdict
	}
	return "the kernel refuses the program: " + name
}

var (
	// work matches the lines of a log that say what the verifier does: instructions, states of registers, and statistics.
	work = regexp.MustCompile(`^(\d+: \(|(\d+: )?R\d+(_\w+)?=|\d+: safe$|(from )?\d+ to \d+[: ]|processed \d+ insns|stack depth|verification time|mark_precise|regs=|last_idx|` +
		`func#\d|(cur|old) state:|parent |arg#\d+ |.*bytes left out|returning from callee|caller:|callee:|to caller|Func#\d|Validating |frame\d+:|propagating )`)
	// sourceLine matches a line of the source, with its file and number if the kernel knows them (Linux 6.9).
	sourceLine = regexp.MustCompile(`^; (.*?)(?: @ ([^@ ]+:\d+))?$`)
)

// verdictOf returns the last line of a verifier's log that says what is wrong, with the line of the source before it.
func verdictOf(log string) string {
	verdict, line, file := "", "", ""
	for text := range strings.Lines(log) {
		text = strings.TrimSpace(text)
		if match := sourceLine.FindStringSubmatch(text); match != nil {
			line, file = strings.TrimSpace(match[1]), match[2]
			continue
		}
		if text != "" && !work.MatchString(text) {
			verdict = text + at(line, file)
		}
	}
	return verdict
}

// at says where in the source something is wrong.
func at(line, file string) string {
	const longest = 120
	if len(line) > longest {
		line = strings.ToValidUTF8(line[:longest], "") + "…"
	}
	switch {
	case file != "" && line != "":
		return fmt.Sprintf(" (%s: %s)", file, line)
	case file != "" || line != "":
		return fmt.Sprintf(" (%s%s)", file, line)
	}
	return ""
}
