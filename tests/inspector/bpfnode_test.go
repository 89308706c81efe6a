// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package inspector

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/daemontest"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/envtest"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
)

const (
	// inspectorVariable is the environment variable with the path of the inspector's
	// binary.
	inspectorVariable = "BPFMAN_INSPECTOR"
	// written is the maximum time until a change is in the BpfNode: ten seconds after
	// the previous write, plus the duration of the write.
	written = 15 * time.Second
)

// reporter is the inspector's own binary, with an API server that authenticates it as a
// ServiceAccount with its ClusterRole.
type reporter struct {
	client.Client
	t    testing.TB
	node string
	pid  int
}

// startInspector runs it until the test ends.
func startInspector(tb testing.TB, at *daemontest.Place) *reporter {
	tb.Helper()
	config := envtest.Config(tb)
	binary := os.Getenv(inspectorVariable)
	if binary == "" {
		prerequisite.Missing(tb, inspectorVariable+" isn't set: run `make test-inspector`", prerequisite.Commands)
	}
	p := &reporter{Client: envtest.Client(tb, config), t: tb, node: strings.ToLower(strings.Map(letters, tb.Name()))}
	token := p.account()
	secrets := at.Path("/run/secrets/kubernetes.io/serviceaccount")
	must.Succeed(tb, os.MkdirAll(secrets, 0o755))
	for name, content := range map[string][]byte{"token": []byte(token), "ca.crt": config.CAData} {
		must.Succeed(tb, os.WriteFile(filepath.Join(secrets, name), content, 0o600))
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		tb.Fatal(err)
	}
	if address.Host == "" {
		address = &url.URL{Host: config.Host}
	}
	p.run(at.InMounts(context.WithoutCancel(tb.Context()), binary, "--host-proc=/proc", "--host-run=/run", "--metrics-bind-address=0"),
		"KUBERNETES_SERVICE_HOST="+address.Hostname(), "KUBERNETES_SERVICE_PORT="+address.Port(), "KUBE_NODE_NAME="+p.node)
	return p
}

// letters keeps the characters that are valid in a Node's name.
func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return -1
}

// account creates the Node and the ServiceAccount, and returns its token.
func (p *reporter) account() string {
	p.t.Helper()
	ctx := p.t.Context()
	text := must.Read(p.t, "../../config/rbac/bpfman-inspector/role.yaml")
	role := &rbacv1.ClusterRole{}
	must.Succeed(p.t, yaml.UnmarshalStrict(text, role))
	role.Name = p.node
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.node}}
	for _, object := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.node}}, account, role,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: p.node},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
		},
	} {
		must.Succeed(p.t, p.Create(ctx, object))
	}
	request := &authenticationv1.TokenRequest{}
	must.Succeed(p.t, p.SubResource("token").Create(ctx, account, request))
	return request.Status.Token
}

func (p *reporter) run(command *exec.Cmd, env ...string) {
	p.t.Helper()
	command.Env = append(os.Environ(), env...)
	log, err := os.Create(filepath.Join(p.t.TempDir(), "log"))
	if err != nil {
		p.t.Fatal(err)
	}
	command.Stderr = log
	must.Succeed(p.t, command.Start())
	p.pid = command.Process.Pid
	p.t.Cleanup(func() {
		_ = unix.Kill(p.pid, unix.SIGTERM) // it can have ended already
		err := command.Wait()
		_ = log.Close()
		text, _ := os.ReadFile(log.Name())
		if err != nil || p.t.Failed() {
			p.t.Errorf("the inspector ended with %v:\n%s", err, text)
		}
	})
}

// read returns the BpfNode, or nil if there is none.
func (p *reporter) read(ctx context.Context) *v1alpha1.BpfNode {
	p.t.Helper()
	node := &v1alpha1.BpfNode{}
	err := p.Get(ctx, client.ObjectKey{Name: p.node}, node)
	if client.IgnoreNotFound(err) != nil {
		p.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return node
}

// await waits until the BpfNode satisfies a condition.
func (p *reporter) await(what string, right func(*v1alpha1.BpfNode) bool) *v1alpha1.BpfNode {
	p.t.Helper()
	var node *v1alpha1.BpfNode
	err := eventually.Succeeds(p.t.Context(), written, 100*time.Millisecond, func(ctx context.Context) error {
		if node = p.read(ctx); node == nil || !right(node) {
			return fmt.Errorf("the BpfNode is %+v", node)
		}
		return nil
	})
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return node
}

func has(node *v1alpha1.BpfNode, programs []uint32) bool {
	return !slices.ContainsFunc(programs, func(id uint32) bool { return find(&node.Status, id) == nil })
}

// TestBpfNode runs the inspector's own binary with its own permissions. The Node owns
// its BpfNode. The BpfNode contains what is loaded, without what was unloaded, and is
// recreated after it is deleted.
func TestBpfNode(t *testing.T) {
	at := place(t)
	p := startInspector(t, at)
	first := p.await("there is one", func(node *v1alpha1.BpfNode) bool { return node.Status.BootID != "" })
	var node corev1.Node
	must.Succeed(t, p.Get(t.Context(), client.ObjectKey{Name: p.node}, &node))
	if owners := first.OwnerReferences; len(owners) != 1 || owners[0].UID != node.UID || owners[0].Kind != "Node" || owners[0].APIVersion != "v1" || owners[0].Name != p.node {
		t.Errorf("it is owned by %+v", owners)
	}
	// There is neither a daemon nor a container runtime. Only the daemon's absence is
	// reported.
	if conditions := first.Status.Conditions; len(conditions) == 0 || conditions[0].Status != metav1.ConditionFalse || !strings.Contains(conditions[0].Message, "bpfman daemon") {
		t.Errorf("conditions are %+v", conditions)
	}

	began := time.Now()
	holder := start(t, at, "tcx")
	p.await("the programs are there", func(node *v1alpha1.BpfNode) bool { return has(node, holder.Programs) })
	t.Logf("there after %v", time.Since(began))
	began = time.Now()
	holder.end()
	p.await("the programs are gone", func(node *v1alpha1.BpfNode) bool {
		return !slices.ContainsFunc(holder.Programs, func(id uint32) bool { return find(&node.Status, id) != nil })
	})
	t.Logf("gone after %v", time.Since(began))

	must.Succeed(t, p.Delete(t.Context(), first))
	again := start(t, at, "socket filter")
	p.await("it is there again", func(node *v1alpha1.BpfNode) bool {
		return node.UID != first.UID && len(node.OwnerReferences) == 1 && has(node, again.Programs)
	})
}
