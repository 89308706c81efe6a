// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package deploy

import (
	"bytes"
	"fmt"

	"github.com/BurntSushi/toml"
)

// Signatures is what the user's bpfman.toml wants the daemon to do about the signatures of bytecode. The daemon
// doesn't do it, because it no longer reads images: the agent does, and BytecodePolicies decide.
type Signatures int

const (
	// SignaturesDefault means that the file doesn't mention the verification of signatures, or turns it off. The
	// daemon's default is to refuse only images with an invalid signature.
	SignaturesDefault Signatures = iota
	// SignaturesVerified means that the file explicitly turns the verification on.
	SignaturesVerified
	// SignaturesRequired means that images without a signature must be refused.
	SignaturesRequired
)

// warning returns what the user has to know and do, or an empty string.
func (s Signatures) warning() string {
	switch s {
	case SignaturesRequired:
		return KeyDaemonTOML + " has allow_unsigned = false, but the daemon no longer verifies signatures. So the agents refuse each image, " +
			"unless a BytecodePolicy with mode: enforce requires a signature for it. Write a policy that has a rule with signedBy, and an " +
			"authority with the identities or the key that may sign (docs/signed-bytecode.md). To accept unsigned images, remove allow_unsigned"
	case SignaturesVerified:
		return KeyDaemonTOML + " has verify_enabled = true, but the daemon no longer verifies signatures. To refuse images with an invalid " +
			"signature, or without one, write a BytecodePolicy that has a rule with signedBy (docs/signed-bytecode.md), and remove verify_enabled"
	case SignaturesDefault:
	}
	return ""
}

// daemonFile contains the fields that the daemon reads from its configuration file. If one of them has a wrong
// type, the daemon uses its defaults for all of them, and only its log says so.
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
		MillisecDelay uint32 `toml:"millisec_delay"` // the maximum is 49 days
	} `toml:"database"`
}

// parseTOML returns the file for the daemon, and what the user's file says about signatures. The daemon's file is
// the user's, but without the verification of signatures. With it, which is the daemon's default, each Load would
// get Sigstore's trusted root from the internet, although the daemon reads no image.
func parseTOML(v string) (string, Signatures, error) {
	tables := map[string]any{}
	if err := checkTOML(v, &tables); err != nil {
		return "", 0, err
	}
	signing, _ := tables["signing"].(map[string]any)
	if signing == nil {
		signing = map[string]any{}
	}
	signatures := signaturesOf(signing)
	signing["verify_enabled"] = false
	tables["signing"] = signing
	var text bytes.Buffer
	encoder := toml.NewEncoder(&text)
	encoder.Indent = ""
	if err := encoder.Encode(tables); err != nil {
		return "", 0, fmt.Errorf("the value can't be written: %w", err)
	}
	if err := checkTOML(text.String(), &map[string]any{}); err != nil {
		return "", 0, fmt.Errorf("the value can't be written: %w", err)
	}
	return text.String(), signatures, nil
}

// signaturesOf evaluates the table [signing] of the user's file as the daemon would: names are case-sensitive, and
// both fields default to true.
func signaturesOf(signing map[string]any) Signatures {
	enabled, explicit := signing["verify_enabled"].(bool)
	allowed, restricts := signing["allow_unsigned"].(bool)
	switch {
	case explicit && !enabled:
		return SignaturesDefault
	case restricts && !allowed:
		return SignaturesRequired
	case explicit:
		return SignaturesVerified
	}
	return SignaturesDefault
}

// checkTOML decodes the file to tables, and checks the values that the daemon reads.
func checkTOML(v string, tables *map[string]any) error {
	if _, err := toml.Decode(v, tables); err != nil {
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
