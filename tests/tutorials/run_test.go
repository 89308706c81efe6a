// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package tutorials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runs returns a page with these blocks between its first and its last section.
func runs(t *testing.T, steps string) Page {
	t.Helper()
	page, err := Parse(withBackquotes("## What you need\n\n## Steps\n\n" + steps +
		"\n## If it doesn't work\n\n## Clean up\n\n^^^sh\necho cleaned >>cleaned\n^^^\n\n## What's next\n"))
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func TestRun(t *testing.T) {
	const command = "^^^sh\ncat sub/file; number=5\n^^^\n\n"
	const file = "^^^text title=\"sub/file\"\nline 1\n^^^\n\n"
	for name, c := range map[string]struct{ steps, want string }{
		"as it is shown":   {file + command + "^^^text title=\"Output\"\nline 7\n^^^\n", ""},
		"other output":     {file + command + "^^^text title=\"Output\"\nother 7\n^^^\n", `the page's line "other 7" isn't there`},
		"a command fails":  {command + "^^^text title=\"Output\"\nline 1\n^^^\n", "sub/file: No such file"},
		"files in order":   {command + "^^^text title=\"Output\"\nline 1\n^^^\n" + file, "sub/file: No such file"},
		"where that is":    {file + "^^^sh\nfalse\n^^^\n\n^^^text title=\"Output\"\n^^^\n", "line 9, Steps: a command failed"},
		"variables remain": {file + command + "^^^sh\necho $number\n^^^\n\n^^^text title=\"Output\"\n5\n^^^\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := Run(t.Context(), runs(t, c.steps), dir, t.TempDir(), os.Environ(), t.Logf)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, not %q", err, c.want)
			}
			if cleaned, err := os.ReadFile(filepath.Join(dir, "cleaned")); err != nil || string(cleaned) != "cleaned\n" {
				t.Errorf("it cleaned up %q, error %v", cleaned, err)
			}
		})
	}
}
