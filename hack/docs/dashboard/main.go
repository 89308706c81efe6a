// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Command dashboard takes pictures of a Grafana dashboard, with data that a Prometheus has recorded. The page of
// hack/dashboard/page draws it. The command fails if a panel has no data.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/bpfman/bpfman-operator/hack/docs/chromium"
)

// patience bounds the time until the page is drawn.
const patience = 2 * time.Minute

// dashboard is what the page says of itself.
type dashboard struct {
	Width  float64 `json:"width"`
	Panels []struct {
		Title  string   `json:"title"`
		Series []string `json:"series"`
	} `json:"panels"`
	// Panels with a query without a result.
	Empty []string `json:"empty"`
	// The dashboard's rows.
	Parts []struct {
		Title  string  `json:"title"`
		Top    float64 `json:"top"`
		Bottom float64 `json:"bottom"`
	} `json:"parts"`
}

type settings struct{ page, dashboard, data, prometheus, out, format, scrape string }

func main() {
	var s settings
	flag.StringVar(&s.page, "page", "", "The directory of the built page.")
	flag.StringVar(&s.dashboard, "dashboard", "", "The dashboard's JSON.")
	flag.StringVar(&s.data, "data", "", "The directory of Prometheus' data, with recorded.json.")
	flag.StringVar(&s.prometheus, "prometheus", "", "The binary of Prometheus.")
	flag.StringVar(&s.out, "out", "", "The directory for the pictures.")
	flag.StringVar(&s.format, "format", "webp", "The pictures' format: webp or png.")
	flag.StringVar(&s.scrape, "scrape", "15", "The scrape interval of the data, in seconds.")
	flag.Parse()
	if err := run(context.Background(), s); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, s settings) (err error) {
	var recorded struct{ From, To int }
	content, err := os.ReadFile(filepath.Join(s.data, "recorded.json"))
	if err != nil {
		return fmt.Errorf("read when the data was recorded: %w", err)
	}
	if err := json.Unmarshal(content, &recorded); err != nil {
		return fmt.Errorf("read when the data was recorded: %w", err)
	}
	prometheus, stop, err := serve(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(s.page)))
	mux.HandleFunc("/dashboard.json", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, s.dashboard) })
	mux.HandleFunc("/show", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><link rel=stylesheet href=page.css><body><script src=page.js></script>`))
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	browser, end, err := chromium.Start(ctx)
	defer end()
	if err != nil {
		return err //nolint:wrapcheck // the error has context
	}
	for _, mode := range []string{"light", "dark"} {
		query := url.Values{
			"mode": {mode}, "dashboard": {server.URL + "/dashboard.json"}, "prometheus": {prometheus}, "scrape": {s.scrape},
			"from": {strconv.Itoa(recorded.From)}, "to": {strconv.Itoa(recorded.To)},
		}
		if err := take(browser, s, server.URL+"/show?"+query.Encode(), mode); err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
	}
	return nil
}

// serve starts Prometheus on the data, and waits until it answers. stop ends it.
func serve(ctx context.Context, s settings) (address string, stop func() error, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("find a free port: %w", err)
	}
	free := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", nil, fmt.Errorf("find a free port: %w", err)
	}
	// It scrapes nothing.
	command := exec.CommandContext(ctx, s.prometheus, "--config.file=/dev/null", "--storage.tsdb.path="+s.data,
		"--storage.tsdb.retention.time=10y", "--web.listen-address="+free, "--log.level=warn")
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return "", nil, fmt.Errorf("start Prometheus: %w", err)
	}
	stop = func() error {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			return fmt.Errorf("stop Prometheus: %w", err)
		}
		if err := command.Wait(); err != nil {
			return fmt.Errorf("end Prometheus: %w", err)
		}
		return nil
	}
	address = "http://" + free
	if err := ready(ctx, address+"/-/ready"); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return address, stop, nil
}

// ready waits until the address answers.
func ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for Prometheus: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// take takes a picture of each of the dashboard's rows, and of what is above them.
func take(browser context.Context, s settings, address, mode string) error {
	limited, cancel := context.WithTimeout(browser, patience)
	defer cancel()
	if err := chromedp.Do(limited, chromedp.EmulateViewport(1280, 4000), chromedp.Navigate(address)); err != nil {
		return fmt.Errorf("open the page: %w", err)
	}
	drawn, err := chromedp.Run(limited, chromedp.Evaluate[dashboard](`dashboard`, chromedp.EvalAwaitPromise))
	if err != nil {
		return fmt.Errorf("draw the dashboard: %w", err)
	}
	// PNG has no quality.
	var quality *int64
	if s.format != "png" {
		quality = new(int64(85))
	}
	for _, part := range drawn.Parts {
		clip := &page.Viewport{Width: drawn.Width, Y: part.Top, Height: part.Bottom - part.Top, Scale: 1}
		picture, err := chromedp.Call(limited, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Format: page.CaptureScreenshotFormat(s.format), Quality: quality, Clip: clip, CaptureBeyondViewport: new(true),
		})
		if err != nil {
			return fmt.Errorf("take a picture of %q: %w", part.Title, err)
		}
		name := "dashboard-" + strings.ToLower(strings.ReplaceAll(part.Title, " ", "-")) + "-" + mode + "." + s.format
		if err := os.WriteFile(filepath.Join(s.out, name), picture.Data, 0o644); err != nil { //nolint:gosec // It gets published.
			return fmt.Errorf("write a picture: %w", err)
		}
	}
	if mode == "light" {
		for _, panel := range drawn.Panels {
			fmt.Printf("%s: %s\n", panel.Title, strings.Join(panel.Series, " | "))
		}
	}
	if len(drawn.Empty) > 0 {
		return fmt.Errorf("no data in %s", strings.Join(drawn.Empty, ", "))
	}
	return nil
}
