// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package bytecode

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/reader"
)

// password is in each Secret of these tests. No error may contain it.
const password = "s3cr3t:with-colon"

func auth(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// dockerConfigJSON returns a Secret of the newer type.
func dockerConfigJSON(auths string) *corev1.Secret {
	return &corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":` + auths + `}`)},
	}
}

// dockercfg returns a Secret of the older type.
func dockercfg(auths string) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(auths)}}
}

func TestCredentials(t *testing.T) {
	entry := func(name string) string { return fmt.Sprintf(`{%q: {"auth": %q}}`, name, auth("user", password)) }
	members := fmt.Sprintf(`{"quay.io": {"username": "user", "password": %q}}`, password)
	user := reader.Credentials{Username: "user", Password: password}
	for name, c := range map[string]struct {
		secret *corev1.Secret
		image  string
		want   reader.Credentials
	}{
		"dockerconfigjson, auth":         {dockerConfigJSON(entry("quay.io")), "quay.io/a/b:latest", user},
		"dockerconfigjson, members":      {dockerConfigJSON(members), "quay.io/a/b:latest", user},
		"dockercfg, auth":                {dockercfg(entry("quay.io")), "quay.io/a/b:latest", user},
		"dockercfg, members":             {dockercfg(members), "quay.io/a/b:latest", user},
		"unpadded auth":                  {dockerConfigJSON(strings.ReplaceAll(entry("quay.io"), "=", "")), "quay.io/a/b", user},
		"auth rules over members":        {dockerConfigJSON(fmt.Sprintf(`{"quay.io": {"auth": %q, "username": "x", "password": "y"}}`, auth("user", password))), "quay.io/a", user},
		"other members are left alone":   {dockerConfigJSON(strings.Replace(entry("quay.io"), `{"auth"`, `{"email": "a@b", "identitytoken": "", "auth"`, 1)), "quay.io/a", user},
		"by digest":                      {dockerConfigJSON(entry("quay.io")), "quay.io/a/b@sha256:" + strings.Repeat("0a", 32), user},
		"URL":                            {dockerConfigJSON(entry("https://quay.io")), "quay.io/a/b", user},
		"URL of an API":                  {dockerConfigJSON(entry("https://quay.io/v2/")), "quay.io/a/b", user},
		"plain HTTP":                     {dockerConfigJSON(entry("http://quay.io/v1/")), "quay.io/a/b", user},
		"port":                           {dockerConfigJSON(entry("registry.example:5000")), "registry.example:5000/a", user},
		"port and path":                  {dockerConfigJSON(entry("https://registry.example:5000/a")), "registry.example:5000/a/b", user},
		"port 443, upper case":           {dockerConfigJSON(entry("https://quay.io:443")), "QUAY.io/a/b", user},
		"another port":                   {dockerConfigJSON(entry("registry.example:5000")), "registry.example/a", reader.Credentials{}},
		"another registry":               {dockerConfigJSON(entry("quay.io")), "ghcr.io/a/b", reader.Credentials{}},
		"a registry that begins alike":   {dockerConfigJSON(entry("quay.io")), "quay.io.example/a/b", reader.Credentials{}},
		"another path":                   {dockerConfigJSON(entry("quay.io/other")), "quay.io/a/b", reader.Credentials{}},
		"a path that begins alike":       {dockerConfigJSON(entry("quay.io/a")), "quay.io/ab/c", reader.Credentials{}},
		"the image's own path":           {dockerConfigJSON(entry("quay.io/a/b")), "quay.io/a/b:latest", user},
		"Docker Hub's odd key":           {dockerConfigJSON(entry("https://index.docker.io/v1/")), "docker.io/a/b", user},
		"Docker Hub, short image":        {dockerConfigJSON(entry("https://index.docker.io/v1/")), "alpine", user},
		"Docker Hub by its name":         {dockercfg(entry("docker.io")), "a/b:latest", user},
		"Docker Hub's registry":          {dockercfg(entry("registry-1.docker.io")), "a/b:latest", user},
		"a pattern":                      {dockerConfigJSON(entry("*.example.com")), "registry.example.com/a", user},
		"a pattern with a path":          {dockerConfigJSON(entry("https://*.example.com/a")), "registry.example.com/a/b", user},
		"a pattern with another path":    {dockerConfigJSON(entry("*.example.com/b")), "registry.example.com/a/b", reader.Credentials{}},
		"a pattern of a part":            {dockerConfigJSON(entry("eu-*.gcr.?o")), "eu-west.gcr.io/a", user},
		"a pattern for one part":         {dockerConfigJSON(entry("*.example.com")), "a.b.example.com/a", reader.Credentials{}},
		"a pattern for no part":          {dockerConfigJSON(entry("*.example.com")), "example.com/a", reader.Credentials{}},
		"a pattern with a port":          {dockerConfigJSON(entry("*.example.com:5000")), "r.example.com:5000/a", user},
		"a pattern without the port":     {dockerConfigJSON(entry("*.example.com")), "r.example.com:5000/a", reader.Credentials{}},
		"an invalid pattern":             {dockerConfigJSON(entry("*[.example.com")), "r.example.com/a", reader.Credentials{}},
		"an address":                     {dockerConfigJSON(entry("[::1]:5000")), "[::1]:5000/a", user},
		"another address":                {dockerConfigJSON(entry("[::1]:5000")), "[::2]:5000/a", reader.Credentials{}},
		"no entries":                     {dockerConfigJSON(`{}`), "quay.io/a", reader.Credentials{}},
		"null":                           {dockerConfigJSON(`null`), "quay.io/a", reader.Credentials{}},
		"an empty entry":                 {dockerConfigJSON(`{"quay.io": {}}`), "quay.io/a", reader.Credentials{}},
		"an odd entry of another's":      {dockerConfigJSON(`{"ghcr.io": {"auth": "%"}, "quay.io": {"username": "user", "password": "` + password + `"}}`), "quay.io/a", user},
		"an entry without a name, first": {dockerConfigJSON(`{"": {"auth": "%"}, "quay.io": {"username": "user", "password": "` + password + `"}}`), "quay.io/a", user},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := credentialsFor(t.Context(), c.secret, "", c.image)
			if noEntry := (*NoEntryError)(nil); errors.As(err, &noEntry) && c.want == (reader.Credentials{}) {
				err = nil
			}
			if err != nil || got != c.want {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

// The longest match is used each time, although the order of maps is random.
func TestCredentialsOfPartOfARegistry(t *testing.T) {
	secret := dockerConfigJSON(fmt.Sprintf(`{"quay.io": {"auth": %q}, "quay.io/team": {"auth": %q}, "quay.io/team/a": {"auth": %q}, "https://quay.io/v1/": {"auth": %q}}`,
		auth("all", "1"), auth("team", "2"), auth("a", "3"), auth("api", "4")))
	for image, want := range map[string]string{"quay.io/team/a": "a", "quay.io/team/b": "team", "quay.io/b/team": "api"} {
		for range 20 {
			if got, err := credentialsFor(t.Context(), secret, "", image); err != nil || got.Username != want {
				t.Fatalf("%s: user %q, %v, want %q", image, got.Username, err, want)
			}
		}
	}
}

// As for the kubelet, a registry's own name counts more than a pattern.
func TestCredentialsOfPatterns(t *testing.T) {
	secret := dockerConfigJSON(fmt.Sprintf(`{"*.example.com/team/a": {"auth": %q}, "*.example.com": {"auth": %q}, "own.example.com": {"auth": %q}}`,
		auth("part", "1"), auth("all", "2"), auth("own", "3")))
	for image, want := range map[string]string{"r.example.com/team/a": "part", "r.example.com/b": "all", "own.example.com/team/a": "own"} {
		if got, err := credentialsFor(t.Context(), secret, "", image); err != nil || got.Username != want {
			t.Errorf("%s: user %q, %v, want %q", image, got.Username, err, want)
		}
	}
}

func TestCredentialsRefused(t *testing.T) {
	good := dockerConfigJSON(fmt.Sprintf(`{"quay.io": {"auth": %q}}`, auth("user", password)))
	opaque := good.DeepCopy()
	opaque.Type = corev1.SecretTypeOpaque
	empty := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson}
	noColon := base64.StdEncoding.EncodeToString([]byte("s3cr3t"))
	for name, c := range map[string]struct {
		secret    *corev1.Secret
		namespace string
		image     string
		want      string
	}{
		"absent":             {nil, "", "quay.io/a", `get pull Secret secrets/pull: secrets "pull" not found`},
		"wrong type":         {opaque, "", "quay.io/a", `pull Secret secrets/pull: its type is "Opaque" instead of kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg`},
		"no data":            {empty, "", "quay.io/a", "pull Secret secrets/pull: its key .dockerconfigjson is invalid"},
		"no JSON":            {dockerConfigJSON("{s3cr3t"), "", "quay.io/a", "pull Secret secrets/pull: its key .dockerconfigjson is invalid"},
		"no JSON, dockercfg": {dockercfg(`"s3cr3t"`), "", "quay.io/a", "pull Secret secrets/pull: its key .dockercfg is invalid"},
		"auth no string":     {dockercfg(`{"quay.io": {"auth": ["s3cr3t"]}}`), "", "quay.io/a", "pull Secret secrets/pull: its key .dockercfg is invalid"},
		"auth no base64":     {dockercfg(`{"quay.io": {"auth": "s3cr3t:s3cr3t"}}`), "", "quay.io/a", "pull Secret secrets/pull: the auth of a registry is not base64"},
		"auth no user":       {dockercfg(`{"quay.io": {"auth": "` + noColon + `"}}`), "", "quay.io/a", "pull Secret secrets/pull: the auth of a registry is not user:password"},
		"foreign namespace":  {good, "tenant", "quay.io/a", "pull Secret secrets/pull: programs in namespace tenant can only use Secrets in that namespace"},
		"malformed image":    {good, "", "UPPER CASE", `bytecode image "UPPER CASE": invalid reference format`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := credentialsFor(t.Context(), c.secret, c.namespace, c.image)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || got != (reader.Credentials{}) {
				t.Fatalf("got %v, %v, want %q", got, err, c.want)
			}
			if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), noColon) {
				t.Errorf("the error tells the Secret's content: %v", err)
			}
		})
	}
}

