// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package image

import (
	"context"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Kubernetes describes images of Kubernetes' components, with the names that kubeadm uses, such as
// registry.k8s.io/kube-apiserver:v1.37.2. All names refer to the same image, with the multi-call binary under each
// component's name, and the programs that kube-proxy runs.
func Kubernetes(names []string) []Description {
	var descriptions []Description
	components := make([]string, 0, len(names))
	for _, name := range names {
		components = append(components, componentOf(name))
	}
	for _, name := range names {
		if componentOf(name) == "pause" {
			pause := Command{Repository: "pause", Binary: "pause"}.describe()
			pause.Name = name
			descriptions = append(descriptions, pause)
			continue
		}
		descriptions = append(descriptions, Description{Name: name, describe: func(ctx context.Context, name string, s Sources) (Image, error) {
			return kubernetes(ctx, name, components, s)
		}})
	}
	return descriptions
}

func componentOf(name string) string {
	component, _, _ := strings.Cut(path.Base(name), ":")
	return component
}

func kubernetes(ctx context.Context, name string, components []string, s Sources) (Image, error) {
	const directory = "/usr/local/bin"
	executable, err := existing(name, directory+"/kubernetes", s.Kubernetes)
	if err != nil {
		return Image{}, err
	}
	files := append(base(), executable)
	for _, component := range components {
		files = append(files, File{Path: path.Join(directory, component), Mode: 0o777, Link: "kubernetes"})
	}
	// kube-proxy needs it.
	found, err := exec.LookPath("nft")
	if err != nil {
		return Image{}, &AbsentError{Image: name, File: "nft"}
	}
	if found, err = filepath.EvalSymlinks(found); err != nil {
		return Image{}, &AbsentError{Image: name, File: found}
	}
	libraries, err := sharedLibraries(ctx, found)
	if err != nil {
		return Image{}, err
	}
	files = append(files, File{Path: "/usr/sbin/nft", Mode: 0o755, Source: found})
	return Image{Name: name, Files: append(files, libraries...), Entrypoint: []string{path.Join(directory, componentOf(name))}}, nil
}
