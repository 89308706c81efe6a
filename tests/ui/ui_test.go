// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package ui tests the page of `kubectl bpfman ui` in a browser: with a simulated cluster, and with a real one.
package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/hack/docs/chromium"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/must"
)

func TestMain(m *testing.M) { envtest.Main(m) }

// server is a running `kubectl bpfman ui`.
type server struct {
	command *exec.Cmd
	lines   *bufio.Scanner
	input   *os.File
	origin  string
	token   string
}

// start runs the command. The server ends with the test.
func start(tb testing.TB, kubeconfig string, flags ...string) *server {
	tb.Helper()
	plugin := os.Getenv("KUBECTL_BPFMAN")
	if plugin == "" {
		prerequisite.Missing(tb, "KUBECTL_BPFMAN isn't set: run `make test-ui`", prerequisite.Commands)
	}
	read, write, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{command: exec.CommandContext(context.WithoutCancel(tb.Context()), plugin, append([]string{"ui"}, flags...)...), input: write}
	s.command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	s.command.Stdin, s.command.Stderr = read, os.Stderr
	out, err := s.command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	must.Succeed(tb, s.command.Start())
	tb.Cleanup(func() {
		_ = s.command.Process.Signal(syscall.SIGTERM)
		_ = s.command.Wait()
		_, _ = read.Close(), write.Close()
	})
	s.lines = bufio.NewScanner(out)
	s.next(tb)
	return s
}

// next reads the next address that the command prints.
func (s *server) next(tb testing.TB) {
	tb.Helper()
	if !s.lines.Scan() {
		tb.Fatal("the command printed no address")
	}
	origin, token, ok := strings.Cut(strings.TrimPrefix(s.lines.Text(), "Open "), "/#token=")
	if !ok {
		tb.Fatalf("the command printed %q", s.lines.Text())
	}
	s.origin, s.token = origin, token
}

func (s *server) address() string { return s.origin + "/#token=" + s.token }

// open opens the page in a browser.
func (s *server) open(t *testing.T) (context.Context, *chromium.Watched) {
	t.Helper()
	ctx := chromium.Browser(t)
	watched := chromium.Watch(t, ctx, s.origin)
	chromium.Do(t, ctx, chromedp.Navigate(s.address()), chromedp.WaitVisible("main"))
	return ctx, watched
}

// visit goes to a view, and waits until a script is true there.
func visit(t *testing.T, ctx context.Context, route, until string) { //nolint:revive // A browser is a context here.
	t.Helper()
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("void (location.hash = %q)", route)))
	await(t, ctx, until)
}

