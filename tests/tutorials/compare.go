// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// anything stands for text that differs from run to run.
const anything = "…"

// varying are patterns for parts of a line that differ from run to run, with the regular
// expressions that replace them. A word that is a number differs too, but whether it is 0 has a
// meaning, as in columns that count what failed.
var varying = []struct{ page, output string }{
	{anything, `.*`},
	{`\b(?:[0-9.]+(?:d|h|ms|µs|m|s))+\b`, `(?:[0-9.]+(?:d|h|ms|µs|m|s))+`},
	{`[0-9]+`, `[0-9]+`},
	{`[ \t]+`, `[ \t]+`},
}

var varyingPattern = func() *regexp.Regexp {
	var parts []string
	for _, v := range varying {
		parts = append(parts, "("+v.page+")")
	}
	return regexp.MustCompile(strings.Join(parts, "|"))
}()

// Difference describes where the output differs from the page. It is empty if the output
// matches.
func Difference(page, output string) string {
	lines, output := normalize(page), strings.Join(normalize(output), "\n")+"\n"
	if matches(lines, output, `$`) {
		return ""
	}
	// The longest prefix of the page's lines that matches the start of the output.
	same := 0
	for same < len(lines) && matches(lines[:same+1], output, ``) {
		same++
	}
	if same == len(lines) {
		return fmt.Sprintf("there is more than the page shows. The output is\n%s", output)
	}
	return fmt.Sprintf("the page's line %q isn't there. The output is\n%s", lines[same], output)
}

// normalize returns the lines without insignificant blanks.
func normalize(text string) []string {
	lines := strings.Split(strings.Trim(text, "\r\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return lines
}

func matches(lines []string, output, end string) bool {
	var pattern strings.Builder
	for _, line := range lines {
		if strings.TrimSpace(line) == anything {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(linePattern(line) + `\n`)
	}
	return regexp.MustCompile(`^` + pattern.String() + end).MatchString(output)
}

// linePattern converts a line of a page to a regular expression.
func linePattern(line string) string {
	var pattern strings.Builder
	at := 0
	for _, found := range varyingPattern.FindAllStringSubmatchIndex(line, -1) {
		pattern.WriteString(regexp.QuoteMeta(line[at:found[0]]))
		at = found[1]
		if word := line[found[0]:found[1]]; isWord(line, found[0], found[1]) && isNumber(word) {
			if word != "0" {
				word = `[1-9][0-9]*`
			}
			pattern.WriteString(word)
			continue
		}
		for i, v := range varying {
			if found[2+2*i] >= 0 {
				pattern.WriteString(v.output)
			}
		}
	}
	return pattern.String() + regexp.QuoteMeta(line[at:])
}

// isWord reports whether a part of a line has blanks or nothing around it.
func isWord(line string, from, to int) bool {
	blank := func(at int) bool { return at < 0 || at >= len(line) || line[at] == ' ' || line[at] == '\t' }
	return blank(from-1) && blank(to)
}

// isNumber reports whether a word is a whole number without leading zeros.
func isNumber(word string) bool {
	number, err := strconv.ParseUint(word, 10, 64)
	return err == nil && strconv.FormatUint(number, 10) == word
}
