// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// Keys of the ConfigMap. The daemon's and the agent's are upstream's.
const (
	KeyDaemonImage       = "bpfman.image"
	KeyDaemonLogLevel    = "bpfman.log.level"
	KeyDaemonTOML        = "bpfman.toml"
	KeyAgentImage        = "bpfman.agent.image"
	KeyAgentLogLevel     = "bpfman.agent.log.level"
	KeyAgentHealthAddr   = "bpfman.agent.healthprobe.addr"
	KeyAgentMetricsAddr  = "bpfman.agent.metric.addr"
	KeyCSIImage          = "bpfman.csi.image"
	KeyCSILogLevel       = "bpfman.csi.log.level"
	KeyCSIRegistration   = "bpfman.csi.registration"
	KeyCSIRegistrarImage = "bpfman.csi.registrar.image"
	KeyCSIClusterAccess  = "bpfman.csi.cluster.access"
	KeyCSIMetricsAddr    = "bpfman.csi.metric.addr"
	KeyCSISELinuxContext = "bpfman.csi.selinux.context"
	KeyKubeletRoot       = "bpfman.kubelet.root"
	KeyImagePullPolicy   = "bpfman.image.pull.policy"
	KeyImagePullSecrets  = "bpfman.image.pull.secrets" //nolint:gosec // a key that names Secrets
	KeyCSIEnabled        = "bpfman.csi.enabled"
	KeyNodeSelector      = "bpfman.node.selector"
	KeyTolerations       = "bpfman.tolerations"
	KeyResources         = "bpfman.resources"
	KeyRegistryCA        = "bpfman.registry.ca"

	KeyInspectorEnabled     = "bpfman.inspector.enabled"
	KeyInspectorImage       = "bpfman.inspector.image"
	KeyInspectorLogLevel    = "bpfman.inspector.log.level"
	KeyInspectorMetricsAddr = "bpfman.inspector.metric.addr"
	KeyInspectorStatistics  = "bpfman.inspector.statistics"
)

// Ways for the CSI plugin to become known to the kubelet.
const (
	// RegistrationSidecar runs node-driver-registrar beside the plugin.
	RegistrationSidecar = "sidecar"
	// RegistrationSelf has the plugin serve the kubelet's registration socket itself.
	RegistrationSelf = "self"
)

// Who may mount the maps of cluster-scoped programs.
const (
	// ClusterAccessAll lets every pod.
	ClusterAccessAll = "all"
	// ClusterAccessRead lets every pod read, and those write whose ServiceAccount may
	// `use` the program.
	ClusterAccessRead = "read"
	// ClusterAccessRBAC lets the pods whose ServiceAccount may `use` the program.
	ClusterAccessRBAC = "rbac"
)

// Config is what the ConfigMap says about the node components, complete and valid.
type Config struct {
	Daemon      DaemonConfig
	Agent       AgentConfig
	CSI         CSIConfig
	Inspector   InspectorConfig
	KubeletRoot string
	PullPolicy  corev1.PullPolicy
	// PullSecrets are names of Secrets in the operator's namespace.
	PullSecrets []string
	// RegistryCA are certificates in PEM that daemon and agent trust in registries of bytecode, in place of those in their
	// images; empty leaves them these.
	RegistryCA string
	// NodeSelector narrows the nodes, which are Linux ones in any case.
	NodeSelector map[string]string
	// Tolerations are beside those for nodes of the control plane.
	Tolerations []corev1.Toleration
	// Resources by container replace the default ones.
	Resources map[string]corev1.ResourceRequirements
}

// Containers of the node components, as in daemonset.yaml.
var containerNames = []string{"mount-bpffs", "bpfman", "bpfman-agent", "bpfman-csi", "node-driver-registrar", InspectorContainer}

// DaemonConfig configures the bpfman daemon's container.
type DaemonConfig struct {
	Image string
	// LogLevel is in the syntax of Rust's env_logger, e.g. "info" or "bpfman=debug".
	LogLevel string
	// TOML is the text of the daemon's own configuration file.
	TOML string
}

// AgentConfig configures the agent's container. The addresses are the node's, as the pod is in the host's network.
type AgentConfig struct {
	Image       string
	LogLevel    string
	HealthAddr  string
	MetricsAddr string
}

