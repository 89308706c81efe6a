// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package configuration contains an invalid value for each key of the ConfigMap bpfman-config. Tests
// try them with only an API server, and on a cluster.
package configuration

import "github.com/bpfman/bpfman-operator/operator/deploy"

// Bad is a value that the operator refuses, and a part of the reason.
type Bad struct{ Value, Reason string }

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

// Refused contains invalid values for all keys.
var Refused = map[string]Bad{
	deploy.KeyDaemonImage:          {"Not An Image", "is not an image reference"},
	deploy.KeyDaemonLogLevel:       {"loud", `"loud" is not one of`},
	deploy.KeyDaemonTOML:           {"[database]\nmax_retries = \"many\"\n", "the daemon can't use the value"},
	deploy.KeyAgentImage:           {"", "is required"},
	deploy.KeyAgentLogLevel:        {"loud", `"loud" is not one of info, debug, trace`},
	deploy.KeyAgentHealthAddr:      {"9175", "is not host:port"},
	deploy.KeyAgentMetricsAddr:     {"localhost:8174", "is not an IP address"},
	deploy.KeyBytecodeStoreSize:    {"31Mi", `"31Mi" is less than 32Mi`},
	deploy.KeyConfirmTimeout:       {"5s", `must be 0, or from 10s to 1h`},
	deploy.KeyUprobeNamespaces:     {"acme,*", `"*" is not a valid name`},
	deploy.KeyPriorityReserved:     {"1001", `"1001" is not a number from 0 to 1000`},
	deploy.KeyPriorityEnforced:     {"enforce", `"enforce" is not one of true, false`},
	deploy.KeyCSIImage:             {"quay.io/bpfman/bpfman-csi@sha256:12", "is not an image reference"},
	deploy.KeyCSILogLevel:          {"DEBUG", `"DEBUG" is not one of`},
	deploy.KeyCSIRegistrarImage:    {"x:y:z", "is not an image reference"},
	deploy.KeyCSIClusterAccess:     {"nobody", `"nobody" is not one of all, read, rbac`},
	deploy.KeyCSIMetricsAddr:       {":0", "not a number from 1 to 65535"},
	deploy.KeyCSISELinuxContext:    {"container_file_t", "is not an SELinux context"},
	deploy.KeyKubeletRoot:          {"var/lib/kubelet", "is not an absolute path"},
	deploy.KeyImagePullPolicy:      {"Sometimes", `"Sometimes" is not one of`},
	deploy.KeyImagePullSecrets:     {"one,Two", `"Two" is not a valid name`},
	deploy.KeyCSIEnabled:           {"no", `"no" is not one of true, false`},
	deploy.KeyInspectorEnabled:     {"yes", `"yes" is not one of true, false`},
	deploy.KeyInspectorImage:       {"x:y:z", "is not an image reference"},
	deploy.KeyInspectorLogLevel:    {"warn", `"warn" is not one of`},
	deploy.KeyInspectorMetricsAddr: {"8172", "is not host:port"},
	deploy.KeyInspectorStatistics:  {"on", `"on" is not one of true, false`},
	deploy.KeyNodeSelector:         {"ebpf", "is not a list of key=value"},
	deploy.KeyTolerations:          {"key: a", "is not a list of tolerations"},
	deploy.KeyRegistryCA:           {"/etc/ssl/ca.crt", "the value is not a list of certificates in PEM format"},
	deploy.KeyResources:            {"agent: {}", `"agent" is not one of the containers`},
}
