// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"flag"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpproxy"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// into decodes strictly, because a misspelled field would otherwise be dropped silently.
func into[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &typed, true); err != nil {
		t.Fatal(err)
	}
	return typed
}

func daemonSet(t *testing.T, changes map[string]string) appsv1.DaemonSet {
	t.Helper()
	object, err := DaemonSet(mustParse(t, changes), "bpfman")
	if err != nil {
		t.Fatal(err)
	}
	return into[appsv1.DaemonSet](t, object)
}

func containers(ds appsv1.DaemonSet) map[string]corev1.Container {
	all := map[string]corev1.Container{}
	for _, c := range slices.Concat(ds.Spec.Template.Spec.InitContainers, ds.Spec.Template.Spec.Containers) {
		all[c.Name] = c
	}
	return all
}

// The plugin relies on these fields. It can't find out whether the kubelet applies them.
func TestCSIDriver(t *testing.T) {
	object, err := CSIDriver()
	if err != nil {
		t.Fatal(err)
	}
	driver := into[storagev1.CSIDriver](t, object)
	spec := driver.Spec
	if driver.Name != CSIDriverName || *spec.FSGroupPolicy != storagev1.NoneFSGroupPolicy {
		t.Errorf("CSIDriver: %+v", driver)
	}
	for name, flag := range map[string]struct {
		set  *bool
		want bool
	}{
		"podInfoOnMount": {spec.PodInfoOnMount, true}, "requiresRepublish": {spec.RequiresRepublish, true},
		"attachRequired": {spec.AttachRequired, false}, "seLinuxMount": {spec.SELinuxMount, false}, "storageCapacity": {spec.StorageCapacity, false},
	} {
		if flag.set == nil || *flag.set != flag.want {
			t.Errorf("%s is %v, want %v", name, flag.set, flag.want)
		}
	}
	if !slices.Equal(spec.VolumeLifecycleModes, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}) {
		t.Errorf("volumes are %v", spec.VolumeLifecycleModes)
	}
	// OpenShift refuses the volumes of drivers without it in namespaces whose pods aren't privileged.
	if driver.Labels["security.openshift.io/csi-ephemeral-volume-profile"] != "restricted" {
		t.Errorf("labels %v", driver.Labels)
	}
}

func TestPluginIsProbed(t *testing.T) {
	csi := containers(daemonSet(t, nil))["bpfman-csi"]
	if probe := csi.LivenessProbe; probe == nil || probe.Exec == nil || !slices.Equal(probe.Exec.Command, []string{csi.Command[0], "--probe", csi.Args[0]}) {
		t.Errorf("liveness: %+v, of a plugin with %q", probe, csi.Args)
	}
	probe := csi.ReadinessProbe
	if probe == nil || probe.HTTPGet == nil {
		t.Fatalf("readiness: %+v", probe)
	}
	at := net.JoinHostPort(probe.HTTPGet.Host, probe.HTTPGet.Port.String())
	if !slices.Contains(csi.Args, "--metrics-address="+at) || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
		t.Errorf("readiness: %s at %s, of a plugin with %q", probe.HTTPGet.Scheme, at, csi.Args)
	}
}

// The daemon finds tracefs on nodes with and without debugfs, even if it is mounted later.
func TestTracefs(t *testing.T) {
	daemon := containers(daemonSet(t, nil))[DaemonContainer]
	for _, path := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if !slices.ContainsFunc(daemon.VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(path, m.MountPath+"/") && ptr.Deref(m.MountPropagation, "") == corev1.MountPropagationHostToContainer
		}) {
			t.Errorf("the daemon doesn't have the node's %s", path)
		}
	}
}