// CSIConfig configures the CSI plugin's container and how the kubelet learns of it.
type CSIConfig struct {
	Image          string
	LogLevel       string
	Registration   string
	RegistrarImage string
	ClusterAccess  string
	// MetricsAddr is the node's, as the pod is in the host's network.
	MetricsAddr string
	// SELinuxContext labels volumes on nodes that have SELinux; empty leaves them the
	// label of every bpffs.
	SELinuxContext string
	// Disabled leaves the plugin, its registration and the CSIDriver out.
	Disabled bool
}

// InspectorConfig configures the inspector's container.
type InspectorConfig struct {
	Image    string
	LogLevel string
	// MetricsAddr is the node's, as the pod is in the host's network. The probes are served there too.
	MetricsAddr string
	// Statistics has the kernel count the runs of programs, and measure them.
	Statistics bool
	// Disabled leaves the inspector out.
	Disabled bool
}

// KeyError says what is wrong with the value of one key of the ConfigMap.
type KeyError struct {
	Key    string
	Reason string
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Reason }

// setting is one key of the ConfigMap: its default ("": there is none, which is an error with required), and where a
// value goes.
type setting struct {
	key      string
	fallback string
	required bool
	set      func(*Config, string) error
}

var settings = []setting{
	{key: KeyDaemonImage, required: true, set: func(c *Config, v string) error { c.Daemon.Image = v; return checkImage(v) }},
	{key: KeyDaemonLogLevel, fallback: "info", set: func(c *Config, v string) error { c.Daemon.LogLevel = v; return checkLogFilter(v) }},
	{key: KeyDaemonTOML, fallback: "[database]\nmax_retries = 30\nmillisec_delay = 10000\n", set: func(c *Config, v string) error { c.Daemon.TOML = v; return checkTOML(v) }},
	{key: KeyAgentImage, required: true, set: func(c *Config, v string) error { c.Agent.Image = v; return checkImage(v) }},
	{key: KeyAgentLogLevel, fallback: "info", set: func(c *Config, v string) error { c.Agent.LogLevel = v; return checkLogLevel(v) }},
	{key: KeyAgentHealthAddr, fallback: ":8175", set: func(c *Config, v string) error { c.Agent.HealthAddr = v; return checkAddr(v) }},
	{key: KeyAgentMetricsAddr, fallback: "127.0.0.1:8174", set: func(c *Config, v string) error { c.Agent.MetricsAddr = v; return checkAddr(v) }},
	{key: KeyCSIImage, fallback: "quay.io/bpfman/bpfman-csi:latest", set: func(c *Config, v string) error { c.CSI.Image = v; return checkImage(v) }},
	{key: KeyCSILogLevel, fallback: "info", set: func(c *Config, v string) error { c.CSI.LogLevel = v; return checkLogLevel(v) }},
	{key: KeyCSIRegistration, fallback: RegistrationSidecar, set: func(c *Config, v string) error {
		c.CSI.Registration = v
		return checkOneOf(v, RegistrationSidecar, RegistrationSelf)
	}},
	{key: KeyCSIRegistrarImage, fallback: "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0", set: func(c *Config, v string) error { c.CSI.RegistrarImage = v; return checkImage(v) }},
	{key: KeyCSIClusterAccess, fallback: ClusterAccessAll, set: func(c *Config, v string) error {
		c.CSI.ClusterAccess = v
		return checkOneOf(v, ClusterAccessAll, ClusterAccessRead, ClusterAccessRBAC)
	}},
	{key: KeyCSIMetricsAddr, fallback: "127.0.0.1:8173", set: func(c *Config, v string) error { c.CSI.MetricsAddr = v; return checkAddr(v) }},
	{key: KeyCSISELinuxContext, set: func(c *Config, v string) error { c.CSI.SELinuxContext = v; return checkSELinuxContext(v) }},
	{key: KeyInspectorEnabled, fallback: "true", set: func(c *Config, v string) error {
		c.Inspector.Disabled = v == "false"
		return checkOneOf(v, "true", "false")
	}},
	{key: KeyInspectorImage, fallback: "quay.io/bpfman/bpfman-inspector:latest", set: func(c *Config, v string) error { c.Inspector.Image = v; return checkImage(v) }},
	{key: KeyInspectorLogLevel, fallback: "info", set: func(c *Config, v string) error { c.Inspector.LogLevel = v; return checkLogLevel(v) }},
	{key: KeyInspectorMetricsAddr, fallback: "127.0.0.1:8172", set: func(c *Config, v string) error { c.Inspector.MetricsAddr = v; return checkAddr(v) }},
	{key: KeyInspectorStatistics, fallback: "false", set: func(c *Config, v string) error {
		c.Inspector.Statistics = v == "true"
		return checkOneOf(v, "true", "false")
	}},
	{key: KeyKubeletRoot, fallback: "/var/lib/kubelet", set: func(c *Config, v string) error { c.KubeletRoot = v; return checkRoot(v) }},
	{key: KeyImagePullPolicy, fallback: string(corev1.PullIfNotPresent), set: func(c *Config, v string) error {
		c.PullPolicy = corev1.PullPolicy(v)
		return checkOneOf(v, string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
	}},
	{key: KeyImagePullSecrets, set: func(c *Config, v string) (err error) { c.PullSecrets, err = parseNames(v); return err }},
	{key: KeyRegistryCA, set: func(c *Config, v string) error { c.RegistryCA = v + "\n"; return checkCertificates(v) }},
	{key: KeyCSIEnabled, fallback: "true", set: func(c *Config, v string) error { c.CSI.Disabled = v == "false"; return checkOneOf(v, "true", "false") }},
	{key: KeyNodeSelector, set: func(c *Config, v string) (err error) { c.NodeSelector, err = parseLabels(v); return err }},
	{key: KeyTolerations, set: func(c *Config, v string) (err error) { c.Tolerations, err = parseTolerations(v); return err }},
	{key: KeyResources, set: func(c *Config, v string) (err error) { c.Resources, err = parseResources(v); return err }},
}

// Keys are all that the ConfigMap can have.
func Keys() []string {
	keys := make([]string, 0, len(settings))
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

// ParseConfig reads the ConfigMap's data. An absent or empty value means the key's default. The error joins one
// KeyError for each bad value. Keys that mean nothing are returned apart: most likely they are misspelt.
func ParseConfig(data map[string]string) (config Config, unknown []string, err error) {
	rest := maps.Clone(data)
	var errs []error
	for _, s := range settings {
		value := data[s.key]
		delete(rest, s.key)
		// The file keeps its white space: it is shown to users as they wrote it.
		if s.key != KeyDaemonTOML {
			value = strings.TrimSpace(value)
		}
		if value == "" {
			value = s.fallback
		}
		if value == "" && s.required {
			errs = append(errs, &KeyError{s.key, "a value is required"})
			continue
		}
		if value == "" {
			continue
		}
		if err := s.set(&config, value); err != nil {
			errs = append(errs, &KeyError{s.key, err.Error()})
		}
	}
	if len(errs) == 0 {
		errs = append(errs, config.checkPorts())
	}
	return config, slices.Sorted(maps.Keys(rest)), errors.Join(errs...)
}

// checkPorts refuses one port for two servers: on the host's network the second would crash-loop.
func (c Config) checkPorts() error {
	taken := map[string]string{}
	for _, server := range []struct{ key, addr string }{
		{KeyAgentHealthAddr, c.Agent.HealthAddr},
		{KeyAgentMetricsAddr, c.Agent.MetricsAddr},
		{KeyCSIMetricsAddr, c.CSI.MetricsAddr},
		{KeyInspectorMetricsAddr, c.Inspector.MetricsAddr},
	} {
		_, port, _ := net.SplitHostPort(server.addr)
		if other, ok := taken[port]; ok {
			return &KeyError{server.key, fmt.Sprintf("port %s is already used by %s", port, other)}
		}
		taken[port] = server.key
	}
	return nil
}

func checkImage(v string) error {
	if _, err := reference.ParseNormalizedNamed(v); err != nil {
		return fmt.Errorf("%q is not an image reference: %w", v, err)
	}
	return nil
}

func checkLogLevel(v string) error { return checkOneOf(v, "info", "debug", "trace") }

func checkOneOf(v string, allowed ...string) error {
	if !slices.Contains(allowed, v) {
		return fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", "))
	}
	return nil
}

