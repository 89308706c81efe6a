// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Attachments is what the kernel reports about attached programs, by their ids.
type Attachments struct {
	// Links is the number of links of each requested program.
	Links map[uint32]int `json:"links,omitempty"`
	// Chains are the programs at the ingress of each interface of the host, in the order
	// in which they run.
	Chains map[string][]uint32 `json:"chains,omitempty"`
}

// AttachmentsOf gets the links of programs, and the TCX chains, from the kernel.
func AttachmentsOf(programs []uint32) (Attachments, error) {
	a := Attachments{Links: map[uint32]int{}, Chains: map[string][]uint32{}}
	var links link.Iterator
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return a, fmt.Errorf("read a link: %w", err)
		}
		if id := uint32(info.Program); slices.Contains(programs, id) {
			a.Links[id]++
		}
	}
	if err := links.Err(); err != nil {
		return a, fmt.Errorf("list links: %w", err)
	}
	interfaces, err := netlink.LinkList()
	if err != nil {
		return a, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range interfaces {
		attributes := i.Attrs()
		chain, err := link.QueryPrograms(link.QueryOptions{Target: attributes.Index, Attach: ebpf.AttachTCXIngress})
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, fs.ErrInvalid) {
			continue // removed in the meantime, or a kernel without TCX
		}
		if err != nil {
			return a, fmt.Errorf("list the programs of interface %s: %w", attributes.Name, err)
		}
		for _, p := range chain.Programs {
			a.Chains[attributes.Name] = append(a.Chains[attributes.Name], uint32(p.ID))
		}
	}
	return a, nil
}

// Pins returns the daemon's pins, relative to its bpffs.
func Pins() ([]string, error) {
	root := nodeRoot + daemonPins
	pins := []string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		// Files with a dot belong to the kernel, such as maps.debug.
		if !entry.IsDir() && !strings.Contains(entry.Name(), ".") {
			pins = append(pins, strings.TrimPrefix(path, root+"/"))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the daemon's pins: %w", err)
	}
	return pins, nil
}