// The kubelet waits longer for the daemon's probe than the probe waits for the daemon.
func TestDaemonIsProbed(t *testing.T) {
	all := containers(daemonSet(t, nil))
	probe := all[DaemonContainer].LivenessProbe
	if probe == nil || probe.Exec == nil || probe.FailureThreshold != 1 {
		t.Fatalf("%+v", probe)
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	socket, timeout := flags.String("daemon-socket", "", ""), flags.Duration("timeout", 0, "")
	if err := flags.Parse(probe.Exec.Command[1:]); err != nil {
		t.Fatal(err)
	}
	if time.Duration(probe.TimeoutSeconds)*time.Second <= *timeout || !slices.Contains(all[AgentContainer].Args, "--daemon-socket="+*socket) {
		t.Errorf("%q with a limit of %d seconds", probe.Exec.Command, probe.TimeoutSeconds)
	}
}

// bpfman-operator#468: mounts that containers propagate to the host accumulate there with each restart. Two
// containers propagate mounts, once each: the init container, which checks before it mounts, and the plugin, whose
// volumes the kubelet unmounts.
func TestOnlyTwoMountsPropagateToTheHost(t *testing.T) {
	var got []string
	for _, c := range containers(daemonSet(t, nil)) {
		for _, m := range c.VolumeMounts {
			if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
				got = append(got, c.Name+" "+m.MountPath)
			}
		}
	}
	slices.Sort(got)
	if want := []string{"bpfman-csi /var/lib/kubelet/pods", "mount-bpffs /run/bpfman"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPrivileges(t *testing.T) {
	for name, c := range containers(daemonSet(t, nil)) {
		privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if want := slices.Contains([]string{"mount-bpffs", "bpfman", "bpfman-csi"}, name); privileged != want {
			t.Errorf("%s: privileged is %v", name, privileged)
		}
		want := []corev1.Capability(nil)
		if name == InspectorContainer {
			want = []corev1.Capability{"SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"}
		}
		if capabilities := c.SecurityContext.Capabilities; capabilities != nil && !slices.Equal(capabilities.Add, want) {
			t.Errorf("%s adds capabilities %q, not %q", name, capabilities.Add, want)
		}
		if !privileged && (*c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"})) {
			t.Errorf("%s keeps capabilities", name)
		}
		if c.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s requests no memory", name)
		}
	}
}

// With SELinux, a container that isn't privileged can't access the daemon's pins, the container runtime's socket,
// or the kubelet's directories, as any user.
func TestSELinuxType(t *testing.T) {
	ds := daemonSet(t, nil)
	if options := ds.Spec.Template.Spec.SecurityContext.SELinuxOptions; options == nil || options.Type != "spc_t" {
		t.Errorf("pods have %+v", options)
	}
	for name, c := range containers(ds) {
		if c.SecurityContext.SELinuxOptions != nil {
			t.Errorf("%s has its own", name)
		}
	}
}

func TestDaemonSocketIsForFourContainersOnly(t *testing.T) {
	var got []string
	for name, c := range containers(daemonSet(t, nil)) {
		for _, m := range c.VolumeMounts {
			if m.Name == "bpfman-sock" {
				got = append(got, name)
			}
		}
	}
	slices.Sort(got)
	if want := []string{"bpfman", "bpfman-agent", "bpfman-csi", "bpfman-inspector"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEveryMountHasItsVolume(t *testing.T) {
	ds := daemonSet(t, nil)
	for _, c := range containers(ds) {
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(ds.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s: no volume %s", c.Name, m.Name)
			}
		}
	}
}

func TestRegistration(t *testing.T) {
	found := containers(daemonSet(t, map[string]string{KeyKubeletRoot: "/data/kubelet"}))
	registrar := found["node-driver-registrar"]
	if want := "--kubelet-registration-path=/data/kubelet/plugins/csi-bpfman/csi.sock"; !slices.Contains(registrar.Args, want) {
		t.Errorf("registrar has %q, not %q", registrar.Args, want)
	}
	// The plugin detects a lost registration, because the sidecar's own exec probe always succeeds.
	if registrar.LivenessProbe != nil {
		t.Errorf("registrar has a probe: %+v", registrar.LivenessProbe)
	}
	csi := found["bpfman-csi"]
	for _, want := range []string{"--registration-dir=/registration", "--registration-path=/data/kubelet/plugins/csi-bpfman/csi.sock"} {
		if !slices.Contains(csi.Args, want) {
			t.Errorf("plugin has %q, not %q", csi.Args, want)
		}
	}
	if !slices.ContainsFunc(csi.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/registration" && !m.ReadOnly }) {
		t.Errorf("plugin can't mend its registration: %+v", csi.VolumeMounts)
	}
}

// A compromised registrar must not be able to have maps mounted.
func TestRegistrarHasNoSocketOfVolumes(t *testing.T) {
	found := containers(daemonSet(t, nil))
	mounts := func(container string) (names []string) {
		for _, m := range found[container].VolumeMounts {
			names = append(names, m.Name)
		}
		return names
	}
	if got, want := mounts("node-driver-registrar"), []string{"csi-identity", "csi-registration"}; !slices.Equal(got, want) {
		t.Errorf("the registrar has %q, not %q", got, want)
	}
	for container, want := range map[string]string{
		"node-driver-registrar": "--csi-address=/csi-identity/csi.sock", "bpfman-csi": "--identity-endpoint=unix:///csi-identity/csi.sock",
	} {
		if !slices.Contains(found[container].Args, want) || !slices.Contains(mounts(container), "csi-identity") {
			t.Errorf("%s has %q and mounts %q", container, found[container].Args, mounts(container))
		}
	}
}

func TestKubeletRootIsNowhereElse(t *testing.T) {
	object, err := DaemonSet(mustParse(t, map[string]string{KeyKubeletRoot: "/data/kubelet"}), "bpfman")
	if err != nil {
		t.Fatal(err)
	}
	text, err := object.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "/var/lib/kubelet") {
		t.Errorf("the default root is left: %s", text)
	}
}

func TestProxy(t *testing.T) {
	for name, c := range map[string]struct {
		proxy httpproxy.Config
		want  map[string]string
	}{
		"none":       {httpproxy.Config{NoProxy: "10.0.0.0/8"}, map[string]string{}},
		"HTTPS":      {httpproxy.Config{HTTPSProxy: "http://proxy:3128"}, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "$(KUBERNETES_SERVICE_HOST)"}},
		"exceptions": {httpproxy.Config{HTTPProxy: "http://proxy", NoProxy: "10.0.0.0/8,.svc"}, map[string]string{"HTTP_PROXY": "http://proxy", "NO_PROXY": "10.0.0.0/8,.svc,$(KUBERNETES_SERVICE_HOST)"}},
		"literally":  {httpproxy.Config{HTTPSProxy: "http://u:$(PATH)$@proxy"}, map[string]string{"HTTPS_PROXY": "http://u:$$(PATH)$$@proxy", "NO_PROXY": "$(KUBERNETES_SERVICE_HOST)"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := mustParse(t, nil)
			config.Proxy = c.proxy
			object, err := DaemonSet(config, "bpfman")
			if err != nil {
				t.Fatal(err)
			}
			for _, container := range containers(into[appsv1.DaemonSet](t, object)) {
				want := map[string]string{}
				if container.Name == "bpfman-agent" { // it reads bytecode
					want = c.want
				}
				got := map[string]string{}
				for _, v := range container.Env {
					if strings.HasSuffix(v.Name, "_PROXY") {
						got[v.Name] = v.Value
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s has %q, want %q", container.Name, got, want)
				}
			}
		})
	}
}

func TestScheduling(t *testing.T) {
	plain := daemonSet(t, nil).Spec.Template.Spec
	pod := daemonSet(t, map[string]string{
		KeyNodeSelector:     "ebpf=true,kubernetes.io/os=linux",
		KeyTolerations:      "- {operator: Exists, effect: NoExecute}\n- {key: a, value: b.c}\n",
		KeyImagePullSecrets: "one, two, one",
		KeyResources:        "bpfman-agent: {limits: {memory: 1Gi}}",
	}).Spec.Template.Spec
	if want := map[string]string{"kubernetes.io/os": "linux"}; !maps.Equal(plain.NodeSelector, want) {
		t.Errorf("node selector is %v", plain.NodeSelector)
	}
	if want := map[string]string{"kubernetes.io/os": "linux", "ebpf": "true"}; !maps.Equal(pod.NodeSelector, want) {
		t.Errorf("node selector is %v", pod.NodeSelector)
	}
	added := []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, {Key: "a", Value: "b.c"}}
	if want := append(plain.Tolerations, added...); !reflect.DeepEqual(pod.Tolerations, want) {
		t.Errorf("tolerations are %v", pod.Tolerations)
	}
	if want := []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}; !slices.Equal(pod.ImagePullSecrets, want) || plain.ImagePullSecrets != nil {
		t.Errorf("pull Secrets are %v, and by default %v", pod.ImagePullSecrets, plain.ImagePullSecrets)
	}
	for i, c := range pod.Containers {
		requests, limits := c.Resources.Requests, c.Resources.Limits
		if c.Name == "bpfman-agent" {
			if len(requests) > 0 || limits.Memory().String() != "1Gi" {
				t.Errorf("%s has %v", c.Name, c.Resources)
			}
		} else if !reflect.DeepEqual(c.Resources, plain.Containers[i].Resources) || requests.Memory().IsZero() || requests.Cpu().IsZero() {
			t.Errorf("%s has %v", c.Name, c.Resources)
		}
	}
}

