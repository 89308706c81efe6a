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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/distribution/reference"
	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The keys of the ConfigMap. Those of the daemon and the agent are upstream's.
const (
	KeyDaemonImage       = "bpfman.image"
	KeyDaemonLogLevel    = "bpfman.log.level"
	KeyDaemonTOML        = "bpfman.toml"
	KeyBytecodeStoreSize = "bpfman.bytecode.store.size"
	KeyConfirmTimeout    = "bpfman.agent.confirm.timeout"
	KeyUprobeNamespaces  = "bpfman.uprobe.namespaces"
	KeyPriorityReserved  = "bpfman.priority.reserved"
	KeyPriorityEnforced  = "bpfman.priority.enforced"
	KeyAgentImage        = "bpfman.agent.image"
	KeyAgentLogLevel     = "bpfman.agent.log.level"
	KeyAgentHealthAddr   = "bpfman.agent.healthprobe.addr"
	KeyAgentMetricsAddr  = "bpfman.agent.metric.addr"
	KeyCSIImage          = "bpfman.csi.image"
	KeyCSILogLevel       = "bpfman.csi.log.level"
	KeyCSIRegistrarImage = "bpfman.csi.registrar.image"
	KeyCSIClusterAccess  = "bpfman.csi.cluster.access"
	KeyCSIMetricsAddr    = "bpfman.csi.metric.addr"
	KeyCSISELinuxContext = "bpfman.csi.selinux.context"
	KeyKubeletRoot       = "bpfman.kubelet.root"
	KeyImagePullPolicy   = "bpfman.image.pull.policy"
	KeyImagePullSecrets  = "bpfman.image.pull.secrets" //nolint:gosec // the key names Secrets
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

// Which pods can mount the maps of cluster-scoped programs.
const (
	// ClusterAccessAll allows all pods.
	ClusterAccessAll = "all"
	// ClusterAccessRead allows all pods to read. To write, a pod's ServiceAccount needs the permission to `use`
	// the program.
	ClusterAccessRead = "read"
	// ClusterAccessRBAC allows pods whose ServiceAccount has the permission to `use` the program.
	ClusterAccessRBAC = "rbac"
)

// Config is the validated configuration of the node components from the ConfigMap, including defaults.
type Config struct {
	Daemon      DaemonConfig
	Agent       AgentConfig
	CSI         CSIConfig
	Inspector   InspectorConfig
	KubeletRoot string
	PullPolicy  corev1.PullPolicy
	// PullSecrets are the names of Secrets in the operator's namespace.
	PullSecrets []string
	// RegistryCA contains certificates in PEM that the agent trusts for registries of bytecode, instead of those in
	// its image. If it is empty, the agent uses those in its image.
	RegistryCA string
	// Proxy is the proxy for these registries. It isn't in the ConfigMap, but in the operator's environment.
	Proxy httpproxy.Config
	// NodeSelector restricts the nodes further. Without it, all Linux nodes are selected.
	NodeSelector map[string]string
	// Tolerations are added to those for control plane nodes.
	Tolerations []corev1.Toleration
	// Resources replace the default resources, by container.
	Resources map[string]corev1.ResourceRequirements
}

// The containers of the node components, as in daemonset.yaml.
var containerNames = []string{"mount-bpffs", DaemonContainer, AgentContainer, CSIContainer, "node-driver-registrar", InspectorContainer}

// DaemonConfig configures the bpfman daemon's container.
type DaemonConfig struct {
	Image string
	// LogLevel has the syntax of Rust's env_logger, such as "info" or "bpfman=debug".
	LogLevel string
	// TOML is the content of the daemon's own configuration file, in which the verification of signatures is off.
	TOML string
	// Signatures is what the user's file wants the daemon to do about signatures.
	Signatures Signatures
}

// AgentConfig configures the agent's container. The addresses are on the node, because the pod uses the host's
// network.
type AgentConfig struct {
	Image       string
	LogLevel    string
	HealthAddr  string
	MetricsAddr string
	// StoreSize is the maximum size of the node's bytecode store, in bytes.
	StoreSize int64
	// ConfirmTimeout is how long a node waits for the API server after a change of its network programs, before it rolls
	// the change back. "0" means that it never does.
	ConfirmTimeout string
	// UprobeNamespaces are the namespaces whose uprobes can run for processes of others, separated by commas, or
	// "*" for all.
	UprobeNamespaces string
	// ReservedPriorities is the number of priorities, from 0, that are reserved for cluster-scoped programs.
	ReservedPriorities int
	// EnforcePriorities detaches namespaced programs that have one of them.
	EnforcePriorities bool
}

// CSIConfig configures the CSI plugin's container, and its registration with the kubelet.
type CSIConfig struct {
	Image          string
	LogLevel       string
	RegistrarImage string
	ClusterAccess  string
	// MetricsAddr is on the node, because the pod uses the host's network. It also serves the readiness probe.
	MetricsAddr string
	// SELinuxContext is the label for volumes on nodes with SELinux. If it is empty, volumes have the default
	// label of a bpffs.
	SELinuxContext string
	// Disabled removes the plugin, its registration, and the CSIDriver.
	Disabled bool
}

// InspectorConfig configures the inspector's container.
type InspectorConfig struct {
	Image    string
	LogLevel string
	// MetricsAddr is on the node, because the pod uses the host's network. It also serves the probes.
	MetricsAddr string
	// Statistics enables the kernel's statistics about the runs of programs.
	Statistics bool
	// Disabled removes the inspector.
	Disabled bool
}

// KeyError describes an invalid value of one key of the ConfigMap.
type KeyError struct {
	Key    string
	Reason string
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Reason }

// setting describes one key of the ConfigMap: its default, and where its value goes. A key with required must have a
// value, unless the key with the name unless is false.
type setting struct {
	key      string
	fallback string
	required bool
	unless   string
	set      func(*Config, string) error
}

var settings = []setting{
	{key: KeyDaemonImage, required: true, set: func(c *Config, v string) error { c.Daemon.Image = v; return checkImage(v) }},
	{key: KeyDaemonLogLevel, fallback: "info", set: func(c *Config, v string) error { c.Daemon.LogLevel = v; return checkLogFilter(v) }},
	{key: KeyDaemonTOML, fallback: "[database]\nmax_retries = 30\nmillisec_delay = 10000\n", set: func(c *Config, v string) (err error) {
		c.Daemon.TOML, c.Daemon.Signatures, err = parseTOML(v)
		return err
	}},
	{key: KeyAgentImage, required: true, set: func(c *Config, v string) error { c.Agent.Image = v; return checkImage(v) }},
	{key: KeyAgentLogLevel, fallback: "info", set: func(c *Config, v string) error { c.Agent.LogLevel = v; return checkLogLevel(v) }},
	{key: KeyAgentHealthAddr, fallback: ":8175", set: func(c *Config, v string) error { c.Agent.HealthAddr = v; return checkAddr(v) }},
	{key: KeyAgentMetricsAddr, fallback: "127.0.0.1:8174", set: func(c *Config, v string) error { c.Agent.MetricsAddr = v; return checkAddr(v) }},
	{key: KeyBytecodeStoreSize, fallback: "256Mi", set: func(c *Config, v string) (err error) { c.Agent.StoreSize, err = parseStoreSize(v); return err }},
	{key: KeyConfirmTimeout, fallback: "30s", set: func(c *Config, v string) error { c.Agent.ConfirmTimeout = v; return checkTimeout(v) }},
	{key: KeyUprobeNamespaces, set: func(c *Config, v string) (err error) { c.Agent.UprobeNamespaces, err = parseNamespaces(v); return err }},
	{key: KeyPriorityReserved, fallback: "100", set: func(c *Config, v string) (err error) {
		c.Agent.ReservedPriorities, err = parsePriorities(v)
		return err
	}},
	{key: KeyPriorityEnforced, fallback: "false", set: func(c *Config, v string) error {
		c.Agent.EnforcePriorities = v == "true"
		return checkOneOf(v, "true", "false")
	}},
	{key: KeyCSIImage, required: true, unless: KeyCSIEnabled, set: func(c *Config, v string) error { c.CSI.Image = v; return checkImage(v) }},
	{key: KeyCSILogLevel, fallback: "info", set: func(c *Config, v string) error { c.CSI.LogLevel = v; return checkLogLevel(v) }},
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
	{key: KeyInspectorImage, required: true, unless: KeyInspectorEnabled, set: func(c *Config, v string) error { c.Inspector.Image = v; return checkImage(v) }},
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

// Keys returns all keys that the ConfigMap can have.
func Keys() []string {
	keys := make([]string, 0, len(settings))
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

// ParseConfig parses the data of the ConfigMap. If a value is absent or empty, the key's default applies. The
// error joins one KeyError for each invalid value. unknown contains unknown keys, which are probably misspelled.
func ParseConfig(data map[string]string) (config Config, unknown []string, err error) {
	rest := maps.Clone(data)
	var errs []error
	for _, s := range settings {
		value := strings.TrimSpace(data[s.key])
		delete(rest, s.key)
		if value == "" {
			value = s.fallback
		}
		if value == "" && s.required && strings.TrimSpace(data[s.unless]) != "false" {
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

// Server is a server of a container, at a port of the node.
type Server struct {
	Container string
	// Key is the key of the ConfigMap with the server's address.
	Key  string
	Port string
}

// Servers returns the servers of the node components. The first one of each container also answers the kubelet's probes.
func (c Config) Servers() []Server {
	return []Server{
		{AgentContainer, KeyAgentHealthAddr, portOf(c.Agent.HealthAddr)},
		{AgentContainer, KeyAgentMetricsAddr, portOf(c.Agent.MetricsAddr)},
		{CSIContainer, KeyCSIMetricsAddr, portOf(c.CSI.MetricsAddr)},
		{InspectorContainer, KeyInspectorMetricsAddr, portOf(c.Inspector.MetricsAddr)},
	}
}

// checkPorts rejects the same port for two servers. On the host's network, the second one would fail to start.
func (c Config) checkPorts() error {
	taken := map[string]string{}
	for _, server := range c.Servers() {
		if other, ok := taken[server.Port]; ok {
			return &KeyError{server.Key, fmt.Sprintf("port %s is already used by %s", server.Port, other)}
		}
		taken[server.Port] = server.Key
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

// checkLogFilter accepts the syntax of Rust's env_logger: level or module=level, separated by commas, with an
// optional regular expression after a slash. It only rejects a word that isn't a level, because env_logger
// interprets it as a module, and the daemon would log nothing.
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

// checkSELinuxContext accepts user:role:type, with an optional level. Only the node knows whether the type exists.
func checkSELinuxContext(v string) error {
	if v == "" {
		return nil
	}
	parts := strings.SplitN(v, ":", 4)
	if len(parts) < 3 || slices.Contains(parts, "") || strings.Contains(v, " ") || !printable(v) {
		return fmt.Errorf("%q is not an SELinux context such as system_u:object_r:container_file_t:s0", v)
	}
	return nil
}

// printable reports whether YAML and a terminal can show each character. Of spaces it accepts only U+0020.
func printable(v string) bool {
	return utf8.ValidString(v) && !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
}

// checkTimeout accepts 0, and times in which a node can ask the API server several times.
func checkTimeout(v string) error {
	const least, most = 10 * time.Second, time.Hour
	if d, err := time.ParseDuration(v); err != nil || d != 0 && (d < least || d > most) {
		return fmt.Errorf("%q must be 0, or from 10s to 1h", v)
	}
	return nil
}

// parsePriorities leaves at least one of the priorities from 0 to 1000 to namespaced programs.
func parsePriorities(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > 1000 {
		return 0, fmt.Errorf("%q is not a number from 0 to 1000", v)
	}
	return n, nil
}

func checkAddr(v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%q is not host:port or :port", v)
	}
	// strconv also accepts "+80" and "080", which YAML doesn't read as 80.
	if n, err := strconv.Atoi(port); err != nil || strconv.Itoa(n) != port || n < 1 || n > 65535 {
		return fmt.Errorf("%q: the port is not a number from 1 to 65535", v)
	}
	if host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q: the host is not an IP address", v)
	}
	return nil
}

// checkRoot accepts absolute paths in their shortest form, because mount points are compared as text. It rejects
// the root directory, which would share every mount of the node.
func checkRoot(v string) error {
	if !path.IsAbs(v) || path.Clean(v) != v || v == "/" || strings.Contains(v, ":") || !printable(v) {
		return fmt.Errorf("%q is not an absolute path such as /var/lib/kubelet", v)
	}
	return nil
}

// minStoreSize is enough for a few objects of the maximum size that the agent accepts.
var minStoreSize = resource.MustParse("32Mi")

func parseStoreSize(v string) (int64, error) {
	size, err := resource.ParseQuantity(v)
	if err != nil {
		return 0, fmt.Errorf("%q is not a quantity such as 256Mi", v)
	}
	if size.Cmp(minStoreSize) < 0 {
		return 0, fmt.Errorf("%q is less than %s", v, minStoreSize.String())
	}
	return size.Value(), nil
}

// Limits, in bytes, for texts in annotations. All annotations of an object together can have 256 KiB.
const (
	maxTOML         = 64 << 10
	maxCertificates = 128 << 10
)

// checkCertificates accepts only certificates in PEM. A private key would otherwise end up in an annotation.
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
