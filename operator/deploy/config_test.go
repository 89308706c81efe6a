// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"errors"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// minimal returns the values that have no default.
func minimal(changes map[string]string) map[string]string {
	data := map[string]string{
		KeyDaemonImage: "quay.io/bpfman/bpfman:v0.6.0",
		KeyAgentImage:  "quay.io/bpfman/bpfman-agent:latest",
		KeyCSIImage:    "quay.io/bpfman/bpfman-csi:latest", KeyInspectorImage: "quay.io/bpfman/bpfman-inspector:latest",
	}
	maps.Copy(data, changes)
	return data
}

func mustParse(t *testing.T, changes map[string]string) Config {
	t.Helper()
	config, unknown, err := ParseConfig(minimal(changes))
	if err != nil || len(unknown) > 0 {
		t.Fatalf("ParseConfig: unknown keys %q, error %v", unknown, err)
	}
	return config
}

func TestParseConfigDefaults(t *testing.T) {
	config := mustParse(t, nil)
	want := Config{
		Daemon: DaemonConfig{"quay.io/bpfman/bpfman:v0.6.0", "info", "[database]\nmax_retries = 30\nmillisec_delay = 10000\n\n[signing]\nverify_enabled = false\n", SignaturesDefault},
		Agent: AgentConfig{
			Image: "quay.io/bpfman/bpfman-agent:latest", LogLevel: "info", HealthAddr: ":8175", MetricsAddr: "127.0.0.1:8174",
			StoreSize: 256 << 20, ConfirmTimeout: "30s", ReservedPriorities: 100,
		},
		CSI:         CSIConfig{"quay.io/bpfman/bpfman-csi:latest", "info", "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0", ClusterAccessAll, "127.0.0.1:8173", "", false},
		Inspector:   InspectorConfig{"quay.io/bpfman/bpfman-inspector:latest", "info", "127.0.0.1:8172", false, false},
		KubeletRoot: "/var/lib/kubelet",
		PullPolicy:  corev1.PullIfNotPresent,
	}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("got  %+v\nwant %+v", config, want)
	}
}