// ContainerNames has the names of all containers, and no others.
func TestContainerNames(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(containers(daemonSet(t, nil)))), slices.Sorted(slices.Values(ContainerNames)); !slices.Equal(got, want) {
		t.Errorf("containers %q, known are %q", got, want)
	}
}

func TestWithoutCSI(t *testing.T) {
	pod := daemonSet(t, map[string]string{KeyCSIEnabled: "false"}).Spec.Template.Spec
	var names []string
	for _, c := range pod.Containers {
		names = append(names, c.Name)
	}
	if want := []string{"bpfman", "bpfman-agent", "bpfman-inspector"}; !slices.Equal(names, want) {
		t.Errorf("containers %q, not %q", names, want)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil && strings.HasPrefix(v.HostPath.Path, "/var/lib/kubelet") {
			t.Errorf("volume %s is of no use", v.Name)
		}
	}
}

func TestWithoutInspector(t *testing.T) {
	pod := daemonSet(t, map[string]string{KeyInspectorEnabled: "false"}).Spec.Template.Spec
	for _, c := range pod.Containers {
		if c.Name == InspectorContainer {
			t.Error("the inspector is there")
		}
	}
}

// A component that only reads can't write by mistake. The daemon's socket is in a directory of the pod.
func TestInspectorReadsOnly(t *testing.T) {
	inspector := containers(daemonSet(t, nil))[InspectorContainer]
	for _, m := range inspector.VolumeMounts {
		if !slices.Contains([]string{"bpfman-sock", "kube-api-access"}, m.Name) && (!m.ReadOnly || m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer) {
			t.Errorf("it has %+v", m)
		}
	}
}