func await(t *testing.T, ctx context.Context, until string) { //nolint:revive // The same.
	t.Helper()
	wait, cancel := context.WithTimeout(ctx, chromium.Patience)
	defer cancel()
	if err := poll(wait, until); err != nil {
		t.Fatalf("%s: %v; the page shows:\n%s", until, err, chromium.Get(t, ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 3000)`)))
	}
}

// awaitLoad waits while the page may be loaded again, which ends the scripts of the former page.
func awaitLoad(t *testing.T, ctx context.Context, until string) { //nolint:revive // The same.
	t.Helper()
	wait, cancel := context.WithTimeout(ctx, chromium.Patience)
	defer cancel()
	for err := poll(wait, until); err != nil; err = poll(wait, until) {
		if wait.Err() != nil {
			t.Fatalf("%s: %v", until, err)
		}
	}
}

func poll(ctx context.Context, until string) error {
	_, err := chromedp.Run(ctx, chromedp.PollFunction[chromedp.Void]("() => { try { return !!("+until+") } catch { return false } }"))
	return err
}

// shows is a script that is true when the page shows a text.
func shows(text string) string {
	return fmt.Sprintf("document.body.innerText.includes(%q)", text) // the texts are ASCII
}

const (
	phone    = 360
	desktop  = 1440
	programs = 50
	few      = 60
)

// view is a view with what it must show.
type view struct {
	name, route, until string
}

var views = []view{
	{"cluster", "#/cluster", shows("Run times are incomplete: 1 of 2 nodes") + ` && document.querySelectorAll(".map a").length === 60 && document.querySelectorAll(".map a.failed").length === 1 && ` + shows("set bpffunctionname to count_packet")},
	{"filtered", "#/cluster?owner=TcxProgram+dns-trace", `document.querySelectorAll("table tbody tr").length === 1`},
	{"node", "#/node?name=worker-0007", shows("cil_from_netdev") + " && " + shows("Conflict: EarlierInChain") + " && " + shows("3 programs") + " && document.querySelectorAll('.box.conflict').length === 1"},
	{"pod", "#/node?name=" + current + "&pod=bpfman/" + current, shows("What sees the packets and calls of the pod") + ` && document.querySelectorAll(".box").length > 10 && document.querySelector("header a[href*=node]")`},
	{"object", "#/object?kind=TcxProgram&name=exec-log", `document.querySelectorAll(".map a").length === 60 && ` + shows("set bpffunctionname to count_packet") + " && " + shows("Timeline")},
	{"live", "#/node?name=" + current, `document.querySelectorAll(".box .figures .spark polyline").length > 40`},
	{"map", fmt.Sprintf("#/map?node=%s&id=%d", current, counters), `document.querySelectorAll(".scroller tbody tr").length === 12 && document.querySelectorAll(".rate .spark polyline").length > 0 && document.querySelectorAll(".cpus rect").length === 48`},
	{"array", fmt.Sprintf("#/map?node=%s&id=%d", current, durations), `document.querySelectorAll(".histogram tr").length === 25 && ` + shows("each bar is a power of two") + " && " + shows("2.0k")},
	{"slots", fmt.Sprintf("#/map?node=%s&id=%d", current, latencies), shows("Histogram of disk=sda")},
	{"cookies", fmt.Sprintf("#/map?node=%s&id=%d", current, cookies), shows("18446744073709551615") + " && " + shows("18446744073709551614") + " && " + shows("9,223,372,036,854,775,809") + ` && document.querySelectorAll(".rate .spark").length === 3 && ![...document.querySelectorAll(".rate")].some(r => r.innerText.includes("/s"))`},
	{"opaque", fmt.Sprintf("#/map?node=%s&id=%d", current, opaque), shows("no BTF") + " && " + shows("[0x01000000 0x02000000]")},
	{"old", "#/node?name=" + old, `document.querySelectorAll(".box").length > 40 && ` + shows("the inspector is older than this command")},
	{"oldmap", fmt.Sprintf("#/map?node=%s&id=%d", old, counters), shows("the inspector is older than this command") + " && " + shows("kubectl bpfman dump")},
	{"without", "#/node?name=" + nodeName(unknown), shows("no inspector has reported what the node runs") + " && " + shows("no inspector runs on node") + " && !" + shows("No program is attached")},
}

// TestViews checks each view, as displayed by a phone in dark mode, and by a desktop in light mode.
func TestViews(t *testing.T) {
	config := envtest.Config(t)
	cluster := simulate(t, config, few, programs)
	cluster.inspectors(t)
	axe := must.Read(t, os.Getenv("AXE"))
	s := start(t, envtest.Kubeconfig(t))
	for _, mode := range []struct {
		width  int64
		scheme string
	}{{phone, "dark"}, {desktop, "light"}, {desktop, "dark"}} {
		t.Run(fmt.Sprintf("%d-%s", mode.width, mode.scheme), func(t *testing.T) {
			ctx, watched := s.open(t)
			chromium.Show(t, ctx, mode.width, mode.scheme)
			for _, v := range views {
				visit(t, ctx, v.route, v.until)
				if wide := chromium.Get(t, ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > document.documentElement.clientWidth`)); wide {
					t.Errorf("%s is wider than the screen", v.name)
				}
				chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](string(axe)))
				for _, problem := range append(chromium.Get(t, ctx, chromedp.Evaluate[[]string](chromium.Barriers, chromedp.EvalAwaitPromise)), watched.Take()...) {
					t.Errorf("%s: %s", v.name, problem)
				}
				picture(t, ctx, fmt.Sprintf("%s-%d-%s", v.name, mode.width, mode.scheme))
			}
		})
		fmt.Fprintln(s.input)
		s.next(t)
	}
	t.Run("keyboard", func(t *testing.T) { keyboard(t, s) })
	fmt.Fprintln(s.input)
	s.next(t)
	t.Run("filters", func(t *testing.T) { filtered(t, s) })
	fmt.Fprintln(s.input)
	s.next(t)
	t.Run("change", func(t *testing.T) { change(t, s, cluster) })
	t.Run("lost connection", func(t *testing.T) { lost(t) })
	t.Run("no rights", func(t *testing.T) { withoutRights(t) })
	t.Run("no inspector", func(t *testing.T) { withoutInspector(t) })
	t.Run("ended session", func(t *testing.T) { ended(t) })
	t.Run("expired credentials", func(t *testing.T) { expired(t, config) })
	t.Run("attacks", func(t *testing.T) { attacks(t) })
}

