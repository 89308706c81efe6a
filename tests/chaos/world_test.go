// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
	"github.com/bpfman/bpfman-operator/tests/node"
	"github.com/bpfman/bpfman-operator/tests/probe"
	"github.com/bpfman/bpfman-operator/tests/restarts"
)

const (
	bpfmanSpace = "bpfman"
	// callTimeout bounds a request to the API server. attemptTimeout bounds an attempt that is repeated until it
	// succeeds. On a busy machine, checking each of three nodes takes most of a minute.
	callTimeout    = 20 * time.Second
	attemptTimeout = 2 * time.Minute
	// accepted is how long an operation can be refused while faults last.
	accepted = 4 * time.Minute
	interval = 300 * time.Millisecond
)

// settings come from the environment: see `make test-chaos`.
var settings = struct {
	kubeconfig string
	// cluster is the command of hack/cluster with the flags for the cluster under test. probe is the binary of
	// tests/cmd/node-probe.
	cluster []string
	probe   string
	// state is the cluster's directory. Nodes see it at the same path.
	state string
	// bytecode is the registry and prefix from which the daemon pulls the sample images.
	bytecode string
	// push is the command that pushes them there, if the registry ends with the node.
	push             []string
	counters, target string
}{
	kubeconfig: os.Getenv("KUBECONFIG"),
	cluster:    strings.Fields(os.Getenv("CHAOS_CLUSTER")),
	probe:      os.Getenv("CHAOS_PROBE"),
	state:      os.Getenv("CHAOS_STATE"),
	bytecode:   os.Getenv("CHAOS_BYTECODE"),
	push:       strings.Fields(os.Getenv("CHAOS_PUSH")),
	counters:   os.Getenv("BPFMAN_COUNTERS_IMG"),
	target:     os.Getenv("BPFMAN_GO_TARGET_IMG"),
}

// world is the cluster under test.
type world struct {
	client.Client
	clientset *kubernetes.Clientset
	// installed is the original data of the ConfigMap.
	installed map[string]string
	m         *Model
	// faults are those that last during the next steps.
	faults sync.WaitGroup
	mutex  sync.Mutex
	failed []error
	// ids are the programs that were found for each load.
	ids map[string][]uint32
	// seenPrograms and seenMaps are those since the last check that unloaded ones were removed from the kernel.
	seenPrograms, seenMaps map[uint32]bool
	// others are the user objects and pods that the test didn't create.
	others map[types.UID]bool
	// restarts contains the restarts of bpfman's containers.
	restarts *restarts.Log
}