func TestInspectorIsProbed(t *testing.T) {
	for addr, host := range map[string]string{"127.0.0.1:8172": "127.0.0.1", ":9172": "", "[::1]:9172": "::1"} {
		inspector := containers(daemonSet(t, map[string]string{KeyInspectorMetricsAddr: addr}))[InspectorContainer]
		for path, probe := range map[string]*corev1.Probe{"/healthz": inspector.LivenessProbe, "/readyz": inspector.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Path != path ||
				probe.HTTPGet.Host != host || probe.HTTPGet.Port.String() != portOf(addr) || inspector.Ports[0].HostPort != probe.HTTPGet.Port.IntVal {
				t.Errorf("%s: %+v", addr, probe)
			}
		}
	}
}

func TestProbesFollowTheAgentsAddress(t *testing.T) {
	for _, c := range []struct {
		addr, host string
		port       int
	}{
		{":8175", "", 8175},
		{"0.0.0.0:9000", "", 9000},
		{"[::]:9000", "", 9000},
		{"127.0.0.1:9001", "127.0.0.1", 9001},
		{"[::1]:9001", "::1", 9001},
	} {
		probe := containers(daemonSet(t, map[string]string{KeyAgentHealthAddr: c.addr}))["bpfman-agent"].ReadinessProbe.HTTPGet
		if probe.Host != c.host || probe.Port.IntValue() != c.port {
			t.Errorf("%s: probed at %q port %d", c.addr, probe.Host, probe.Port.IntValue())
		}
	}
}