// checkLogFilter takes what Rust's env_logger does, as level or module=level, separated by commas, with or without a
// regular expression after a slash. Only a word that is no level is refused: env_logger takes it for a module, and the
// daemon would log nothing at all.
func checkLogFilter(v string) error {
	if i := strings.IndexFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("%q contains a control character", v)
	}
	directives, _, _ := strings.Cut(v, "/")
	for directive := range strings.SplitSeq(directives, ",") {
		level := directive[strings.LastIndex(directive, "=")+1:]
		if err := checkOneOf(strings.ToLower(strings.TrimSpace(level)), "error", "warn", "info", "debug", "trace", "off", ""); err != nil {
			return fmt.Errorf("%q: %w", v, err)
		}
	}
	return nil
}

// checkSELinuxContext takes user:role:type, with or without a level; whether there is such a type, the node knows.
func checkSELinuxContext(v string) error {
	if v == "" {
		return nil
	}
	parts := strings.SplitN(v, ":", 4)
	if len(parts) < 3 || slices.Contains(parts, "") || strings.ContainsFunc(v, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%q is not an SELinux context such as system_u:object_r:container_file_t:s0", v)
	}
	return nil
}

func checkAddr(v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not host:port or :port", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: the port is not a number from 1 to 65535", v)
	}
	if host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q: the host is not an IP address", v)
	}
	return nil
}