// A Secret is only read if the image names one, and never from another namespace.
func TestSecretsAreNotReadInVain(t *testing.T) {
	for name, c := range map[string]struct {
		image *v1alpha1.BytecodeImage
		fails bool
	}{
		"no image":          {nil, false},
		"no Secret":         {&v1alpha1.BytecodeImage{Url: "quay.io/a"}, false},
		"foreign namespace": {&v1alpha1.BytecodeImage{Url: "quay.io/a", ImagePullSecret: &v1alpha1.ImagePullSecretSelector{Name: "pull", Namespace: "secrets"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			unreadable := func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
				t.Errorf("Secret %s/%s was read", namespace, name)
				return nil, errors.New("not to be read")
			}
			if _, err := CredentialsFor(t.Context(), unreadable, "tenant", c.image); (err != nil) != c.fails {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// credentialsFor calls CredentialsFor in a cluster that only contains this Secret, or none if
// it is nil.
func credentialsFor(ctx context.Context, secret *corev1.Secret, namespace, image string) (reader.Credentials, error) {
	read := func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
		if secret == nil || namespace != "secrets" || name != "pull" {
			return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
		}
		return secret, nil
	}
	return CredentialsFor(ctx, read, namespace, &v1alpha1.BytecodeImage{
		Url: image, ImagePullSecret: &v1alpha1.ImagePullSecretSelector{Name: "pull", Namespace: "secrets"},
	})
}

// A Secret can have any content. Errors must not contain any of it, and the result must
// always be the same.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{
		`{"auths": {"quay.io": {"auth": "dXNlcjpzM2NyM3Q="}}}`, `{"quay.io": {"username": "user", "password": "s3cr3t"}}`,
		`{"auths": {"https://quay.io/v1/": {"auth": "===="}}}`, `{"auths": [{"quay.io": 1}]}`, `null`, `{"": {"auth": "Og=="}}`, `{"/": {}}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	known := map[string]bool{
		"its key .dockerconfigjson is invalid": true, "its key .dockercfg is invalid": true,
		"the auth of a registry is not base64": true, "the auth of a registry is not user:password": true,
	}
	f.Fuzz(func(t *testing.T, data []byte, newer bool) {
		secret := &corev1.Secret{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: data}}
		if newer {
			secret = &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: data}}
		}
		got, _, err := find(secret, "quay.io/a/b")
		if err != nil && (!known[err.Error()] || got != (reader.Credentials{})) {
			t.Errorf("got %v, %v", got, err)
		}
		again, _, err2 := find(secret, "quay.io/a/b")
		if got != again || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Errorf("first %v, %v, then %v, %v", got, err, again, err2)
		}
	})
}
