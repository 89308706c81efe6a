// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package configuration contains a valid and an invalid value for each key of the ConfigMap bpfman-config. Tests
// try them alone, with only an API server, and on a cluster.
package configuration

import "github.com/bpfman/bpfman-operator/operator/deploy"

// Values are what tests try with a key.
type Values struct {
	// Good is a valid value that isn't the default.
	Good string
	// Changes are the paths at which it changes the node pods, in alphabetical order.
	Changes []string
	// Process is the executable that it starts with Word, an argument or a variable. If the key has another effect, they
	// are empty, and tests/e2e checks that effect.
	Process, Word string
	// Refused is an invalid value, and Reason a part of the reason.
	Refused, Reason string
}

// Authority is a valid certificate for the key with registries' certificates. Its private key no longer
// exists.
const Authority = `-----BEGIN CERTIFICATE-----
MIIBljCCATugAwIBAgIUaNCubE2lXhFTP9031qnpNZFmaVgwCgYIKoZIzj0EAwIw
HzEdMBsGA1UEAwwUcmVnaXN0cnkuZXhhbXBsZS5jb20wIBcNMjYxMTIyMDAxNjM5
WhgPMjEyNjEwMjkwMDE2MzlaMB8xHTAbBgNVBAMMFHJlZ2lzdHJ5LmV4YW1wbGUu
Y29tMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE3FO6kQ5c5mfzJxaNMLJ2vZ2y
T1CKb/IgXJFlsyZ23vRW40F2vTPialoF/F9cYm9ZVNJsRaE9Cik8lVc/STFxT6NT
MFEwHQYDVR0OBBYEFDn+a7EIIPFQx7bk9gi9URw3EazYMB8GA1UdIwQYMBaAFDn+
a7EIIPFQx7bk9gi9URw3EazYMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwID
SQAwRgIhAONaWgjk3s4OLZG1Oy/MEw69a8/zTPL3X09K9Hnh+nPrAiEAk4PvnxoX
i2Zx3t0YB65kAzE9T7vDzTWEncxAHQQvNEk=
-----END CERTIFICATE-----
`