func connect(ctx context.Context, t *testing.T) *world {
	t.Helper()
	if settings.kubeconfig == "" || len(settings.cluster) == 0 {
		prerequisite.Missing(t, "this needs a cluster whose components it may kill, see `make test-chaos`", prerequisite.Cluster)
	}
	config, err := clientcmd.BuildConfigFromFlags("", settings.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Timeout = -1, callTimeout
	must.Succeed(t, v1alpha1.Install(scheme.Scheme))
	w := &world{ids: map[string][]uint32{}, seenPrograms: map[uint32]bool{}, seenMaps: map[uint32]bool{}, others: map[types.UID]bool{}}
	err = await(ctx, accepted, func(context.Context) (err error) {
		w.Client, err = client.New(config, client.Options{Scheme: scheme.Scheme})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.clientset, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	w.restarts = restarts.NewLog(w, bpfmanSpace)
	var nodes corev1.NodeList
	must.Succeed(t, w.List(ctx, &nodes))
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	can := map[string]Ability{}
	for _, name := range names {
		must.Succeed(t, giveProbe(name))
		trials, err := ask[[]node.Trial](ctx, w, name, "try", settings.bytecode)
		if err != nil {
			t.Fatal(err)
		}
		for _, trial := range trials {
			before, known := can[trial.Type]
			can[trial.Type] = Ability{Loads: trial.Loaded && (before.Loads || !known), Attaches: trial.Attached && (before.Attaches || !known)}
		}
	}
	// A uprobe is tried in a container. Without a container, the same call does the same. Those in containers are namespaced.
	can["Uprobe"], can[node.ContainerUprobe] = can[node.ContainerUprobe], can[node.NamespacedUprobe]
	for _, must := range []string{"TCX", "Tracepoint", "Uprobe"} {
		if !can[must].Attaches {
			t.Fatalf("the kernel must attach %s, and doesn't: %+v", must, can)
		}
	}
	w.m = NewModel(can, names)
	var config0 corev1.ConfigMap
	must.Succeed(t, w.Get(ctx, client.ObjectKey{Namespace: bpfmanSpace, Name: "bpfman-config"}, &config0))
	w.installed = config0.Data
	return w
}

// probeOf returns the path of the node probe in the host's directory that a node sees. The first node sees the
// cluster's directory, and the other nodes see subdirectories.
func probeOf(nodeName string) string {
	own := filepath.Join(settings.state, nodeName)
	if _, err := os.Stat(own); err != nil {
		own = settings.state
	}
	return filepath.Join(own, "chaos-probe")
}

// giveProbe copies the node probe to where the node sees it. An existing one can be running.
func giveProbe(nodeName string) error {
	binary, err := os.ReadFile(settings.probe)
	if err != nil {
		return fmt.Errorf("read the node probe: %w", err)
	}
	probe := probeOf(nodeName)
	if err := os.WriteFile(probe+".new", binary, 0o755); err != nil {
		return fmt.Errorf("copy the node probe: %w", err)
	}
	if err := os.Rename(probe+".new", probe); err != nil {
		return fmt.Errorf("copy the node probe: %w", err)
	}
	return nil
}

// clusterCommand returns a command of hack/cluster for a node.
func clusterCommand(ctx context.Context, nodeName string, command ...string) *exec.Cmd {
	args := slices.Concat(settings.cluster[1:], []string{"--node", nodeName}, command)
	return exec.CommandContext(ctx, settings.cluster[0], args...)
}

// onNode runs a command on a node.
func (w *world) onNode(ctx context.Context, nodeName string, command ...string) ([]byte, error) {
	cmd := clusterCommand(ctx, nodeName, append([]string{"exec", "--"}, command...)...)
	cmd.WaitDelay = time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s on node %s: %w: %s", strings.Join(command, " "), nodeName, err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// ask runs a command of the node probe on a node, and decodes its output.
func ask[T any](ctx context.Context, w *world, nodeName string, command ...string) (T, error) {
	return probe.Ask[T](ctx, func(ctx context.Context, command ...string) ([]byte, error) {
		return w.onNode(ctx, nodeName, append([]string{probeOf(nodeName)}, command...)...)
	}, command...)
}

// await polls until do succeeds. When the time is over, it returns the last error of do.
func await(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	return eventually.Succeeds(ctx, timeout, interval, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		return do(ctx)
	})
}

// refused reports whether an API server has rejected a request permanently.
func refused(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// insist repeats a request until the API server accepts it, because the API server can be down.
func insist(ctx context.Context, do func(context.Context) error) error {
	var final error
	err := await(ctx, accepted, func(ctx context.Context) error {
		err := do(ctx)
		if refused(err) {
			final = err
			return nil
		}
		return err
	})
	return errors.Join(final, err)
}

// create creates an object. If the response was lost, the object can already exist.
func (w *world) create(ctx context.Context, o client.Object) error {
	return insist(ctx, func(ctx context.Context) error {
		o.SetResourceVersion("")
		err := w.Create(ctx, o)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := w.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.GetDeletionTimestamp() != nil {
			return fmt.Errorf("%s of that name is on its way out", o.GetName())
		}
		return nil
	})
}

func (w *world) remove(ctx context.Context, o client.Object) error {
	return insist(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(w.Delete(ctx, o)) })
}

// update changes the current object on the API server.
func update[O client.Object](ctx context.Context, w *world, o O, change func(O)) error {
	return insist(ctx, func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change(o)
		return w.Update(ctx, o)
	})
}

// do performs a step, without waiting for its effect.
func (w *world) do(ctx context.Context, s Step) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(s.After) * time.Millisecond):
	}
	if do, ok := operationsDone[s.Do]; ok {
		return do(ctx, w, s)
	}
	fault, ok := faultsDone[s.Do]
	if !ok {
		return fmt.Errorf("nobody knows how to do %q", s.Do)
	}
	if s.Lasts == 0 {
		return fault.begin(ctx, w, s)
	}
	return w.during(ctx, s, fault)
}

// during starts a fault, and ends it after its duration, while the next steps continue.
func (w *world) during(ctx context.Context, s Step, fault faultDone) error {
	if err := fault.begin(ctx, w, s); err != nil {
		return err
	}
	w.faults.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(s.Lasts) * time.Millisecond):
		}
		if fault.end == nil {
			return
		}
		// Another lasting fault can prevent it.
		if err := await(context.WithoutCancel(ctx), accepted, func(ctx context.Context) error { return fault.end(ctx, w, s) }); err != nil {
			w.fail(fmt.Errorf("end of %q: %w", s.Do, err))
		}
	})
	return nil
}

