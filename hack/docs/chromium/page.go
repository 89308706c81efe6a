// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package chromium

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Patience bounds the time until a page is loaded and no longer changes, on a busy machine.
const Patience = 2 * time.Minute

// Browser starts a browser for one test.
func Browser(t *testing.T) context.Context {
	t.Helper()
	// A mouse, without which the theme doesn't let the keyboard scroll code.
	mouse := chromedp.Flag("blink-settings", "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4")
	ctx, stop, err := Start(t.Context(), mouse)
	t.Cleanup(stop)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// Watched collects errors of a page, and its requests to other hosts.
type Watched struct {
	mu         sync.Mutex
	complaints []string
}

// Watch starts to collect the errors of a page, and its requests to other hosts than its own.
func Watch(t *testing.T, ctx context.Context, own string) *Watched { //nolint:revive // A browser is a context here.
	t.Helper()
	w := &Watched{}
	add := func(format string, arguments ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.complaints = append(w.complaints, fmt.Sprintf(format, arguments...))
	}
	err := chromedp.Listen(ctx, func(event any) {
		switch event := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			add("exception: %v", event.ExceptionDetails)
		case *cdpruntime.EventConsoleAPICalled:
			if event.Type == "error" || event.Type == "warning" {
				add("console: %v", event.Args)
			}
		case *log.EventEntryAdded:
			if event.Entry.Level == log.EntryLevelError || event.Entry.Level == log.EntryLevelWarning {
				add("log: %s %s", event.Entry.Text, event.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if url := event.Request.URL; !strings.HasPrefix(url, own) && !strings.HasPrefix(url, "data:") && !strings.HasPrefix(url, "blob:") {
				add("request to another host: %s", url)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Take returns what was collected, and removes it.
func (w *Watched) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	complaints := w.complaints
	w.complaints = nil
	return complaints
}

// Barriers has axe-core find what keeps people from reading a page or using it, such as text with too little contrast.
// The theme writes the name of the version selector, which lacks the version.
const Barriers = `(async () => {
	const found = await axe.run({exclude: ".md-version__current"}, {resultTypes: ["violations"]});
	return found.violations.filter(violation => ["serious", "critical"].includes(violation.impact)).flatMap(violation =>
		violation.nodes.slice(0, 3).map(node => violation.help + ": " + node.html.slice(0, 120) + ": " + node.failureSummary));
})()`

// Show sets the screen's width and the system's mode.
func Show(t *testing.T, ctx context.Context, width int64, scheme string) { //nolint:revive // The same.
	t.Helper()
	Do(t, ctx, chromedp.EmulateViewport(width, 800))
	Get(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
	})
}

// Do performs actions in the browser, like a reader.
func Do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) { //nolint:revive // The same.
	t.Helper()
	Get(t, ctx, chromedp.Steps(steps...))
}

// Get evaluates a query in the browser.
func Get[T any](t *testing.T, ctx context.Context, question chromedp.Action[T]) T { //nolint:revive // The same.
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	answer, err := chromedp.Run(ctx, question)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