// authority returns a certificate in PEM.
func authority(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRegistryCA checks that only the agent gets the certificates, unchanged and at the expected path.
func TestRegistryCA(t *testing.T) {
	template := daemonSet(t, map[string]string{KeyRegistryCA: "\n" + authority(t) + "\n" + authority(t)}).Spec.Template
	if got, want := template.Annotations["bpfman.io/registry-ca.crt"], authority(t)+"\n"+authority(t); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range template.Spec.Containers {
		trusts := slices.Contains(c.Env, corev1.EnvVar{Name: "SSL_CERT_FILE", Value: "/etc/bpfman-registry/ca.crt"}) &&
			slices.Contains(c.Env, corev1.EnvVar{Name: "SSL_CERT_DIR", Value: "/etc/bpfman-registry"}) &&
			mounts(c, "registry-ca", "/etc/bpfman-registry", true)
		if want := c.Name == "bpfman-agent"; trusts != want {
			t.Errorf("%s trusts them alone: %v", c.Name, trusts)
		}
	}
}

func mounts(c corev1.Container, volume, path string, readOnly bool) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == volume && m.MountPath == path && m.ReadOnly == readOnly
	})
}

// TestDaemonReadsNoCertificates checks that there are none in its container: it would parse them in each call.
func TestDaemonReadsNoCertificates(t *testing.T) {
	for _, changes := range []map[string]string{nil, {KeyRegistryCA: authority(t)}} {
		daemon := containers(daemonSet(t, changes))["bpfman"]
		for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
			if !slices.Contains(daemon.Env, corev1.EnvVar{Name: name, Value: os.DevNull}) {
				t.Errorf("%s isn't %s: %v", name, os.DevNull, daemon.Env)
			}
		}
	}
}

// TestDaemonServes checks the only arguments with which both daemons serve, and that only the daemon's container has the
// socket of the CSI plugin that it then has.
func TestDaemonServes(t *testing.T) {
	ds := daemonSet(t, map[string]string{KeyDaemonLogLevel: "warn,bpfman=debug"})
	daemon := containers(ds)["bpfman"]
	if !slices.Equal(daemon.Args, []string{"--csi-support"}) || len(daemon.Command) > 0 {
		t.Errorf("the daemon is started with %q %q", daemon.Command, daemon.Args)
	}
	for name, level := range map[string]string{"RUST_LOG": "warn,bpfman=debug", "BPFMAN_LOG": "warn"} {
		if !slices.Contains(daemon.Env, corev1.EnvVar{Name: name, Value: level}) {
			t.Errorf("%s isn't %s: %v", name, level, daemon.Env)
		}
	}
	at := slices.IndexFunc(ds.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "csi-daemon" })
	if at < 0 || ds.Spec.Template.Spec.Volumes[at].EmptyDir == nil {
		t.Error("the CSI plugin's socket isn't in a directory of the pod")
	}
	for name, c := range containers(ds) {
		if has := mounts(c, "csi-daemon", "/run/bpfman/csi", false); has != (name == "bpfman") {
			t.Errorf("%s has the CSI plugin's socket: %v", name, has)
		}
	}
}

// TestStore checks that only the agent writes bytecode, and that the daemon reads it at the same path, because the
// agent gives it paths of files.
func TestStore(t *testing.T) {
	ds := daemonSet(t, map[string]string{KeyBytecodeStoreSize: "1Gi"})
	at := slices.IndexFunc(ds.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "bytecode" })
	if at < 0 {
		t.Fatal("there is no store")
	}
	// On the disk, so that a node can load programs after a reboot without a registry.
	host := ds.Spec.Template.Spec.Volumes[at].HostPath
	if host == nil || host.Path != "/var/lib/bpfman/bytecode" || *host.Type != corev1.HostPathDirectoryOrCreate {
		t.Errorf("the store is at %+v", host)
	}
	for name, c := range containers(ds) {
		has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "bytecode" })
		if want := name == "bpfman" || name == "bpfman-agent"; has != want || (has && !mounts(c, "bytecode", host.Path, name == "bpfman")) {
			t.Errorf("%s has %+v", name, c.VolumeMounts)
		}
	}
	agent := containers(ds)["bpfman-agent"]
	for _, want := range []string{"--bytecode-dir=" + host.Path, "--bytecode-dir-size=1073741824"} {
		if !slices.Contains(agent.Args, want) {
			t.Errorf("the agent has %q, not %q", agent.Args, want)
		}
	}
}

