// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"
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
	KeyBeforeStart       = "bpfman.agent.beforestart.enabled"
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

// ContainerNames are the containers of the node components, as in daemonset.yaml.
var ContainerNames = []string{"mount-bpffs", DaemonContainer, AgentContainer, CSIContainer, "node-driver-registrar", InspectorContainer}

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

// LogLevelOfAll returns the level of all modules, or "info". The daemon in Go has other modules, and doesn't start with a word
// that it doesn't know.
func (c DaemonConfig) LogLevelOfAll() string {
	directives, _, _ := strings.Cut(c.LogLevel, "/")
	level := "info"
	for directive := range strings.SplitSeq(directives, ",") {
		switch word := strings.ToLower(strings.TrimSpace(directive)); {
		case word == "off":
			level = "error"
		case word != "" && !strings.Contains(word, "="):
			level = word
		}
	}
	return level
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
	// BeforeStart makes the agent a plugin of the container runtime, so that it can attach programs before containers start.
	BeforeStart bool
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

// Key is a key of the ConfigMap. From the table of keys, hack/keys writes the ConfigMap, the chart's values, and the
// documentation.
type Key struct {
	Name string
	// Section is the heading of docs/configuration.md under which the key is.
	Section string
	// Value is the path of the chart's value, such as agent.confirmTimeout. The section exists in the chart.
	Value string
	// Form is the form that the value has in the chart. In the ConfigMap, each one is text.
	Form Form
	// Default applies if the value is empty.
	Default string
	// Required means that there is no default, unless the key with the name Unless is false.
	Required bool
	Unless   string
	// Initial is the value of a required key in manifests.
	Initial string
	// Values are all values that are allowed. If it is empty, set checks the value.
	Values []string
	// Description is in Markdown, with links from docs/configuration.md.
	Description string
	// set checks a value that isn't empty, and writes it to the configuration.
	set func(*Config, string) error
}

// Form is the form of a value in the chart.
type Form int

// The forms of values. Lists and objects are empty by default.
const (
	Text Form = iota
	Boolean
	// Number is a number from 0 to MaxPriority.
	Number
	// Path is an absolute path.
	Path
	// Address is a port of the node, with or without an IP address.
	Address
	// MetricsAddress is one at which Prometheus reads metrics, if the chart's monitoring is enabled.
	MetricsAddress
	// Names is a list of names.
	Names
	// Labels is an object with texts.
	Labels
	// Tolerations is a list of objects.
	Tolerations
	// Resources is an object for each container.
	Resources
)

var logLevels = []string{"info", "debug", "trace"}

// allowed returns all values that are allowed, or nil if set checks the value.
func (k Key) allowed() []string {
	if k.Form == Boolean {
		return []string{"true", "false"}
	}
	return k.Values
}

// Keys returns all keys that the ConfigMap can have, in the order of the documentation.
func Keys() []Key { return slices.Clone(keys) }

var keys = []Key{
	{
		Name: KeyDaemonImage, Section: "Images", Value: "images.daemon", Required: true, Initial: "quay.io/bpfman/bpfman:v0.6.0",
		Description: "image of the daemon, v0.6: see [supported daemons](#supported-daemons)",
		set:         func(c *Config, v string) error { c.Daemon.Image = v; return checkImage(v) },
	},
	{
		Name: KeyAgentImage, Section: "Images", Value: "images.agent", Required: true, Initial: "quay.io/bpfman/bpfman-agent:latest",
		Description: "image of the agent, and of the init container",
		set:         func(c *Config, v string) error { c.Agent.Image = v; return checkImage(v) },
	},
	{
		Name: KeyCSIImage, Section: "Images", Value: "images.csi", Required: true, Unless: KeyCSIEnabled, Initial: "quay.io/bpfman/bpfman-csi:latest",
		Description: "image of the CSI plugin",
		set:         func(c *Config, v string) error { c.CSI.Image = v; return checkImage(v) },
	},
	{
		Name: KeyCSIRegistrarImage, Section: "Images", Value: "images.registrar", Default: "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0",
		Description: "image of node-driver-registrar",
		set:         func(c *Config, v string) error { c.CSI.RegistrarImage = v; return checkImage(v) },
	},
	{
		Name: KeyInspectorImage, Section: "Images", Value: "images.inspector", Required: true, Unless: KeyInspectorEnabled, Initial: "quay.io/bpfman/bpfman-inspector:latest",
		Description: "image of the inspector",
		set:         func(c *Config, v string) error { c.Inspector.Image = v; return checkImage(v) },
	},
	{
		Name: KeyImagePullPolicy, Section: "Images", Value: "images.pullPolicy", Default: string(corev1.PullIfNotPresent), Values: []string{string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)},
		Description: "pull policy for all of these images: `Always`, `IfNotPresent`, or `Never`",
		set:         func(c *Config, v string) error { c.PullPolicy = corev1.PullPolicy(v); return nil },
	},
	{
		Name: KeyImagePullSecrets, Section: "Images", Value: "images.pullSecrets", Form: Names,
		Description: "names of pull Secrets in the namespace `bpfman`, separated by commas, for the images of the node pods",
		set:         func(c *Config, v string) (err error) { c.PullSecrets, err = parseNames(v); return err },
	},
	{
		Name: KeyNodeSelector, Section: "Node pods", Value: "nodes.nodeSelector", Form: Labels,
		Description: "which Linux nodes to run on: labels as `key=value`, separated by commas. Before a node leaves, see [Remove nodes](#remove-nodes)",
		set:         func(c *Config, v string) (err error) { c.NodeSelector, err = parseLabels(v); return err },
	},
	{
		Name: KeyTolerations, Section: "Node pods", Value: "nodes.tolerations", Form: Tolerations,
		Description: "additional tolerations, as a list in YAML or JSON, as in a pod. The pods always tolerate the taints of control plane nodes. Before you remove one, see [Remove nodes](#remove-nodes).",
		set:         func(c *Config, v string) (err error) { c.Tolerations, err = parseTolerations(v); return err },
	},
	{
		Name: KeyResources, Section: "Node pods", Value: "nodes.resources", Form: Resources,
		Description: "requests and limits by container, instead of the defaults: `bpfman-agent: {limits: {memory: 100Mi}}`. For limits of `bpfman`, see [Memory limits](#memory-limits). Containers: `mount-bpffs`, `bpfman`, `bpfman-agent`, `bpfman-csi`, `node-driver-registrar`, `bpfman-inspector`",
		set:         func(c *Config, v string) (err error) { c.Resources, err = parseResources(v); return err },
	},
	{
		Name: KeyKubeletRoot, Section: "Node pods", Value: "kubeletRoot", Form: Path, Default: "/var/lib/kubelet",
		Description: "the kubelet's `--root-dir`",
		set:         func(c *Config, v string) error { c.KubeletRoot = v; return checkRoot(v) },
	},
	{
		Name: KeyDaemonTOML, Section: "Daemon", Value: "daemonConfig", Default: "[database]\nmax_retries = 30\nmillisec_delay = 10000\n",
		Description: "the daemon's configuration file, at most 64 KiB. Values of the wrong type are refused, because the daemon would ignore the whole file. In the table `[signing]`, the operator always [turns verification off](#signatures-in-bpfmantoml): for signatures, write a BytecodePolicy.",
		set: func(c *Config, v string) (err error) {
			c.Daemon.TOML, c.Daemon.Signatures, err = parseTOML(v)
			return err
		},
	},
	{
		Name: KeyDaemonLogLevel, Section: "Daemon", Value: "logLevels.daemon", Default: "info",
		Description: "log level of the daemon, in the syntax of Rust's env_logger: `info`, `bpfman=debug`. A single word must be a level. To name a module, add its level, as in `bpfman=trace`. The [daemon in Go](#supported-daemons) ignores levels of modules.",
		set:         func(c *Config, v string) error { c.Daemon.LogLevel = v; return checkLogFilter(v) },
	},
	{
		Name: KeyBytecodeStoreSize, Section: "Bytecode", Value: "agent.bytecodeStoreSize", Default: "256Mi",
		Description: "maximum size of the bytecode in `/var/lib/bpfman/bytecode` on each node, at least `32Mi`. To make room, the agent removes bytecode that no object on the node uses.",
		set:         func(c *Config, v string) (err error) { c.Agent.StoreSize, err = parseStoreSize(v); return err },
	},
	{
		Name: KeyRegistryCA, Section: "Bytecode", Value: "registryCA",
		Description: "certificates of authorities (PEM, at most 128 KiB) that the agent trusts for registries of bytecode, instead of the authorities in its image",
		set:         func(c *Config, v string) error { c.RegistryCA = v + "\n"; return checkCertificates(v) },
	},
	{
		Name: KeyConfirmTimeout, Section: "Changes of network programs", Value: "agent.confirmTimeout", Default: "30s",
		Description: "how long a node waits for the API server after a change of its network programs, before it [rolls the change back](rollback.md), from `10s` to `1h`. `0` means that it never does. The node still records which versions run.",
		set:         func(c *Config, v string) error { c.Agent.ConfirmTimeout = v; return checkTimeout(v) },
	},
	{
		Name: KeyUprobeNamespaces, Section: "Uprobes", Value: "agent.uprobeNamespaces",
		Description: "namespaces whose UprobeNsPrograms, and uprobes in BpfNsApplications, are attached, separated by commas, or `*` for all. A uprobe runs for every process of the node with the same file. [Uprobes of namespaced kinds](programs.md#uprobes-of-namespaced-kinds) explains what these namespaces can see.",
		set:         func(c *Config, v string) (err error) { c.Agent.UprobeNamespaces, err = parseNamespaces(v); return err },
	},
	{
		Name: KeyPriorityReserved, Section: "Order of network programs", Value: "agent.reservedPriorities", Form: Number, Default: "100",
		Description: "how many of the lowest [priorities](programs.md#order) are reserved for cluster-scoped programs, from `0` to `1000`. `100` means 0 to 99.",
		set: func(c *Config, v string) (err error) {
			c.Agent.ReservedPriorities, err = parsePriorities(v)
			return err
		},
	},
	{
		Name: KeyPriorityEnforced, Section: "Order of network programs", Value: "agent.enforcePriorities", Form: Boolean, Default: "false",
		Description: "With `true`, namespaced programs with a reserved priority aren't attached, and those that are attached are detached. With `false`, their conditions say that they run before cluster-scoped programs.",
		set:         func(c *Config, v string) error { c.Agent.EnforcePriorities = v == "true"; return nil },
	},
	{
		Name: KeyBeforeStart, Section: "Starts of pods", Value: "agent.beforeStart", Form: Boolean, Default: "false",
		Description: "With `true`, the agent is a plugin of the container runtime (NRI), so that programs with `attachment: BeforeStart` are [attached before a pod or container starts](programs.md#attach-before-the-start). This [gives the agent more power](threat-model.md#the-container-runtimes-nri).",
		set:         func(c *Config, v string) error { c.Agent.BeforeStart = v == "true"; return nil },
	},
	{
		Name: KeyAgentLogLevel, Section: "Agent", Value: "logLevels.agent", Default: "info", Values: logLevels,
		Description: "log level of the agent: `info`, `debug`, or `trace`",
		set:         func(c *Config, v string) error { c.Agent.LogLevel = v; return nil },
	},
	{
		Name: KeyAgentHealthAddr, Section: "Agent", Value: "agent.healthProbeAddress", Form: Address, Default: ":8175",
		Description: "address for `/healthz` and `/readyz`, on the node's network. `/readyz` names kinds that the agent can't read.",
		set:         func(c *Config, v string) error { c.Agent.HealthAddr = v; return checkAddr(v) },
	},
	{
		Name: KeyAgentMetricsAddr, Section: "Agent", Value: "agent.metricsAddress", Form: MetricsAddress, Default: "127.0.0.1:8174",
		Description: "address for `/metrics`. For a [Prometheus](monitoring.md) that isn't on the node, set `:8174`.",
		set:         func(c *Config, v string) error { c.Agent.MetricsAddr = v; return checkAddr(v) },
	},
	{
		Name: KeyCSIEnabled, Section: "CSI plugin", Value: "csi.enabled", Form: Boolean, Default: "true",
		Description: "With `false`, there are no volumes: the plugin's container, its registrar, and the CSIDriver aren't deployed. Before you set it, [end the pods with volumes](#remove-nodes).",
		set:         func(c *Config, v string) error { c.CSI.Disabled = v == "false"; return nil },
	},
	{
		Name: KeyCSIClusterAccess, Section: "CSI plugin", Value: "csi.clusterAccess", Default: ClusterAccessAll, Values: []string{ClusterAccessAll, ClusterAccessRead, ClusterAccessRBAC},
		Description: "who can mount the maps of [cluster-scoped programs](volumes.md#control-who-can-mount-maps). `all`: every pod. `read`: every pod, read-only; to write, the ServiceAccount needs the right to `use` the program. `rbac`: only pods whose ServiceAccount may `use` the program.",
		set:         func(c *Config, v string) error { c.CSI.ClusterAccess = v; return nil },
	},
	{
		Name: KeyCSILogLevel, Section: "CSI plugin", Value: "logLevels.csi", Default: "info", Values: logLevels,
		Description: "log level of the plugin: `info`, `debug`, or `trace`",
		set:         func(c *Config, v string) error { c.CSI.LogLevel = v; return nil },
	},
	{
		Name: KeyCSIMetricsAddr, Section: "CSI plugin", Value: "csi.metricsAddress", Form: MetricsAddress, Default: "127.0.0.1:8173",
		Description: "address for `/metrics` and the plugin's readiness probe",
		set:         func(c *Config, v string) error { c.CSI.MetricsAddr = v; return checkAddr(v) },
	},
	{
		Name: KeyCSISELinuxContext, Section: "CSI plugin", Value: "csi.selinuxContext",
		Description: "SELinux context of volumes, on nodes with [SELinux](selinux.md), such as `system_u:object_r:container_file_t:s0`",
		set:         func(c *Config, v string) error { c.CSI.SELinuxContext = v; return checkSELinuxContext(v) },
	},
	{
		Name: KeyInspectorEnabled, Section: "Inspector", Value: "inspector.enabled", Form: Boolean, Default: "true",
		Description: "With `false`, there is no inspector, and there are no BpfNodes; existing BpfNodes are deleted.",
		set:         func(c *Config, v string) error { c.Inspector.Disabled = v == "false"; return nil },
	},
	{
		Name: KeyInspectorLogLevel, Section: "Inspector", Value: "logLevels.inspector", Default: "info", Values: logLevels,
		Description: "log level of the inspector: `info`, `debug`, or `trace`",
		set:         func(c *Config, v string) error { c.Inspector.LogLevel = v; return nil },
	},
	{
		Name: KeyInspectorMetricsAddr, Section: "Inspector", Value: "inspector.metricsAddress", Form: MetricsAddress, Default: "127.0.0.1:8172",
		Description: "address for `/metrics` and the inspector's probes",
		set:         func(c *Config, v string) error { c.Inspector.MetricsAddr = v; return checkAddr(v) },
	},
	{
		Name: KeyInspectorStatistics, Section: "Inspector", Value: "inspector.statistics", Form: Boolean, Default: "false",
		Description: "With `true`, the kernel counts and measures each run of each program, for [metrics](monitoring.md#the-inspectors-metrics). This costs about 80 ns for each run.",
		set:         func(c *Config, v string) error { c.Inspector.Statistics = v == "true"; return nil },
	},
}
