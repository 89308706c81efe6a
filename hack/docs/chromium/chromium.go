// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package chromium starts a browser without a window, for this project's own pages.
package chromium

import (
	"context"
	"fmt"
	"slices"

	"github.com/chromedp/chromedp"
)

// Start starts Chromium, or Chrome, with additional options. Run actions with the returned context. stop ends the
// browser. Call it even after an error.
func Start(ctx context.Context, options ...chromedp.ExecAllocatorOption) (browser context.Context, stop context.CancelFunc, err error) {
	allocator, end := chromedp.NewExecAllocator(ctx, slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.NoSandbox, chromedp.DisableGPU, // as root, in a container; the pages are ours
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true),
	}, options)...)
	browser, cancel := chromedp.NewContext(allocator)
	stop = func() { cancel(); end() }
	// The browser runs as long as the context of the first action.
	if err := chromedp.Do(browser); err != nil {
		return nil, stop, fmt.Errorf("start Chromium, which make deps-docs installs, or Chrome: %w", err)
	}
	return browser, stop, nil
}
