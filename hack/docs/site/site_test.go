// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package site tests the documentation's site in a browser, in its published form: in a directory for its version,
// next to the list of versions.
package site

import (
	"bytes"
	"fmt"
	"image/png"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/bpfman/bpfman-operator/hack/docs/chromium"
)

const (
	phone   = 360
	desktop = 1280
)

// versions is the file that mike writes.
const versions = `[{"version": "dev", "title": "dev", "aliases": []}, {"version": "0.6", "title": "0.6", "aliases": ["latest"]}]`

// serve serves the site in SITE as version 0.6.
func serve(t *testing.T) (directory, url string) {
	t.Helper()
	directory = os.Getenv("SITE")
	if directory == "" {
		t.Skip("SITE isn't set: run make test-docs")
	}
	mux := http.NewServeMux()
	mux.Handle("/0.6/", http.StripPrefix("/0.6/", http.FileServer(http.Dir(directory))))
	mux.HandleFunc("/versions.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(versions))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return directory, server.URL + "/0.6/"
}

// TestWatch causes an error in a page, to check that it is detected.
func TestWatch(t *testing.T) {
	_, url := serve(t)
	ctx := chromium.Browser(t)
	watched := chromium.Watch(t, ctx, url)
	chromium.Do(t, ctx, chromedp.Navigate(url), chromedp.WaitVisible("article"), settled())
	watched.Take()
	for name, script := range map[string]string{
		"console":      `console.error("this")`,
		"exception":    `setTimeout(() => { throw new Error("this") })`,
		"missing file": `fetch("nowhere").then(() => {})`,
		"another host": `fetch(location.origin + "/versions.json").then(() => {})`,
	} {
		t.Run(name, func(t *testing.T) {
			chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](script))
			deadline := time.Now().Add(chromium.Patience)
			for len(watched.Take()) == 0 {
				if time.Now().After(deadline) {
					t.Fatal("nothing is heard")
				}
				chromium.Get(t, ctx, chromedp.Evaluate[bool](`true`))
			}
		})
	}
}