// The deployed ConfigMap explicitly contains the defaults.
func TestDeployedConfigMapIsTheDefault(t *testing.T) {
	text, err := os.ReadFile("../../config/bpfman-deployment/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configMap corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &configMap); err != nil {
		t.Fatal(err)
	}
	config, unknown, err := ParseConfig(configMap.Data)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("unknown keys %q, error %v", unknown, err)
	}
	if want := mustParse(t, nil); !reflect.DeepEqual(config, want) {
		t.Errorf("got  %+v\nwant %+v", config, want)
	}
	for _, key := range Keys() {
		if _, there := configMap.Data[key.Name]; !there {
			t.Errorf("key %s isn't shown to the user", key.Name)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for _, c := range []struct{ key, value, reason string }{
		{KeyDaemonImage, "", "is required"},
		{KeyAgentImage, " ", "is required"},
		{KeyCSIImage, "", "is required"},
		{KeyInspectorImage, "", "is required"},
		{KeyDaemonImage, "Not An Image", "is not an image reference"},
		{KeyCSIImage, "quay.io/bpfman/bpfman-csi@sha256:12", "is not an image reference"},
		{KeyCSIRegistrarImage, "x:y:z", "is not an image reference"},
		{KeyDaemonLogLevel, "info\nevil", "control character"},
		{KeyDaemonLogLevel, "verbose", `"verbose": "verbose" is not one of error, warn, info, debug, trace, off`},
		{KeyDaemonLogLevel, "info,bpfman=loud", `"loud" is not one of`},
		{KeyAgentLogLevel, "verbose", `"verbose" is not one of info, debug, trace`},
		{KeyCSILogLevel, "INFO", "is not one of"},
		{KeyAgentHealthAddr, "8175", "is not host:port or :port"},
		{KeyAgentHealthAddr, ":0", "from 1 to 65535"},
		{KeyAgentHealthAddr, ":65536", "from 1 to 65535"},
		{KeyAgentHealthAddr, ":+80", "from 1 to 65535"},
		{KeyAgentHealthAddr, ":0080", "from 1 to 65535"},
		{KeyAgentMetricsAddr, "0", "is not host:port or :port"},
		{KeyAgentHealthAddr, "localhost:8175", "is not an IP address"},
		{KeyAgentMetricsAddr, "127.0.0.1:8175", "is already used by " + KeyAgentHealthAddr},
		{KeyCSIMetricsAddr, ":8174", "is already used by " + KeyAgentMetricsAddr},
		{KeyCSIMetricsAddr, "8173", "is not host:port or :port"},
		{KeyPriorityReserved, "-1", "is not a number from 0 to 1000"},
		{KeyPriorityReserved, "1001", "is not a number from 0 to 1000"},
		{KeyBytecodeStoreSize, "large", `"large" is not a quantity such as 256Mi`},
		{KeyBytecodeStoreSize, "32M", `"32M" is less than 32Mi`},
		{KeyBytecodeStoreSize, "-1Gi", "is less than 32Mi"},
		{KeyCSIClusterAccess, "none", "is not one of all, read, rbac"},
		{KeyCSISELinuxContext, "container_file_t", "is not an SELinux context"},
		{KeyCSISELinuxContext, "system_u::container_file_t:s0", "is not an SELinux context"},
		{KeyCSISELinuxContext, "system_u:object_r:container_file_t:s0 x", "is not an SELinux context"},
		{KeyKubeletRoot, "var/lib/kubelet", "is not an absolute path"},
		{KeyKubeletRoot, "/var/lib/../kubelet", "is not an absolute path"},
		{KeyKubeletRoot, "/var/lib/kubelet/", "is not an absolute path"},
		{KeyKubeletRoot, "/", "is not an absolute path"},
		{KeyKubeletRoot, "/var/lib:/kubelet", "is not an absolute path"},
		{KeyKubeletRoot, "/var/lib/kube\u200blet", "is not an absolute path"},
		{KeyConfirmTimeout, "soon", "must be 0, or from 10s to 1h"},
		{KeyConfirmTimeout, "9s", "must be 0, or from 10s to 1h"},
		{KeyConfirmTimeout, "1h1s", "must be 0, or from 10s to 1h"},
		{KeyConfirmTimeout, "-30s", "must be 0, or from 10s to 1h"},
		{KeyImagePullPolicy, "Sometimes", "is not one of Always, IfNotPresent, Never"},
		{KeyImagePullSecrets, "one,Two", `"Two" is not a valid name`},
		{KeyImagePullSecrets, "one,", `"" is not a valid name`},
		{KeyCSIEnabled, "no", "is not one of true, false"},
		{KeyInspectorEnabled, "maybe", "is not one of true, false"},
		{KeyInspectorImage, "Not An Image", "is not an image reference"},
		{KeyInspectorLogLevel, "warn", "is not one of info, debug, trace"},
		{KeyInspectorMetricsAddr, "node:8172", "is not an IP address"},
		{KeyInspectorMetricsAddr, ":8173", "is already used by " + KeyCSIMetricsAddr},
		{KeyInspectorStatistics, "on", "is not one of true, false"},
		{KeyNodeSelector, "ebpf", "is not a list of key=value"},
		{KeyNodeSelector, "a=b c", "is not a list of key=value"},
		{KeyNodeSelector, "ebpf=true,kubernetes.io/os=windows", "kubernetes.io/os must be linux"},
		{KeyTolerations, "key: a", "is not a list of tolerations"},
		{KeyTolerations, "- {key: a, opreator: Exists}", "is not a list of tolerations"},
		{KeyTolerations, "- {key: a, operator: Is}", `"Is" is not one of`},
		{KeyTolerations, "- {key: a, effect: Never}", `"Never" is not one of`},
		{KeyTolerations, "- {effect: NoSchedule}", "the operator must be Exists if the key is empty"},
		{KeyTolerations, "- {key: a, operator: Exists, value: b}", "the value must be empty"},
		{KeyTolerations, "- {key: a, effect: NoSchedule, tolerationSeconds: 5}", "the effect must be NoExecute"},
		{KeyTolerations, "- {key: a b}", `"a b" is not a valid key`},
		{KeyTolerations, "- {key: a, value: b c}", `"b c" is not a valid value`},
		{KeyResources, "bpfman: {limits: {mem: 1Gi}}", `"mem" is not a resource`},
		{KeyResources, "bpfman: {limits: {example.com/a b: 1}}", `"example.com/a b" is not a resource`},
		{KeyResources, "bpfman: {limits: {memory: -1Gi}}", "memory is negative"},
		{KeyResources, "bpfman: {claims: [{name: x}]}", "claims are not supported"},
		{KeyResources, "agent: {}", `"agent" is not one of the containers`},
		{KeyResources, "bpfman: {limits: {memory: lots}}", "is not a map of containers"},
		{KeyResources, "bpfman: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}", "the limit of memory is below the request"},
		{KeyRegistryCA, "/etc/ssl/ca.crt", "the value is not a list of certificates in PEM format"},
		{KeyRegistryCA, authority(t) + "more", "the value is not a list of certificates in PEM format"},
		{KeyRegistryCA, "more\n" + authority(t), "contains something other than certificates"},
		{KeyRegistryCA, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "contains something other than certificates"},
		{KeyRegistryCA, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "contains an invalid certificate: x509"},
		{KeyRegistryCA, strings.Repeat(authority(t), 250), "the limit is 131072"},
		{KeyDaemonTOML, "[database", "is not valid TOML"},
		{KeyDaemonTOML, "[database]\nmax_retries = \"many\"\n", "the daemon can't use the value"},
		{KeyDaemonTOML, "[database]\nmillisec_delay = -1\n", "the daemon can't use the value"},
		{KeyDaemonTOML, "signing = true\n", "the daemon can't use the value"},
		{KeyDaemonTOML, "[interfaces.eth0]\nxdp_mode = \"fast\"\n", `xdp_mode of interface eth0: "fast" is not one of skb, drv, hw`},
		{KeyDaemonTOML, "# " + strings.Repeat("x", maxTOML), "the limit is 65536"},
	} {
		t.Run(c.key+"="+c.value[:min(len(c.value), 20)], func(t *testing.T) {
			_, _, err := ParseConfig(minimal(map[string]string{c.key: c.value}))
			keyError, ok := errors.AsType[*KeyError](err)
			if !ok || keyError.Key != c.key || !strings.Contains(keyError.Reason, c.reason) {
				t.Errorf("got %v, want key %s and %q", err, c.key, c.reason)
			}
		})
	}
}

func TestPorts(t *testing.T) {
	for _, addr := range []string{":1", ":65535", "127.0.0.1:80", "[::1]:80"} {
		if config := mustParse(t, map[string]string{KeyAgentHealthAddr: addr}); config.Agent.HealthAddr != addr {
			t.Errorf("%s became %s", addr, config.Agent.HealthAddr)
		}
	}
}

func TestDaemonLogLevels(t *testing.T) {
	for level, all := range map[string]string{
		"info": "info", "WARN": "warn", "off": "error", "bpfman=debug": "info", "info, bpfman::multiprog = trace": "info",
		"a=trace, debug": "debug", "debug/attach|a=b": "debug", "info,": "info", "bpfman=": "info",
	} {
		if got := mustParse(t, map[string]string{KeyDaemonLogLevel: level}).Daemon; got.LogLevel != level || got.LogLevelOfAll() != all {
			t.Errorf("%q became %q, and %q for the daemon in Go", level, got.LogLevel, got.LogLevelOfAll())
		}
	}
}

func TestStoreSize(t *testing.T) {
	for value, want := range map[string]int64{"32Mi": 32 << 20, "1G": 1e9, "1.5Gi": 3 << 29, "1e9": 1e9, "40000000": 4e7} {
		if got := mustParse(t, map[string]string{KeyBytecodeStoreSize: value}).Agent.StoreSize; got != want {
			t.Errorf("%q is %d bytes, want %d", value, got, want)
		}
	}
}

// The images of components that are switched off don't have to be set.
func TestParseConfigOfSwitchedOffComponents(t *testing.T) {
	for image, enabled := range map[string]string{KeyCSIImage: KeyCSIEnabled, KeyInspectorImage: KeyInspectorEnabled} {
		mustParse(t, map[string]string{image: "", enabled: "false"})
	}
}

func TestParseConfigAccepts(t *testing.T) {
	for _, c := range []struct{ key, value string }{
		{KeyConfirmTimeout, "0"},
		{KeyConfirmTimeout, "10s"},
		{KeyConfirmTimeout, "1h"},
		{KeyKubeletRoot, "/data/kubelet"},
		{KeyAgentHealthAddr, "127.0.0.1:1"},
		{KeyAgentHealthAddr, "[::1]:65535"},
		{KeyBytecodeStoreSize, "32Mi"},
		{KeyResources, "bpfman: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}"},
		{KeyResources, "bpfman: {requests: {cpu: 0}, limits: {hugepages-2Mi: 2Mi, example.com/device: 1}}"},
	} {
		if _, _, err := ParseConfig(minimal(map[string]string{c.key: c.value})); err != nil {
			t.Errorf("%s: %q: %v", c.key, c.value, err)
		}
	}
}

func TestParseConfigNamesEachBadKey(t *testing.T) {
	_, _, err := ParseConfig(minimal(map[string]string{KeyAgentLogLevel: "loud", KeyKubeletRoot: "kubelet"}))
	for _, key := range []string{KeyAgentLogLevel, KeyKubeletRoot} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v doesn't name %s", err, key)
		}
	}
}

