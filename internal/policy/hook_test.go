// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package policy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Names that the daemon and the kernel take as they are, and others.
func TestHookNames(t *testing.T) {
	for hook, tried := range map[HookType]struct{ good, bad []string }{
		Interface: {
			[]string{"eth0", "eth0.100", "veth1a2b3c4d5e6", "br-lan", "wlan0@x", "...", "%d", "é"},
			[]string{
				"", ".", "..", "eth0:x-test", "eth0:", ":x", "eth0/x", "eth0 ", " eth0", "eth0\n", "eth0\x00", "eth0\v", "eth0\x00x",
				"sixteen-bytes-ab", "eth0\u00a0", "à", // its second byte is 0xa0
			},
		},
		Tracepoint: {
			[]string{"syscalls/sys_enter_kill", "sched/sched_switch", "ext4/ext4.x"},
			[]string{"", "/", "kill", "syscalls/", "/kill", "a/b/c", "a//b", "../x", "x/..", "./x", "x/.", "a/b ", "a/b\x00", "a /b", "a\n/b"},
		},
		Function: {
			[]string{"tcp_connect", "schedule.cold", "f.isra.0", "f.constprop.0", "nf_tables:nft_do_chain", "__x64_sys_kill", strings.Repeat("f", 511)},
			[]string{"", "a b", "a\x00", "a\x00b", "a\n", "\ta", strings.Repeat("f", 512)},
		},
		Target: {
			[]string{"libc", "libc.so", "-libc", "/bin/sh", "/opt/a b", "/usr/../bin/sh", "//bin//sh", "/bin/sh/", "/" + strings.Repeat("x", 4094)},
			[]string{"", "bin/sh", "../sh", "./sh", "/bin/sh\x00", "libc\x00", "/bin/sh\n", "/bin/\x1b[2Jsh", "/" + strings.Repeat("x", 4095)},
		},
	} {
		for _, name := range tried.good {
			if problem := (Hook{Type: hook, Name: name}).Problem(); problem != "" {
				t.Errorf("%s %q: %s", hook, name, problem)
			}
		}
		for _, name := range tried.bad {
			h := Hook{Type: hook, Name: name}
			if h.Problem() == "" {
				t.Errorf("%s %q has no problem", hook, name)
			}
			all := limits{hooks: map[HookType]names{hook: compileNames([]string{"*"})}}
			if len(all.hook(h)) == 0 || len(limits{}.hook(h)) != 0 {
				t.Errorf("%s %q: %q, without limits %q", hook, name, all.hook(h), limits{}.hook(h))
			}
		}
	}
}

// A pattern without a module doesn't match functions of modules, which can have any name.
func TestFunctionsOfModules(t *testing.T) {
	l := compileLimits(&v1alpha1.BytecodeLimits{Functions: []string{"nf_*", "*_connect", "ext4:*_open"}})
	for name, want := range map[string]bool{
		"nf_hook_slow": true, "tcp_connect": true, "ext4:ext4_file_open": true,
		"nf_tables:nft_do_chain": false, "evil:tcp_connect": false, "ext4:ext4_read": false, "ext4:x:y_open": false,
	} {
		if got := len(l.hook(Hook{Type: Function, Name: name})) == 0; got != want {
			t.Errorf("%s is allowed: %t", name, got)
		}
	}
}

// A path can match a pattern by its beginning, and lead elsewhere.
func TestTargetsThatLeadElsewhere(t *testing.T) {
	l := limits{hooks: map[HookType]names{Target: compileNames([]string{"*"})}}
	for name, want := range map[string]bool{
		"libc": true, "/opt/bin/sh": true, "/opt/.hidden": true, "/opt/..x": true,
		"/opt//sh": false, "/opt/./sh": false, "/opt/../bin/sh": false, "/opt/": false, "//opt": false,
	} {
		if got := len(l.hook(Hook{Type: Target, Name: name})) == 0; got != want {
			t.Errorf("%s is allowed: %t", name, got)
		}
	}
}

// The kernel cuts an interface's name at a colon, and the daemon joins tracepoints to a path. Both must find what the
// policy has compared. So a name that is allowed has one meaning only.
func FuzzHookNames(f *testing.F) {
	for _, name := range []string{"eth0:x-test", "syscalls/../x", "nf_tables:x", "/opt/../bin/sh", "a\x00b", "libc"} {
		f.Add(name, "e*")
	}
	f.Fuzz(func(t *testing.T, name, pattern string) {
		for _, hook := range []HookType{Interface, Tracepoint, Function, Target} {
			h := Hook{Type: hook, Name: name}
			l := limits{hooks: map[HookType]names{hook: compileNames([]string{pattern})}}
			if len(l.hook(h)) > 0 {
				continue
			}
			if h.Problem() != "" || strings.ContainsAny(name, "\x00\n") {
				t.Errorf("%s %q is allowed", hook, name)
			}
			taken := name
			switch hook {
			case Interface:
				taken, _, _ = strings.Cut(name[:min(len(name), 15)], ":")
			case Tracepoint:
				taken = strings.TrimPrefix(filepath.Join("/sys/kernel/tracing/events", name), "/sys/kernel/tracing/events/")
			case Function: // a name that it has
			case Target:
				if filepath.IsAbs(name) {
					taken = filepath.Clean(name)
				}
			}
			if taken != name {
				t.Errorf("%s %q is allowed, and means %q", hook, name, taken)
			}
		}
	})
}