// byProbe runs a command of the node probe on a program for the duration of the fault, while the next steps
// continue.
func (w *world) byProbe(ctx context.Context, s Step, command, program string) error {
	for _, name := range w.placesOf(s) {
		w.faults.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, accepted)
			defer cancel()
			if _, err := ask[any](ctx, w, name, command, program, milliseconds(s.Lasts)); err != nil {
				w.fail(err)
			}
		})
	}
	return nil
}

// placesOf returns the nodes where the target of a fault can run. The operator can run on any node.
func (w *world) placesOf(s Step) []string {
	if s.Target == node.Operator {
		return w.m.Nodes
	}
	return []string{s.Node}
}

// fail records an error of a concurrent fault.
func (w *world) fail(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.failed = append(w.failed, err)
}

// ended waits until no fault lasts.
func (w *world) ended() error {
	w.faults.Wait()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	err := errors.Join(w.failed...)
	w.failed = nil
	return err
}

// operationsDone contains the implementation of each operation.
var operationsDone = map[string]func(context.Context, *world, Step) error{
	"create an object": func(ctx context.Context, w *world, s Step) error {
		return w.create(ctx, s.Object.Make(settings.bytecode))
	},
	"change an object":               replace,
	"roll out a revision that fails": replace,
	"delete an object": func(ctx context.Context, w *world, s Step) error {
		return w.remove(ctx, named(s.Object))
	},
	"create or delete the RolloutPolicies": func(ctx context.Context, w *world, s Step) error {
		do := w.create
		if s.Value == "delete" {
			do = w.remove
		}
		for _, p := range Policies(w.m.canary()) {
			if err := do(ctx, p); err != nil {
				return err
			}
		}
		return nil
	},
	"cut off a node": func(ctx context.Context, w *world, s Step) error {
		if err := w.awaitConfirmed(ctx, s.Object.CutsOff); err != nil {
			return err
		}
		o := s.Object.Make(settings.bytecode)
		if program, ok := o.(*v1alpha1.TcxProgram); ok {
			program.Spec.InterfaceSelector = toAPIServer(s.Object.CutsOff == w.m.Nodes[0])
		}
		return w.create(ctx, o)
	},
	"create an invalid object": func(ctx context.Context, w *world, s Step) error {
		o := s.Object.Make(settings.bytecode)
		common := o.GetAppCommon()
		common.ByteCode.Image.ImagePullPolicy = "Sometimes"
		o.SetAppCommon(common)
		if err := w.create(ctx, o); !apierrors.IsInvalid(err) {
			return fmt.Errorf("an invalid %s was not refused as such: %w", s.Object.Kind, err)
		}
		return nil
	},
	"label a node": func(ctx context.Context, w *world, s Step) error {
		return update(ctx, w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Node}}, func(n *corev1.Node) {
			if s.Value == "" {
				delete(n.Labels, ZoneLabel)
				return
			}
			n.Labels[ZoneLabel] = s.Value
		})
	},
	"create a pod": func(ctx context.Context, w *world, s Step) error {
		return w.create(ctx, s.Pod.Make(settings.counters, settings.target))
	},
	"delete a pod": func(ctx context.Context, w *world, s Step) error {
		return w.remove(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Space, Name: s.Target}})
	},
	"add an interface": func(ctx context.Context, w *world, s Step) error {
		_, err := ask[any](ctx, w, s.Node, "add-interface", s.Target)
		return err
	},
	"remove an interface": func(ctx context.Context, w *world, s Step) error {
		_, err := ask[any](ctx, w, s.Node, "remove-interface", s.Target)
		return err
	},
	"edit the ConfigMap": func(ctx context.Context, w *world, s Step) error {
		return w.configure(ctx, s.Target, s.Value)
	},
	"put nonsense into the ConfigMap, and take it out": func(ctx context.Context, w *world, s Step) error {
		good := w.config(s.Target)
		if err := w.configure(ctx, s.Target, "{nonsense"); err != nil {
			return err
		}
		return w.configure(ctx, s.Target, good)
	},
	"upgrade to the other tag, or back": func(ctx context.Context, w *world, s Step) error {
		if s.Target == "operator" {
			operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-operator"}}
			return update(ctx, w, operator, func(d *appsv1.Deployment) {
				image := &d.Spec.Template.Spec.Containers[0].Image
				*image = (*image)[:strings.LastIndex(*image, ":")+1] + s.Value
			})
		}
		key := imageKeys[s.Target]
		return w.configure(ctx, key, withTag(w.installed[key], s.Value))
	},
}