func TestParseConfigReturnsUnknownKeys(t *testing.T) {
	_, unknown, err := ParseConfig(minimal(map[string]string{"bpfman.agnet.image": "x", "a": ""}))
	if err != nil || strings.Join(unknown, " ") != "a bpfman.agnet.image" {
		t.Errorf("got %q, error %v", unknown, err)
	}
}

func TestValuesOfUpstream(t *testing.T) {
	data := minimal(map[string]string{KeyDaemonImage: "registry.example.com/bpfman:v0.6.0", KeyDaemonLogLevel: "info", KeyAgentHealthAddr: ":9175"})
	for name, c := range map[string]struct {
		key, value string
		// why is part of the reason for which it isn't taken over. It is empty if nothing is reported.
		why   string
		taken bool
	}{
		"edited":                      {key: KeyDaemonLogLevel, value: "debug", taken: true},
		"edited, absent here":         {key: KeyAgentLogLevel, value: "trace", taken: true},
		"not edited":                  {key: KeyAgentLogLevel, value: "info"},
		"upstream's image":            {key: KeyDaemonImage, value: "quay.io/bpfman/bpfman:v0.5.6"},
		"the user's image":            {key: KeyDaemonImage, value: "registry.example.com/bpfman:v0.5.6", why: `this installation sets "registry.example.com/bpfman:v0.6.0"`},
		"the default of both":         {key: KeyAgentHealthAddr, value: ":8175"},
		"set by the installation":     {key: KeyAgentHealthAddr, value: ":7175", why: `this installation sets ":9175"`},
		"invalid":                     {key: KeyAgentLogLevel, value: "warn", why: `"warn" is not one of info, debug, trace`},
		"the port of another server":  {key: KeyAgentMetricsAddr, value: ":8173", why: "port 8173 is already used"},
		"unknown":                     {key: "bpfman.typo", value: "x", why: "the key is unknown"},
		"the daemon's file, as it is": {key: KeyDaemonTOML, value: "[database]\nmax_retries = 7\n", taken: true},
	} {
		taken, refused := mergeUpstreams(data, map[string]string{c.key: c.value})
		if value, is := taken[c.key]; is != c.taken || is && value != c.value {
			t.Errorf("%s: took over %q", name, taken)
		}
		if (len(refused) > 0) != (c.why != "") || c.why != "" && !strings.Contains(refused[0], c.key) || !strings.Contains(strings.Join(refused, ""), c.why) {
			t.Errorf("%s: refused %q", name, refused)
		}
	}
}

// A value of upstream's that can't be used doesn't keep the next ones from being taken over.
func TestValuesOfUpstreamAreIndependent(t *testing.T) {
	taken, refused := mergeUpstreams(minimal(nil), map[string]string{KeyAgentLogLevel: "loud", KeyCSILogLevel: "debug", KeyDaemonLogLevel: "debug"})
	if len(refused) != 1 || !strings.Contains(refused[0], KeyAgentLogLevel) || len(taken) != 2 {
		t.Errorf("took over %q, refused %q", taken, refused)
	}
}
