// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// Decoder turns a part of a key into text. Its form, and the names of most decoders, are those of ebpf_exporter.
type Decoder struct {
	// Name is one of the keys of decoders.
	Name string `json:"name"`
	// StaticMap is for static_map: the text for each value. Other values become unknown:VALUE, or stay as they are with
	// AllowUnknown.
	StaticMap    map[string]string `json:"static_map,omitempty"`
	AllowUnknown bool              `json:"allow_unknown,omitempty"`
	// Regexps is for regexp: an element is exported only if one of them matches. If it has a group, the first group is
	// the text.
	Regexps []string `json:"regexps,omitempty"`

	compiled []*regexp.Regexp
}

// errSkip means that an element isn't exported.
var errSkip = errors.New("a regexp doesn't match")

// decoders are the functions of the decoders, by name. The first decoder of a label gets the bytes of the key, and each
// further one the text that the one before it returned.
var decoders = map[string]func(d *Decoder, in []byte, host *Host) (string, error){
	"uint": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		n, err := unsigned(in)
		return strconv.FormatUint(n, 10), err
	},
	"hex": func(_ *Decoder, in []byte, _ *Host) (string, error) { return hex.EncodeToString(in), nil },
	"string": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		before, _, _ := bytes.Cut(in, []byte{0})
		return string(before), nil
	},
	"inet_ip": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		address, ok := netip.AddrFromSlice(in)
		if !ok {
			return "", fmt.Errorf("an IP address has 4 or 16 bytes, not %d", len(in))
		}
		return address.Unmap().String(), nil
	},
	"mac": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		const length = 6
		if len(in) < length {
			return "", fmt.Errorf("a MAC address has %d bytes, not %d", length, len(in))
		}
		return net.HardwareAddr(in[:length]).String(), nil
	},
	"port": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		if len(in) < 2 {
			return "", fmt.Errorf("a port has 2 bytes, not %d", len(in))
		}
		return strconv.Itoa(int(in[0])<<8 | int(in[1])), nil
	},
	"static_map": func(d *Decoder, in []byte, _ *Host) (string, error) {
		text, known := d.StaticMap[string(in)]
		switch {
		case known:
			return text, nil
		case d.AllowUnknown:
			return string(in), nil
		default:
			return unknown(string(in)), nil
		}
	},
	"regexp": func(d *Decoder, in []byte, _ *Host) (string, error) {
		for _, re := range d.compiled {
			if found := re.FindSubmatch(in); len(found) > 1 {
				return string(found[1]), nil
			} else if found != nil {
				return string(in), nil
			}
		}
		return "", errSkip
	},
	"syscall": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		n, err := number(in)
		if name, known := syscalls[int(n)]; known {
			return name, nil
		}
		return unknown(string(in)), err
	},
	"errno": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		n, err := number(in)
		if name := unix.ErrnoName(syscall.Errno(max(n, -n))); name != "" {
			return name, nil
		}
		return unknown(string(in)), err
	},
	"ifname": func(_ *Decoder, in []byte, host *Host) (string, error) {
		n, err := number(in)
		if name := host.interfaceName(int(n)); name != "" {
			return name, nil
		}
		return unknown(string(in)), err
	},
	"majorminor": func(_ *Decoder, in []byte, host *Host) (string, error) {
		n, err := unsigned(in)
		return host.device(n), err
	},
	"ksym": func(_ *Decoder, in []byte, host *Host) (string, error) {
		n, err := unsigned(in)
		return host.symbol(n), err
	},
	"cgroup": func(_ *Decoder, in []byte, host *Host) (string, error) {
		n, err := strconv.ParseUint(string(in), 10, 64)
		if err != nil {
			return "", fmt.Errorf("%q isn't the id of a cgroup: decode it with uint first", in)
		}
		return host.cgroup(n), nil
	},
	// What cgroup returned names the pod and the container, in the kubelet's form. Others become an empty text.
	"pod_uid": func(_ *Decoder, in []byte, _ *Host) (string, error) {
		return strings.ReplaceAll(first(podOfCgroup, in), "_", "-"), nil
	},
	"container_id": func(_ *Decoder, in []byte, _ *Host) (string, error) { return first(containerOfCgroup, in), nil },
}

// The kubelet names a pod's cgroup podUID with the driver cgroupfs, and kubepods-QOS-podUID.slice with systemd, where
// the UID has underscores. Container runtimes put the container's id at the end.
var (
	podOfCgroup       = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)
	containerOfCgroup = regexp.MustCompile(`[/-]([0-9a-f]{64})(?:\.scope)?(?:/|$)`)
)

func first(re *regexp.Regexp, in []byte) string {
	if found := re.FindSubmatch(in); found != nil {
		return string(found[1])
	}
	return ""
}

var syscalls = func() map[int]string {
	info, err := arch.GetInfo(runtime.GOARCH)
	if err != nil {
		return nil // the numbers stay numbers
	}
	return info.SyscallNumbers
}()

func unknown(text string) string { return "unknown:" + text }

func number(in []byte) (int64, error) {
	n, err := strconv.ParseInt(string(in), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q isn't a number: decode it with uint first", in)
	}
	return n, nil
}

// unsupported are decoders of ebpf_exporter that can't be had here, with the reasons.
var unsupported = map[string]string{
	"kstack": "a reader of maps without capabilities can't read stacks",
}

func (d *Decoder) complete() error {
	if why := unsupported[d.Name]; why != "" {
		return fmt.Errorf("decoder %q isn't supported: %s", d.Name, why)
	}
	if decoders[d.Name] == nil {
		var known []string
		for name := range decoders {
			known = append(known, name)
		}
		slices.Sort(known)
		return fmt.Errorf("decoder %q isn't supported: use %s", d.Name, strings.Join(known, ", "))
	}
	for _, text := range d.Regexps {
		re, err := regexp.Compile(text)
		if err != nil {
			return fmt.Errorf("regexps: %w", err)
		}
		d.compiled = append(d.compiled, re)
	}
	return nil
}

// value returns the value of the label, or errSkip.
func (l *Label) value(p part, host *Host) (string, error) {
	if len(l.Decoders) == 0 && p.text != "" {
		return p.text, nil
	}
	steps, current := l.Decoders, p.bytes
	if len(steps) == 0 {
		steps = []Decoder{{Name: "uint"}}
	}
	switch name := steps[0].Name; {
	case current == nil && name == "uint": // an enumerator, of which the kernel prints the name
		current, steps = []byte(p.text), steps[1:]
	case len(current) != l.Size && name != "string":
		return "", fmt.Errorf("the kernel prints %s, which isn't all of its %d bytes: read the map with bpf(2)", p.text, l.Size)
	}
	for i := range steps {
		text, err := decoders[steps[i].Name](&steps[i], current, host)
		if err != nil {
			return "", fmt.Errorf("decoder %s: %w", steps[i].Name, err)
		}
		current = []byte(text)
	}
	return strings.ToValidUTF8(string(current), "\uFFFD"), nil
}