// replace replaces an object.
func replace(ctx context.Context, w *world, s Step) error {
	return insist(ctx, func(ctx context.Context) error {
		now, wanted := named(s.Object), s.Object.Make(settings.bytecode)
		if err := w.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
			return err
		}
		wanted.SetResourceVersion(now.GetResourceVersion())
		return w.Update(ctx, wanted)
	})
}

// toAPIServer selects the interface over which a node reaches the API server, which can run there.
func toAPIServer(here bool) v1alpha1.InterfaceSelector {
	if here {
		return v1alpha1.InterfaceSelector{Interfaces: &[]string{"lo"}}
	}
	return v1alpha1.InterfaceSelector{PrimaryNodeInterface: new(true)}
}

// awaitConfirmed waits until a node has confirmed its changes, because it undoes those that it hasn't.
func (w *world) awaitConfirmed(ctx context.Context, nodeName string) error {
	return await(ctx, accepted, func(ctx context.Context) error {
		records, err := w.onNode(ctx, nodeName, "sh", "-c", "cat /var/lib/bpfman/bytecode/changes/*.json || true")
		if err != nil {
			return err
		}
		for decoder := json.NewDecoder(bytes.NewReader(records)); ; {
			var entry struct {
				Key    struct{ Name string }
				Record struct {
					Tried struct{ State string }
				}
			}
			if err := decoder.Decode(&entry); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("decode the records of changes: %w", err)
			}
			if !strings.HasPrefix(entry.Key.Name, cutting) && entry.Record.Tried.State == "Trying" {
				return fmt.Errorf("%s on %s isn't confirmed", entry.Key.Name, nodeName)
			}
		}
	})
}

// kindOf returns the kind with a name.
func kindOf(name string) v1alpha1.Kind[v1alpha1.UserObject] {
	return v1alpha1.UserKinds[slices.IndexFunc(v1alpha1.UserKinds, func(k v1alpha1.Kind[v1alpha1.UserObject]) bool { return k.Name == name })]
}

// named returns an empty object with the kind and name.
func named(o *Object) client.Object {
	kind := kindOf(o.Kind)
	object := kind.New()
	object.SetName(o.Name)
	if kind.Namespaced {
		object.SetNamespace(Space)
	}
	return object
}

// etcdAlarm sets or clears the alarm with which etcd refuses every write if its disk or quota is full.
func etcdAlarm(ctx context.Context, w *world, action string) error {
	_, err := w.onNode(ctx, w.m.Nodes[0], "curl", "--silent", "--show-error", "--fail", "--max-time", "5",
		"http://127.0.0.1:2379/v3/maintenance/alarm", "--request", http.MethodPost, "--data", `{"action":"`+action+`","alarm":"NOSPACE"}`)
	return err
}

// faultDone contains how a fault starts, and, if it lasts, how it ends.
type faultDone struct {
	begin, end func(context.Context, *world, Step) error
}

// partition drops the packets of a node and of its pods to the API server. On the first node, packets from the
// host, where this test runs, and from other nodes arrive at eth0.
const partition = `table inet chaos {
	chain input { type filter hook input priority -10; iifname != "eth0" ip daddr != 127.0.0.1 tcp dport 6443 drop; }
	chain output { type filter hook output priority -10; oifname != "lo" tcp dport 6443 drop; }
	chain forward { type filter hook forward priority -10; tcp dport 6443 drop; }
}`