// TestTokens checks that only the containers that use the API server have a token.
func TestTokens(t *testing.T) {
	ds := daemonSet(t, nil)
	pod := ds.Spec.Template.Spec
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("each container has a token")
	}
	var got []string
	for name, c := range containers(ds) {
		if mounts(c, "kube-api-access", "/var/run/secrets/kubernetes.io/serviceaccount", true) {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if want := []string{"bpfman-agent", "bpfman-csi", "bpfman-inspector"}; !slices.Equal(got, want) {
		t.Errorf("%q have one, want %q", got, want)
	}
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "kube-api-access" })
	if at < 0 || pod.Volumes[at].Projected == nil {
		t.Fatal("there is no volume with a token")
	}
	var files []string
	for _, source := range pod.Volumes[at].Projected.Sources {
		switch {
		case source.ServiceAccountToken != nil:
			files = append(files, source.ServiceAccountToken.Path)
		case source.ConfigMap != nil:
			files = append(files, source.ConfigMap.Items[0].Path)
		case source.DownwardAPI != nil:
			files = append(files, source.DownwardAPI.Items[0].Path)
		}
	}
	// client-go looks for these.
	if want := []string{"token", "ca.crt", "namespace"}; !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
}

// FuzzDaemonSet checks that no value of the ConfigMap changes which containers there are, or their privileges.
func FuzzDaemonSet(f *testing.F) {
	names := make([]string, 0, len(keys))
	for i, k := range keys {
		names = append(names, k.Name)
		f.Add(uint8(i), k.Default)
	}
	for key, values := range map[string][]string{
		KeyNodeSelector:     {"kubernetes.io/os=linux", "a=", "a=b,a=c"},
		KeyImagePullSecrets: {"a,a"},
		KeyTolerations:      {"- {operator: Exists}"},
		KeyResources:        {"bpfman: {limits: {memory: 1Gi}}"},
		KeyAgentHealthAddr:  {":+80", ":0080"},
	} {
		for _, value := range values {
			f.Add(uint8(slices.Index(names, key)), value)
		}
	}
	for i, hostile := range []string{"x\n      - name: more", `"}, securityContext: {privileged: true}, x: {"`, "{{ .Daemon }}", "$(KUBE_NODE_NAME)", "\u2028- x"} {
		f.Add(uint8(i), hostile)
	}
	privileges := func(t *testing.T, data map[string]string) map[string]*corev1.SecurityContext {
		t.Helper()
		config, _, err := ParseConfig(minimal(data))
		if err != nil {
			return nil
		}
		object, err := DaemonSet(config, "bpfman")
		if err != nil {
			t.Fatalf("%q is accepted, and then: %v", data, err)
		}
		pod := into[appsv1.DaemonSet](t, object).Spec.Template.Spec
		out := map[string]*corev1.SecurityContext{}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			out[c.Name] = c.SecurityContext
		}
		return out
	}
	f.Fuzz(func(t *testing.T, key uint8, value string) {
		all := privileges(t, nil)
		for name, got := range privileges(t, map[string]string{names[int(key)%len(names)]: value}) {
			if want, known := all[name]; name != "node-driver-registrar" && (!known || !reflect.DeepEqual(got, want)) {
				t.Errorf("%s=%q: container %s has %+v, want %+v", names[int(key)%len(names)], value, name, got, want)
			}
		}
	})
}

// What YAML doesn't admit as it is reaches the node components.
func TestUnprintableValues(t *testing.T) {
	for _, value := range []string{"\u0090", "\u007f", "\ufeff", "\ufffe", "\U0001ffff", "\u2028", "é😀"} {
		config, _, err := ParseConfig(minimal(map[string]string{KeyDaemonTOML: "a = \"" + strings.ReplaceAll(value, "\u007f", `\u007f`) + "\""}))
		if err != nil {
			t.Errorf("%q is refused: %v", value, err)
			continue
		}
		config.Proxy.HTTPProxy = value
		rendered, err := DaemonSet(config, "bpfman")
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		file, _, _ := unstructured.NestedString(rendered.Object, "spec", "template", "metadata", "annotations", "bpfman.io/bpfman.toml")
		if file != config.Daemon.TOML {
			t.Errorf("%q reaches the daemon as %q", config.Daemon.TOML, file)
		}
		if whole, err := rendered.MarshalJSON(); err != nil || !strings.Contains(string(whole), `"name":"HTTP_PROXY"`) {
			t.Errorf("%v, no proxy in %s", err, whole)
		}
	}
}
