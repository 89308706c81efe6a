// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecode provides the eBPF objects in bytecode images. A process for each image,
// bpfman-reader, reads it from its registry, and a store on the node's disk keeps the
// object for the daemon.
package bytecode

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// CredentialsFor returns the credentials in the image's pull Secret, which it reads
// with secret. They are empty for anonymous access. Namespace is the owner's namespace:
// a namespaced owner can only use Secrets in it. Errors don't contain the content of
// Secrets.
func CredentialsFor(ctx context.Context, secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error), namespace string, image *v1alpha1.BytecodeImage) (reader.Credentials, error) {
	if image == nil || image.ImagePullSecret == nil {
		return reader.Credentials{}, nil
	}
	key := types.NamespacedName{Namespace: image.ImagePullSecret.Namespace, Name: image.ImagePullSecret.Name}
	if namespace != "" && key.Namespace != namespace {
		return reader.Credentials{}, fmt.Errorf("pull Secret %s: programs in namespace %s can only use Secrets in that namespace", key, namespace)
	}
	repository, err := parse(image.Url)
	if err != nil {
		return reader.Credentials{}, err
	}
	found, err := secret(ctx, key.Namespace, key.Name)
	if err != nil {
		return reader.Credentials{}, fmt.Errorf("get pull Secret %s: %w", key, err)
	}
	credentials, err := find(found, repository.Repository)
	if err != nil {
		return reader.Credentials{}, fmt.Errorf("pull Secret %s: %w", key, err)
	}
	return credentials, nil
}

// entry is the entry of a registry in a Secret. Auth is user:password in base64.
type entry struct {
	Auth     string `json:"auth"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// find returns the credentials for a repository in a Secret of either type for
// registry credentials. Entries can be limited to a part of a registry. Like the
// kubelet, find uses the longest match. It returns empty credentials if no entry
// matches.
func find(secret *corev1.Secret, repository string) (reader.Credentials, error) {
	entries := map[string]entry{}
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]entry `json:"auths"`
		}
		if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil {
			return reader.Credentials{}, fmt.Errorf("its key %s is invalid", corev1.DockerConfigJsonKey)
		}
		entries = config.Auths
	case corev1.SecretTypeDockercfg:
		if json.Unmarshal(secret.Data[corev1.DockerConfigKey], &entries) != nil {
			return reader.Credentials{}, fmt.Errorf("its key %s is invalid", corev1.DockerConfigKey)
		}
	default:
		return reader.Credentials{}, fmt.Errorf("its type is %q instead of %s or %s", secret.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
	var best string
	var found entry
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if scope := scopeOf(name); len(scope) > len(best) && strings.HasPrefix(repository+"/", scope+"/") {
			best, found = scope, entries[name]
		}
	}
	return found.credentials()
}

// scopeOf returns the host of the registry in an entry's name, and the path if the
// entry is limited to a part of the registry. Docker names a registry by the URL of
// its API, and Docker Hub by the URL of its v1 API.
func scopeOf(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	host, path, _ := strings.Cut(name, "/")
	if host = reader.PlainHost(host); host == "registry-1.docker.io" {
		host = "docker.io"
	}
	for _, api := range []string{"v1/", "v2/"} {
		path = strings.TrimPrefix(path+"/", api)
	}
	return strings.TrimRight(host+"/"+path, "/")
}

func (e entry) credentials() (reader.Credentials, error) {
	if e.Auth == "" {
		return reader.Credentials{Username: e.Username, Password: e.Password}, nil
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(e.Auth, "="))
	if err != nil {
		return reader.Credentials{}, fmt.Errorf("the auth of a registry is not base64")
	}
	username, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return reader.Credentials{}, fmt.Errorf("the auth of a registry is not user:password")
	}
	return reader.Credentials{Username: username, Password: password}, nil
}