// faultsDone contains the implementation of each fault.
var faultsDone = map[string]faultDone{
	"kill": {begin: func(ctx context.Context, w *world, s Step) error {
		return strike(ctx, w, s, "kill")
	}},
	"freeze": {
		func(ctx context.Context, w *world, s Step) error { return strike(ctx, w, s, "stop") },
		func(ctx context.Context, w *world, s Step) error { return strike(ctx, w, s, "continue") },
	},
	"keep down": {begin: func(ctx context.Context, w *world, s Step) error {
		return w.byProbe(ctx, s, "keep-down", s.Target)
	}},
	"API server unreachable from the node": {
		func(ctx context.Context, w *world, s Step) error {
			_, err := w.onNode(ctx, s.Node, "nft", partition)
			return err
		},
		func(ctx context.Context, w *world, s Step) error {
			_, err := w.onNode(ctx, s.Node, "sh", "-c", "! nft list table inet chaos 2>&1 || nft delete table inet chaos")
			return err
		},
	},
	"daemon answers slowly": {begin: func(ctx context.Context, w *world, s Step) error {
		return w.byProbe(ctx, s, "pulse", node.Daemon)
	}},
	"/run full": {
		func(ctx context.Context, w *world, s Step) error {
			// The kernel refuses the size if something was written in between.
			return await(ctx, accepted, func(ctx context.Context) error {
				_, err := w.onNode(ctx, s.Node, "sh", "-c", `mount -o remount,size=$(df --block-size=1 --output=used /run | tail -n 1) /run`)
				return err
			})
		},
		func(ctx context.Context, w *world, s Step) error {
			_, err := w.onNode(ctx, s.Node, "mount", "-o", "remount,size=50%", "/run")
			return err
		},
	},
	"etcd full": {
		func(ctx context.Context, w *world, _ Step) error {
			return await(ctx, accepted, func(ctx context.Context) error { return etcdAlarm(ctx, w, "ACTIVATE") })
		},
		func(ctx context.Context, w *world, _ Step) error { return etcdAlarm(ctx, w, "DEACTIVATE") },
	},
	Reboot: {begin: func(ctx context.Context, w *world, s Step) error {
		w.faults.Wait() // lasting faults end with the node, and commands there can't end them
		if err := w.awaitConfirmed(ctx, s.Node); err != nil {
			return err
		}
		before, err := w.reportsOn(ctx, s.Node)
		if err != nil {
			return err
		}
		if out, err := clusterCommand(ctx, s.Node, "reboot").CombinedOutput(); err != nil {
			return fmt.Errorf("reboot node %s: %w: %s", s.Node, err, out)
		}
		if err := w.awaitReload(ctx, s.Node, before); err != nil {
			return err
		}
		// The cluster's registry has its manifests in memory, on the first node.
		if out, err := exec.CommandContext(ctx, settings.push[0], settings.push[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("push the bytecode after a reboot: %w: %s", err, out)
		}
		// Interfaces that the test created aren't restored.
		for key, there := range w.m.Interfaces {
			nodeName, name, _ := strings.Cut(key, "/")
			if there && nodeName == s.Node {
				if _, err := ask[any](ctx, w, s.Node, "add-interface", name); err != nil {
					return err
				}
			}
		}
		return nil
	}},
}

func milliseconds(n int) string { return (time.Duration(n) * time.Millisecond).String() }

// strike runs a command on the processes of a program on a node, if it is running there.
func strike(ctx context.Context, w *world, s Step, what string) error {
	for _, name := range w.placesOf(s) {
		_, err := ask[any](ctx, w, name, what, s.Target)
		if err != nil && !strings.Contains(err.Error(), "no process runs the program") {
			return err
		}
	}
	return nil
}

// imageKeys are the keys of the ConfigMap for images.
var imageKeys = map[string]string{"agent": "bpfman.agent.image", "csi": "bpfman.csi.image", "inspector": "bpfman.inspector.image", "daemon": "bpfman.image"}

// withTag returns the image with the installed tag, or with the other tag.
func withTag(image, tag string) string {
	if tag == "latest" {
		return image
	}
	at := strings.LastIndex(image, ":")
	return image[:at+1] + tag
}

// config returns a value of the ConfigMap according to the model.
func (w *world) config(key string) string {
	for component, imageKey := range imageKeys {
		if imageKey == key && w.m.Next[component] {
			return withTag(w.installed[key], "next")
		}
	}
	if value, ok := w.m.Config[key]; ok {
		return value
	}
	return w.installed[key]
}

func (w *world) configure(ctx context.Context, key, value string) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bpfmanSpace, Name: "bpfman-config"}}
	return update(ctx, w, config, func(c *corev1.ConfigMap) { c.Data[key] = value })
}

// logOf returns the log of a pod.
func (w *world) logOf(ctx context.Context, name string) (string, error) {
	lines := int64(20)
	stream, err := w.clientset.CoreV1().Pods(Space).GetLogs(name, &corev1.PodLogOptions{TailLines: &lines}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("log of pod %s: %w", name, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}