// pages returns the paths of all pages of the site.
func pages(t *testing.T, directory string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "index.html" {
			relative, err := filepath.Rel(directory, filepath.Dir(path))
			if err != nil {
				return fmt.Errorf("path of %s: %w", path, err)
			}
			paths = append(paths, strings.TrimPrefix(filepath.ToSlash(relative)+"/", "./"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// look is the result of a script in the page.
type look struct {
	Heading  string   `json:"heading"`
	Problems []string `json:"problems"`
}

// inspect finds what makes a page hard to read.
const inspect = `(() => {
	const problems = [];
	const content = document.querySelector("article");
	const width = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > width) {
		const wide = [...content.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > width + 1
			&& !e.closest(".md-typeset__scrollwrap, pre, p:has(> img)")).slice(0, 3).map(e => e.outerHTML.slice(0, 120));
		problems.push("wider than the screen: " + document.documentElement.scrollWidth + " of " + width + " pixels: " + wide.join(" … "));
	}
	for (const image of document.images)
		if (!image.complete || image.naturalWidth === 0) problems.push("image isn't shown: " + image.src);
	// Lists that GitHub renders, and Python's Markdown doesn't.
	for (const p of content.querySelectorAll("p, td"))
		if (/\n *([-*]|\d+\.) /.test(p.textContent) || /^\|.*\|$/m.test(p.textContent) || p.textContent.includes("` + "```" + `"))
			problems.push("Markdown is shown as text: " + p.textContent.slice(0, 80));

	return {heading: document.querySelector("h1")?.innerText || "", problems};
})()`

// TestPages checks each page, as displayed by a phone in dark mode, and by a desktop in light mode.
func TestPages(t *testing.T) {
	directory, url := serve(t)
	paths := pages(t, directory)
	if len(paths) < 20 {
		t.Fatalf("%d pages, which can't be all", len(paths))
	}
	axe, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []struct {
		width  int64
		scheme string
	}{{phone, "dark"}, {desktop, "light"}} {
		t.Run(fmt.Sprintf("%d-%s", mode.width, mode.scheme), func(t *testing.T) {
			ctx := chromium.Browser(t)
			watched := chromium.Watch(t, ctx, strings.TrimSuffix(url, "0.6/"))
			chromium.Show(t, ctx, mode.width, mode.scheme)
			for _, path := range paths {
				chromium.Do(t, ctx, chromedp.Navigate(url+path), chromedp.WaitVisible("article"), settled())
				found := chromium.Get(t, ctx, chromedp.Evaluate[look](inspect))
				if found.Heading == "" {
					t.Errorf("%s has no heading", path)
				}
				chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](string(axe)))
				found.Problems = append(found.Problems, chromium.Get(t, ctx, chromedp.Evaluate[[]string](chromium.Barriers, chromedp.EvalAwaitPromise))...)
				for _, problem := range append(found.Problems, watched.Take()...) {
					t.Errorf("%s: %s", path, problem)
				}
				if out := os.Getenv("SCREENSHOTS"); out != "" {
					name := fmt.Sprintf("%s-%d-%s.png", strings.ReplaceAll(path, "/", "_"), mode.width, mode.scheme)
					if err := os.WriteFile(filepath.Join(out, name), chromium.Get(t, ctx, chromedp.FullScreenshot(100)), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestSchemas checks that the site has the schemas whose addresses the pages tell users to configure.
func TestSchemas(t *testing.T) {
	directory, _ := serve(t)
	page, err := os.ReadFile("../../../docs/editor.md")
	if err != nil {
		t.Fatal(err)
	}
	addresses := regexp.MustCompile(`/latest/(schemas/[a-z0-9_./]+\.json)`).FindAllStringSubmatch(string(page), -1)
	if len(addresses) == 0 {
		t.Error("the page has no addresses")
	}
	for _, address := range addresses {
		if _, err := os.Stat(filepath.Join(directory, address[1])); err != nil {
			t.Error(err)
		}
	}
}

// TestSearch searches the site for what users ask, and expects the page with the answer among the first three
// results, and for questions in words of everyday, as the first.
func TestSearch(t *testing.T) {
	_, url := serve(t)
	ctx := chromium.Browser(t)
	watched := chromium.Watch(t, ctx, strings.TrimSuffix(url, "0.6/"))
	chromium.Show(t, ctx, desktop, "light")
	whole := map[string]string{
		"how do I read a map":            "volumes/",
		"install on OpenShift":           "install/",
		"how do I uninstall":             "install/",
		"why is my program not attached": "status/",
	}
	words := map[string]string{
		"uninstall":                   "install/",
		"read a map without bpf":      "volumes/",
		"openshift":                   "install/",
		"program is not attached":     "status/",
		"bpfman.csi.cluster.access":   "configuration/",
		"prometheus alerts":           "monitoring/",
		"permission denied":           "volume-errors/",
		"xdp not supported":           "programs/",
		"verifier error":              "status/",
		"map volume read only":        "volumes/",
		"image pull secret":           "programs/",
		"upgrade":                     "upgrade/",
		"rollback":                    "upgrade/",
		"helm values":                 "install/",
		"kernel version requirements": "install/",
		"crashloopbackoff":            "get-started/",
		"multi-tenancy":               "hardening/",
		"node selector":               "programs/",
		"airgap offline install":      "air-gapped/",
		"list programs on a node":     "kubectl-bpfman/",
		"write ebpf program in c":     "tutorials/program-in-c/",
	}
	maps.Copy(words, whole)
	for question, page := range words {
		t.Run(question, func(t *testing.T) {
			chromium.Do(t, ctx, chromedp.Navigate(url), chromedp.WaitVisible("article"), settled(),
				chromedp.Focus(".md-search__input"), chromedp.SendKeys(".md-search__input", question),
				chromedp.WaitVisible(".md-search-result__item a"))
			found := chromium.Get(t, ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".md-search-result__item > a:first-of-type")].slice(0, 3).map(a => a.href)`))
			if _, first := whole[question]; first {
				found = found[:1]
			}
			if !slices.ContainsFunc(found, func(result string) bool { return strings.HasPrefix(result, url+page) }) {
				t.Errorf("%s isn't among %q", page, found)
			}
		})
	}
	if complaints := watched.Take(); len(complaints) > 0 {
		t.Errorf("the page complains: %q", complaints)
	}
}

// TestVersions checks that the selector contains the published versions.
func TestVersions(t *testing.T) {
	_, url := serve(t)
	ctx := chromium.Browser(t)
	chromium.Do(t, ctx, chromedp.Navigate(url+"install/"), chromedp.WaitReady(".md-version__list"))
	found := chromium.Get(t, ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".md-version__link")].map(a => a.textContent.trim())`))
	if !slices.Equal(found, []string{"dev", "0.6"}) {
		t.Errorf("the versions are %q", found)
	}
}

// TestModes changes the mode manually, to another one than the system's. Diagrams follow.
func TestModes(t *testing.T) {
	_, url := serve(t)
	ctx := chromium.Browser(t)
	chromium.Show(t, ctx, desktop, "light")
	chromium.Do(t, ctx, chromedp.Navigate(url), chromedp.WaitVisible("article"), settled())
	corner := func() (brightness uint32) {
		picture, err := png.Decode(bytes.NewReader(chromium.Get(t, ctx, chromedp.Screenshot("article img"))))
		if err != nil {
			t.Fatal(err)
		}
		r, g, b, _ := picture.At(picture.Bounds().Max.X/2, picture.Bounds().Max.Y-8).RGBA()
		return (r + g + b) / 3 >> 8
	}
	light := corner()
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`document.querySelector("#__palette_2").click()`))
	dark := corner()
	if light < 200 || dark > 80 {
		t.Errorf("the brightness of the first diagram is %d in light mode, %d in dark mode", light, dark)
	}
}

// TestDiagrams finds texts of diagrams that are wider than their boxes, or overlap.
func TestDiagrams(t *testing.T) {
	directory, url := serve(t)
	paths, err := filepath.Glob(filepath.Join(directory, "diagrams/*.svg"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no diagrams: %v", err)
	}
	ctx := chromium.Browser(t)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			chromium.Do(t, ctx, chromedp.Navigate(url+"diagrams/"+filepath.Base(path)))
			for _, problem := range chromium.Get(t, ctx, chromedp.Evaluate[[]string](overlaps)) {
				t.Error(problem)
			}
		})
	}
}

const overlaps = `(() => {
	const problems = [];
	const texts = [...document.querySelectorAll("text")].map(e => ({text: e.textContent, box: e.getBBox(), frame: e.closest(".box")?.querySelector("rect").getBBox()}));
	const view = document.documentElement.viewBox.baseVal;
	const inside = (a, b, margin) => a.x >= b.x + margin && a.x + a.width <= b.x + b.width - margin && a.y >= b.y && a.y + a.height <= b.y + b.height;
	texts.forEach((a, i) => {
		if (!inside(a.box, a.frame || view, 4)) problems.push("goes beyond its box: " + a.text);
		for (const b of texts.slice(i + 1))
			if (a.box.x < b.box.x + b.box.width && b.box.x < a.box.x + a.box.width && a.box.y + 3 < b.box.y + b.box.height && b.box.y + 3 < a.box.y + a.box.height)
				problems.push("are over each other: " + a.text + " and " + b.text);
	});
	if (texts.length < 5) problems.push("almost no text");
	return problems;
})()`

// settled waits until the page's script has finished: images are loaded, and tables can be scrolled.
func settled() chromedp.Action[chromedp.Void] {
	return chromedp.PollFunction[chromedp.Void](`() => document.readyState === "complete"
		&& [...document.images].every(image => image.complete)
		&& document.querySelectorAll("article table").length === document.querySelectorAll("article .md-typeset__scrollwrap table").length`)
}
