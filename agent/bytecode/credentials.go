// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package bytecode provides the eBPF objects in bytecode images. A process for each image,
// bpfman-reader, reads it from its registry, and a store on the node's disk keeps the
// object for the daemon.
package bytecode

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/problem"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// CredentialsFor returns the credentials in the image's pull Secret, which it reads
// with secret. They are empty for anonymous access. If the Secret has none for the image's
// registry, the error is a NoEntryError. Namespace is the owner's namespace: a namespaced
// owner can only use Secrets in it. Errors don't contain the content of Secrets.
func CredentialsFor(ctx context.Context, secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error), namespace string, image *v1alpha1.BytecodeImage) (reader.Credentials, error) {
	if image == nil || image.ImagePullSecret == nil {
		return reader.Credentials{}, nil
	}
	key := types.NamespacedName{Namespace: image.ImagePullSecret.Namespace, Name: image.ImagePullSecret.Name}
	if namespace != "" && key.Namespace != namespace {
		return reader.Credentials{}, problem.Errorf(problem.PullSecretUnusable, "pull Secret %s: programs in namespace %s can only use Secrets in that namespace", key, namespace)
	}
	repository, err := parse(image.Url)
	if err != nil {
		return reader.Credentials{}, err
	}
	found, err := secret(ctx, key.Namespace, key.Name)
	if err != nil {
		return reader.Credentials{}, problem.Errorf(problem.PullSecretUnusable, "get pull Secret %s: %w", key, err)
	}
	credentials, there, err := find(found, repository.Repository)
	switch {
	case err != nil:
		return reader.Credentials{}, fmt.Errorf("pull Secret %s: %w", key, err)
	case !there:
		return reader.Credentials{}, &NoEntryError{key, repository.Host()}
	}
	return credentials, nil
}

// NoEntryError means that a pull Secret has no credentials for a registry. The image is read without any, as the kubelet
// does.
type NoEntryError struct {
	Secret types.NamespacedName
	Host   string
}

func (e *NoEntryError) Error() string {
	return problem.Notef(problem.NotInPullSecret, "pull Secret %s has no entry for %s, and the registry refuses access without credentials", e.Secret, e.Host).Text
}

// Problem implements the method of errors that name their problem.
func (e *NoEntryError) Problem() problem.Reason { return problem.NotInPullSecret }

// entry is the entry of a registry in a Secret. Auth is user:password in base64.
type entry struct {
	Auth     string `json:"auth"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// find returns the credentials for a repository in a Secret of either type for
// registry credentials. Entries can be limited to a part of a registry, and each part of
// a host's name can be a pattern. Like the kubelet, find prefers names without patterns.
// Among those, it uses the longest match. It returns false if no entry matches.
func find(secret *corev1.Secret, repository string) (credentials reader.Credentials, there bool, err error) {
	entries := map[string]entry{}
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]entry `json:"auths"`
		}
		if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil {
			return reader.Credentials{}, false, problem.Errorf(problem.PullSecretUnusable, "its key %s is invalid", corev1.DockerConfigJsonKey)
		}
		entries = config.Auths
	case corev1.SecretTypeDockercfg:
		if json.Unmarshal(secret.Data[corev1.DockerConfigKey], &entries) != nil {
			return reader.Credentials{}, false, problem.Errorf(problem.PullSecretUnusable, "its key %s is invalid", corev1.DockerConfigKey)
		}
	default:
		return reader.Credentials{}, false, problem.Errorf(problem.PullSecretUnusable, "its type is %q instead of %s or %s", secret.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
	var best string
	var found entry
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if scope := scopeOf(name); covers(scope, repository) && (best == "" || compareScopes(scope, best) > 0) {
			best, found = scope, entries[name]
		}
	}
	credentials, err = found.credentials()
	return credentials, best != "", err
}

// covers reports whether an entry's scope contains a repository. Each part of a host's name is a pattern for one, as for the
// kubelet. Ports have to be the same.
func covers(scope, repository string) bool {
	pattern, part, _ := strings.Cut(scope, "/")
	host, rest, _ := strings.Cut(repository, "/")
	if part != "" && !strings.HasPrefix(rest+"/", part+"/") {
		return false
	}
	patternName, patternPort, _ := strings.Cut(pattern, ":")
	hostName, hostPort, _ := strings.Cut(host, ":")
	if pattern == host || !strings.ContainsAny(pattern, globs) {
		return pattern == host
	}
	patterns, names := strings.Split(patternName, "."), strings.Split(hostName, ".")
	return patternPort == hostPort && slices.EqualFunc(patterns, names, func(pattern, name string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}

// globs are the characters of patterns.
const globs = "*?["

// compareScopes orders scopes: those with patterns first, then the shorter ones.
func compareScopes(a, b string) int {
	exact := func(scope string) int {
		if strings.ContainsAny(scope, globs) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(exact(a), exact(b)), cmp.Compare(len(a), len(b)))
}

// scopeOf returns the host of the registry in an entry's name, and the path if the
// entry is limited to a part of the registry. Docker names a registry by the URL of
// its API, and Docker Hub by the URL of its v1 API.
func scopeOf(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	host, part, _ := strings.Cut(name, "/")
	if host = reader.PlainHost(host); host == "registry-1.docker.io" {
		host = "docker.io"
	}
	for _, api := range []string{"v1/", "v2/"} {
		part = strings.TrimPrefix(part+"/", api)
	}
	return strings.TrimRight(host+"/"+part, "/")
}

func (e entry) credentials() (reader.Credentials, error) {
	if e.Auth == "" {
		return reader.Credentials{Username: e.Username, Password: e.Password}, nil
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(e.Auth, "="))
	if err != nil {
		return reader.Credentials{}, problem.Errorf(problem.PullSecretUnusable, "the auth of a registry is not base64")
	}
	username, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return reader.Credentials{}, problem.Errorf(problem.PullSecretUnusable, "the auth of a registry is not user:password")
	}
	return reader.Credentials{Username: username, Password: password}, nil
}