// picture writes what the browser shows to the directory SCREENSHOTS, as a picture for the documentation.
func picture(t *testing.T, ctx context.Context, name string) { //nolint:revive // The same.
	t.Helper()
	out := os.Getenv("SCREENSHOTS")
	if out == "" {
		return
	}
	taken := chromium.Get(t, ctx, func(ctx context.Context, target *chromedp.Target) (page.CaptureScreenshotResult, error) {
		return cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: new(int64(quality))})
	})
	must.Succeed(t, os.WriteFile(filepath.Join(out, name+".webp"), taken.Data, 0o600))
}

// quality is the quality of pictures, in percent.
const quality = 85

// keyboard goes from the map of nodes to a node, and back, without a mouse.
func keyboard(t *testing.T, s *server) {
	t.Helper()
	ctx, _ := s.open(t)
	await(t, ctx, `document.querySelectorAll(".map a").length === 60`)
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void document.querySelector(".map a[tabindex='0']").focus()`))
	press := func(key string) {
		chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`void document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: %q, bubbles: true, cancelable: true}))`, key)))
	}
	press("ArrowRight")
	await(t, ctx, `document.activeElement.getAttribute("href").endsWith("worker-0001")`)
	press("End")
	await(t, ctx, `document.activeElement.getAttribute("href").endsWith("worker-0059") && document.querySelectorAll(".map a[tabindex='0']").length === 1`)
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void document.activeElement.click()`))
	await(t, ctx, `document.querySelector("h1").innerText.includes("worker-0059")`)
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void history.back()`))
	await(t, ctx, `document.querySelectorAll(".map a").length === 60`)
}

// change makes a node conflict, which the page must show without being loaded again.
func change(t *testing.T, s *server, cluster *simulated) {
	t.Helper()
	ctx, _ := s.open(t)
	await(t, ctx, `document.querySelectorAll(".map a.conflict").length === 2`)
	seen := cluster.conflict(t, 30)
	await(t, ctx, `document.querySelectorAll(".map a.conflict").length === 3`)
	t.Logf("the page showed a change after %v", time.Since(seen).Round(time.Millisecond))
}

// conflict makes a node conflict, and returns when it was written.
func (s *simulated) conflict(tb testing.TB, i int) time.Time {
	tb.Helper()
	var node v1alpha1.BpfNode
	must.Succeed(tb, s.Get(tb.Context(), client.ObjectKey{Name: nodeName(i)}, &node))
	node.Status.Conflicts = []v1alpha1.BpfNodeConflict{{Type: v1alpha1.BpfNodeForeignXDP, Message: "program 77 is attached to eth0"}}
	node.Status.ConflictCount = 1
	must.Succeed(tb, s.Status().Update(tb.Context(), &node))
	return time.Now()
}

// lost ends the server. The page says so, and shows what it knows.
func lost(t *testing.T) {
	t.Helper()
	s := start(t, envtest.Kubeconfig(t))
	ctx, _ := s.open(t)
	await(t, ctx, `document.querySelectorAll(".map a").length === 60`)
	must.Succeed(t, s.command.Process.Kill())
	await(t, ctx, shows("Not live.")+` && document.querySelectorAll(".map a").length === 60`)
}

// withoutRights serves the page for a user who may not read anything.
func withoutRights(t *testing.T) {
	t.Helper()
	s := start(t, envtest.Kubeconfig(t), "--as", "nobody")
	ctx, watched := s.open(t)
	await(t, ctx, shows("things can't be read.")+` && [...document.querySelectorAll("details li")].some(l => l.textContent.includes("nodes is forbidden"))`)
	for _, problem := range watched.Take() {
		t.Error(problem)
	}
}

// withoutInspector serves the page of a cluster whose inspectors aren't found: what they reported is shown.
func withoutInspector(t *testing.T) {
	t.Helper()
	s := start(t, envtest.Kubeconfig(t), "--bpfman-namespace", "elsewhere")
	ctx, _ := s.open(t)
	const why = "namespace elsewhere has no pods of the node components"
	await(t, ctx, `document.querySelectorAll(".map a").length === 60 && document.querySelectorAll("table tbody tr").length > 10 && `+shows("Run times aren't live: "+why))
	visit(t, ctx, "#/node?name="+current, `document.querySelectorAll(".box").length > 40 && `+shows("Run times aren't live: "+why))
	visit(t, ctx, fmt.Sprintf("#/map?node=%s&id=%d", current, counters), shows("Not live. "+why))
}

// ended restarts the server, so that it doesn't know the session of the page. The page says so, and shows what it knows.
func ended(t *testing.T) {
	t.Helper()
	s := start(t, envtest.Kubeconfig(t))
	ctx, _ := s.open(t)
	await(t, ctx, `document.querySelectorAll(".map a").length === 60`)
	must.Succeed(t, s.command.Process.Kill())
	_ = s.command.Wait()
	again := start(t, envtest.Kubeconfig(t), "--port", s.origin[strings.LastIndex(s.origin, ":")+1:])
	await(t, ctx, shows("The session has ended.")+` && document.querySelectorAll(".map a").length === 60`)
	chromium.Do(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(s.address()))
	await(t, ctx, shows("It works once"))
	chromium.Do(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(again.address()))
	await(t, ctx, `document.querySelectorAll(".map a").length === 60`)

	// An address that is pasted into the same tab, which doesn't load the page.
	must.Succeed(t, again.command.Process.Kill())
	_ = again.command.Wait()
	pasted := start(t, envtest.Kubeconfig(t), "--port", s.origin[strings.LastIndex(s.origin, ":")+1:])
	await(t, ctx, shows("The session has ended."))
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("void (location.href = %q)", pasted.address())))
	awaitLoad(t, ctx, `!`+shows("The session has ended.")+` && document.querySelectorAll(".map a").length === 60`)
}

// filtered types a text, and selects another filter before the text is applied. Both are applied, and Back empties both.
func filtered(t *testing.T, s *server) {
	t.Helper()
	ctx, _ := s.open(t)
	await(t, ctx, `document.querySelectorAll("table tbody tr").length > 10`)
	visit(t, ctx, "#/cluster?owner=", `document.querySelectorAll("table tbody tr").length > 10`)
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void (() => {
		const find = document.querySelector("input[type=search]"), owner = [...document.querySelectorAll("label.filter")].find(l => l.innerText.startsWith("Owner")).querySelector("select");
		find.value = "dns"; find.dispatchEvent(new Event("input", {bubbles: true}));
		setTimeout(() => { owner.value = owner.options[1].value; owner.dispatchEvent(new Event("change", {bubbles: true})); }, 20);
	})()`))
	await(t, ctx, `new URLSearchParams(location.hash.split("?")[1]).get("text") === "dns" && !!new URLSearchParams(location.hash.split("?")[1]).get("owner")`)
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void history.back()`))
	await(t, ctx, `document.querySelector("input[type=search]").value === "" && document.querySelectorAll("table tbody tr").length > 10`)
}

// expired serves the page with credentials that expire. The page says so where it reads something, and shows what it
// knows.
func expired(t *testing.T, config *rest.Config) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	accounts := clients.CoreV1().ServiceAccounts("bpfman")
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "leaver"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "leaver"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config.BearerToken, config.CertData, config.KeyData = token.Status.Token, nil, nil
	s := start(t, envtest.KubeconfigOf(t, config))
	ctx, _ := s.open(t)
	await(t, ctx, `document.querySelectorAll(".map a").length === 60`)
	must.Succeed(t, accounts.Delete(t.Context(), account.Name, metav1.DeleteOptions{}))
	// The API server trusts a token for ten seconds after it has checked it.
	const said = "the API server doesn't accept the credentials of your kubeconfig"
	visit(t, ctx, "#/object?kind=TcxProgram&name="+failing, shows("Not live. "+said))
	visit(t, ctx, "#/node?name=worker-0009", shows(said))
	visit(t, ctx, "#/cluster", `document.querySelectorAll(".map a").length === 60`)
}

// attacks are requests of other sites, and of pages with a used address.
func attacks(t *testing.T) {
	t.Helper()
	s := start(t, envtest.Kubeconfig(t))
	exchange := func(token string) (int, string) {
		var session struct{ Key string }
		code := ask(t, http.MethodPost, s.origin+"/session", fmt.Sprintf(`{"token": %q}`, token), nil, &session)
		return code, session.Key
	}
	if code, _ := exchange("wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", code)
	}
	code, key := exchange(s.token)
	if code != http.StatusOK || key == "" {
		t.Fatalf("the token: %d", code)
	}
	if code, _ := exchange(s.token); code != http.StatusUnauthorized {
		t.Errorf("the token again: %d", code)
	}
	for name, c := range map[string]struct {
		header http.Header
		want   int
	}{
		"without a key":    {http.Header{}, http.StatusUnauthorized},
		"with a wrong key": {http.Header{"Authorization": {"Bearer x" + key}}, http.StatusUnauthorized},
		"another host":     {http.Header{"Authorization": {"Bearer " + key}, "Host": {"attacker.example"}}, http.StatusMisdirectedRequest},
		"another site":     {http.Header{"Authorization": {"Bearer " + key}, "Origin": {"http://attacker.example"}}, http.StatusForbidden},
		"another port":     {http.Header{"Authorization": {"Bearer " + key}, "Origin": {"http://127.0.0.1:1"}}, http.StatusForbidden},
		"the page":         {http.Header{"Authorization": {"Bearer " + key}}, http.StatusOK},
	} {
		if code := ask(t, http.MethodGet, s.origin+"/api/cluster", "", c.header, nil); code != c.want {
			t.Errorf("%s: %d, want %d", name, code, c.want)
		}
	}
}

// ask sends a request, and returns the status.
func ask(t *testing.T, method, url, body string, header http.Header, answer any) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		request.Header = header
		request.Host = header.Get("Host")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("%s has the policy %q", url, policy)
	}
	if answer != nil && response.StatusCode == http.StatusOK {
		must.Succeed(t, json.NewDecoder(response.Body).Decode(answer))
	}
	return response.StatusCode
}

// TestRealCluster opens the views of the cluster of KUBECONFIG, with the programs of the examples.
func TestRealCluster(t *testing.T) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("KUBECONFIG isn't set")
	}
	s := start(t, kubeconfig)
	for _, scheme := range []string{"light", "dark"} {
		t.Run(scheme, func(t *testing.T) { realViews(t, s, scheme) })
		fmt.Fprintln(s.input)
		s.next(t)
	}
}

func realViews(t *testing.T, s *server, scheme string) {
	t.Helper()
	ctx, watched := s.open(t)
	chromium.Show(t, ctx, desktop, scheme)
	take := func(view string) { picture(t, ctx, "ui-"+view+"-"+scheme) }
	drawn := func(spark string) string { // a curve that a picture can show takes a while
		points := 2
		if os.Getenv("SCREENSHOTS") != "" {
			points = 11
		}
		return fmt.Sprintf(`[...document.querySelectorAll(%q)].some(s => s.getAttribute("points").split(" ").length >= %d)`, spark+" .spark polyline", points)
	}
	await(t, ctx, `document.querySelectorAll(".map a").length > 0 && `+shows("measured on"))
	take("cluster")
	node := chromium.Get(t, ctx, chromedp.Evaluate[string](`new URLSearchParams(document.querySelector(".map a").getAttribute("href").split("?")[1]).get("name")`))
	visit(t, ctx, "#/node?name="+node, drawn(".box.ours .figures"))
	take("node")
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void document.querySelector(".box.ours a[href*='#/object']").click()`))
	await(t, ctx, `document.querySelector("a[href*='#/map']") && `+shows("sha256:"))
	take("object")
	chromium.Do(t, ctx, chromedp.Evaluate[chromedp.Void](`void document.querySelector("a[href*='#/map']").click()`))
	await(t, ctx, `document.querySelectorAll("table tbody tr").length > 0 && `+drawn(".rate"))
	take("map")
	for _, problem := range watched.Take() {
		t.Error(problem)
	}
}
