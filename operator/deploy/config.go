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
	"k8s.io/apimachinery/pkg/api/resource"
)

// KeyError describes an invalid value of one key of the ConfigMap.
type KeyError struct {
	Key    string
	Reason string
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Reason }

// ParseConfig parses the data of the ConfigMap. If a value is absent or empty, the key's default applies. The
// error joins one KeyError for each invalid value. unknown contains unknown keys, which are probably misspelled.
func ParseConfig(data map[string]string) (config Config, unknown []string, err error) {
	rest := maps.Clone(data)
	var errs []error
	for _, k := range keys {
		value := strings.TrimSpace(data[k.Name])
		delete(rest, k.Name)
		if value == "" {
			value = k.Default
		}
		if value == "" && k.Required && strings.TrimSpace(data[k.Unless]) != "false" {
			errs = append(errs, &KeyError{k.Name, "a value is required"})
			continue
		}
		if value == "" {
			continue
		}
		err := checkOneOf(value, k.allowed()...)
		if err == nil {
			err = k.set(&config, value)
		}
		if err != nil {
			errs = append(errs, &KeyError{k.Name, err.Error()})
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

// checkOneOf accepts everything if no values are given.
func checkOneOf(v string, allowed ...string) error {
	if len(allowed) > 0 && !slices.Contains(allowed, v) {
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

// MaxPriority is the priority of programs that run last.
const MaxPriority = 1000

// parsePriorities leaves at least one of the priorities from 0 to 1000 to namespaced programs.
func parsePriorities(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > MaxPriority {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", v, MaxPriority)
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