// Keys has the values of all keys.
var Keys = map[string]Values{
	deploy.KeyDaemonImage: {
		Good:    "quay.io/bpfman/bpfman:v2",
		Changes: []string{"containers[bpfman].image"},
		Refused: "Not An Image", Reason: "is not an image reference",
	},
	deploy.KeyAgentImage: {
		Good: "quay.io/bpfman/bpfman-agent:v2",
		Changes: []string{
			"containers[bpfman-agent].image",
			"initContainers[mount-bpffs].image",
		},
		Refused: "", Reason: "is required",
	},
	deploy.KeyCSIImage: {
		Good:    "quay.io/bpfman/bpfman-csi:v2",
		Changes: []string{"containers[bpfman-csi].image"},
		Refused: "quay.io/bpfman/bpfman-csi@sha256:12", Reason: "is not an image reference",
	},
	deploy.KeyCSIRegistrarImage: {
		Good:    "quay.io/other/registrar:v1",
		Changes: []string{"containers[node-driver-registrar].image"},
		Refused: "x:y:z", Reason: "is not an image reference",
	},
	deploy.KeyInspectorImage: {
		Good:    "quay.io/bpfman/bpfman-inspector:v2",
		Changes: []string{"containers[bpfman-inspector].image"},
		Refused: "x:y:z", Reason: "is not an image reference",
	},
	deploy.KeyImagePullPolicy: {
		Good: "Always",
		Changes: []string{
			"containers[bpfman-agent].imagePullPolicy",
			"containers[bpfman-csi].imagePullPolicy",
			"containers[bpfman-inspector].imagePullPolicy",
			"containers[bpfman].imagePullPolicy",
			"containers[node-driver-registrar].imagePullPolicy",
			"initContainers[mount-bpffs].imagePullPolicy",
		},
		Refused: "Sometimes", Reason: `"Sometimes" is not one of`,
	},
	deploy.KeyImagePullSecrets: {
		Good:    "one, two",
		Changes: []string{"+imagePullSecrets"},
		Refused: "one,Two", Reason: `"Two" is not a valid name`,
	},
	deploy.KeyNodeSelector: {
		Good:    "ebpf=true",
		Changes: []string{"+nodeSelector.ebpf"},
		Refused: "ebpf", Reason: "is not a list of key=value",
	},
	deploy.KeyTolerations: {
		Good:    "- {operator: Exists, effect: NoExecute}",
		Changes: []string{"+tolerations[map[effect:NoExecute operator:Exists]]"},
		Refused: "key: a", Reason: "is not a list of tolerations",
	},
	deploy.KeyResources: {
		Good: "bpfman: {limits: {memory: 1Gi}}",
		Changes: []string{
			"+containers[bpfman].resources.limits",
			"-containers[bpfman].resources.requests",
		},
		Refused: "agent: {}", Reason: `"agent" is not one of the containers`,
	},
	deploy.KeyKubeletRoot: {
		Good: "/data/kubelet",
		Changes: []string{
			"+containers[bpfman-csi].volumeMounts[/data/kubelet/pods]",
			"-containers[bpfman-csi].volumeMounts[/var/lib/kubelet/pods]",
			"containers[bpfman-csi].args[--kubelet-root]",
			"containers[bpfman-csi].args[--registration-path]",
			"containers[node-driver-registrar].args[--kubelet-registration-path]",
			"volumes[csi-plugin].hostPath.path",
			"volumes[csi-registration].hostPath.path",
			"volumes[kubelet-pods].hostPath.path",
		},
		Refused: "var/lib/kubelet", Reason: "is not an absolute path",
	},
	deploy.KeyDaemonTOML: {
		Good: "[signing]\nallow_unsigned = false\n",
		Changes: []string{
			"+containers[bpfman-agent].args[--require-policy]",
			"metadata.annotations.bpfman.io/bpfman.toml",
		},
		Refused: "[database]\nmax_retries = \"many\"\n", Reason: "the daemon can't use the value",
	},
	deploy.KeyDaemonLogLevel: {
		Good:    "bpfman=debug",
		Changes: []string{"containers[bpfman].env[RUST_LOG].value"},
		Process: "bpfman-rpc", Word: "RUST_LOG=bpfman=debug",
		Refused: "loud", Reason: `"loud" is not one of`,
	},
	deploy.KeyBytecodeStoreSize: {
		Good:    "1Gi",
		Changes: []string{"containers[bpfman-agent].args[--bytecode-dir-size]"},
		Process: "bpfman-agent", Word: "--bytecode-dir-size=1073741824",
		Refused: "31Mi", Reason: `"31Mi" is less than 32Mi`,
	},
	deploy.KeyRegistryCA: {
		Good: Authority,
		Changes: []string{
			"+containers[bpfman-agent].env[SSL_CERT_DIR]",
			"+containers[bpfman-agent].env[SSL_CERT_FILE]",
			"+containers[bpfman-agent].volumeMounts[/etc/bpfman-registry]",
			"+metadata.annotations.bpfman.io/registry-ca.crt",
			"+volumes[registry-ca]",
		},
		Refused: "/etc/ssl/ca.crt", Reason: "the value is not a list of certificates in PEM format",
	},
	deploy.KeyConfirmTimeout: {
		Good:    "45s",
		Changes: []string{"containers[bpfman-agent].args[--confirm-timeout]"},
		Process: "bpfman-agent", Word: "--confirm-timeout=45s",
		Refused: "5s", Reason: `must be 0, or from 10s to 1h`,
	},
	deploy.KeyUprobeNamespaces: {
		Good:    "acme, beta",
		Changes: []string{"+containers[bpfman-agent].args[--uprobe-namespaces]"},
		Process: "bpfman-agent", Word: "--uprobe-namespaces=acme,beta",
		Refused: "acme,*", Reason: `"*" is not a valid name`,
	},
	deploy.KeyPriorityReserved: {
		Good:    "50",
		Changes: []string{"containers[bpfman-agent].args[--reserved-priorities]"},
		Process: "bpfman-agent", Word: "--reserved-priorities=50",
		Refused: "1001", Reason: `"1001" is not a number from 0 to 1000`,
	},
	deploy.KeyPriorityEnforced: {
		Good:    "true",
		Changes: []string{"+containers[bpfman-agent].args[--enforce-priorities]"},
		Process: "bpfman-agent", Word: "--enforce-priorities",
		Refused: "enforce", Reason: `"enforce" is not one of true, false`,
	},
	deploy.KeyBeforeStart: {
		Good: "true",
		Changes: []string{
			"+containers[bpfman-agent].args[--nri-socket]",
			"+containers[bpfman-agent].volumeMounts[/host/nri]",
			"+volumes[host-nri]",
		},
		Process: "bpfman-agent", Word: "--nri-socket=/host/nri/nri.sock",
		Refused: "yes", Reason: `"yes" is not one of true, false`,
	},
	deploy.KeyAgentLogLevel: {
		Good: "debug",
		Changes: []string{
			"containers[bpfman-agent].env[GO_LOG].value",
			"initContainers[mount-bpffs].env[GO_LOG].value",
		},
		Process: "bpfman-agent", Word: "GO_LOG=debug",
		Refused: "loud", Reason: `"loud" is not one of info, debug, trace`,
	},
	deploy.KeyAgentHealthAddr: {
		Good: "127.0.0.1:9175",
		Changes: []string{
			"+containers[bpfman-agent].livenessProbe.httpGet.host",
			"+containers[bpfman-agent].readinessProbe.httpGet.host",
			"containers[bpfman-agent].args[--health-probe-bind-address]",
			"containers[bpfman-agent].livenessProbe.httpGet.port",
			"containers[bpfman-agent].readinessProbe.httpGet.port",
		},
		Refused: "9175", Reason: "is not host:port",
	},
	deploy.KeyAgentMetricsAddr: {
		Good: ":9174",
		Changes: []string{
			"containers[bpfman-agent].args[--metrics-bind-address]",
			"containers[bpfman-agent].ports[metrics].containerPort",
			"containers[bpfman-agent].ports[metrics].hostPort",
		},
		Refused: "localhost:8174", Reason: "is not an IP address",
	},
	deploy.KeyCSIEnabled: {
		Good: "false",
		Changes: []string{
			"-containers[bpfman-csi]",
			"-containers[node-driver-registrar]",
			"-volumes[csi-identity]",
			"-volumes[csi-plugin]",
			"-volumes[csi-registration]",
			"-volumes[kubelet-pods]",
		},
		Refused: "no", Reason: `"no" is not one of true, false`,
	},
	deploy.KeyCSIClusterAccess: {
		Good:    deploy.ClusterAccessRBAC,
		Changes: []string{"containers[bpfman-csi].args[--cluster-access]"},
		Refused: "nobody", Reason: `"nobody" is not one of all, read, rbac`,
	},
	deploy.KeyCSILogLevel: {
		Good:    "debug",
		Changes: []string{"containers[bpfman-csi].env[GO_LOG].value"},
		Process: "bpfman-csi", Word: "GO_LOG=debug",
		Refused: "DEBUG", Reason: `"DEBUG" is not one of`,
	},
	deploy.KeyCSIMetricsAddr: {
		Good: ":9173",
		Changes: []string{
			"-containers[bpfman-csi].readinessProbe.httpGet.host",
			"containers[bpfman-csi].args[--metrics-address]",
			"containers[bpfman-csi].ports[csi-metrics].containerPort",
			"containers[bpfman-csi].ports[csi-metrics].hostPort",
			"containers[bpfman-csi].readinessProbe.httpGet.port",
		},
		Refused: ":0", Reason: "not a number from 1 to 65535",
	},
	deploy.KeyCSISELinuxContext: {
		Good:    "system_u:object_r:container_file_t:s0",
		Changes: []string{"+containers[bpfman-csi].args[--selinux-context]"},
		Process: "bpfman-csi", Word: "--selinux-context=system_u:object_r:container_file_t:s0",
		Refused: "container_file_t", Reason: "is not an SELinux context",
	},
	deploy.KeyInspectorEnabled: {
		Good:    "false",
		Changes: []string{"-containers[bpfman-inspector]"},
		Refused: "yes", Reason: `"yes" is not one of true, false`,
	},
	deploy.KeyInspectorLogLevel: {
		Good:    "debug",
		Changes: []string{"containers[bpfman-inspector].env[GO_LOG].value"},
		Process: "bpfman-inspector", Word: "GO_LOG=debug",
		Refused: "warn", Reason: `"warn" is not one of`,
	},
	deploy.KeyInspectorMetricsAddr: {
		Good: ":9172",
		Changes: []string{
			"-containers[bpfman-inspector].livenessProbe.httpGet.host",
			"-containers[bpfman-inspector].readinessProbe.httpGet.host",
			"containers[bpfman-inspector].args[--metrics-bind-address]",
			"containers[bpfman-inspector].livenessProbe.httpGet.port",
			"containers[bpfman-inspector].ports[inspect-metrics].containerPort",
			"containers[bpfman-inspector].ports[inspect-metrics].hostPort",
			"containers[bpfman-inspector].readinessProbe.httpGet.port",
		},
		Refused: "8172", Reason: "is not host:port",
	},
	deploy.KeyInspectorStatistics: {
		Good:    "true",
		Changes: []string{"containers[bpfman-inspector].args[--statistics]"},
		Process: "bpfman-inspector", Word: "--statistics=true",
		Refused: "on", Reason: `"on" is not one of true, false`,
	},
}