// checkRoot takes absolute paths in their shortest form, as mount points are compared as text. The root itself would
// share every mount of the node.
func checkRoot(v string) error {
	if !path.IsAbs(v) || path.Clean(v) != v || v == "/" || strings.ContainsAny(v, ":\x00") {
		return fmt.Errorf("%q is not an absolute path such as /var/lib/kubelet", v)
	}
	return nil
}

// These bound texts that travel in annotations, of which an object may have 256 KiB together.
const (
	maxTOML         = 64 << 10
	maxCertificates = 128 << 10
)

// checkCertificates takes certificates in PEM and nothing else: a private key that slipped in would be in an annotation.
func checkCertificates(v string) error {
	if len(v) > maxCertificates {
		return fmt.Errorf("the value has %d bytes, but the limit is %d", len(v), maxCertificates)
	}
	for rest := []byte(v); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		before := rest
		block, rest = pem.Decode(rest)
		if block == nil {
			return errors.New("the value is not a list of certificates in PEM format")
		}
		if block.Type != "CERTIFICATE" || !bytes.HasPrefix(bytes.TrimSpace(before), []byte("-----BEGIN CERTIFICATE-----")) {
			return errors.New("the value contains something other than certificates in PEM format")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("the value contains an invalid certificate: %w", err)
		}
	}
	return nil
}

// daemonFile is what the daemon knows of in its file. Where one of these values is of another type it takes its defaults
// for all of them, and says so in its log alone.
type daemonFile struct {
	Interfaces map[string]struct {
		XDPMode string `toml:"xdp_mode"`
	} `toml:"interfaces"`
	Signing struct {
		AllowUnsigned bool `toml:"allow_unsigned"`
		VerifyEnabled bool `toml:"verify_enabled"`
	} `toml:"signing"`
	Database struct {
		MaxRetries    uint32 `toml:"max_retries"`
		MillisecDelay uint32 `toml:"millisec_delay"` // 49 days are enough
	} `toml:"database"`
}

func checkTOML(v string) error {
	if _, err := toml.Decode(v, new(map[string]any)); err != nil {
		return fmt.Errorf("the value is not valid TOML: %w", err)
	}
	var file daemonFile
	if _, err := toml.Decode(v, &file); err != nil {
		return fmt.Errorf("the daemon can't use the value: %w", err)
	}
	for name, i := range file.Interfaces {
		if err := checkOneOf(i.XDPMode, "skb", "drv", "hw"); err != nil {
			return fmt.Errorf("xdp_mode of interface %s: %w", name, err)
		}
	}
	if len(v) > maxTOML {
		return fmt.Errorf("the value has %d bytes, but the limit is %d", len(v), maxTOML)
	}
	return nil
}
