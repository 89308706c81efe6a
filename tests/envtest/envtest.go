// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package envtest provides a real etcd and kube-apiserver with the project's
// CustomResourceDefinitions for tests, started once for each test binary:
//
//	func TestMain(m *testing.M) { envtest.Main(m) }
//	func TestX(t *testing.T) { c := envtest.Config(t) … }
//
// The binaries come from KUBEBUILDER_ASSETS, which `make test-envtest` sets. Without it,
// these tests are skipped.
package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/prerequisite"
	"github.com/bpfman/bpfman-operator/tests/eventually"
	"github.com/bpfman/bpfman-operator/tests/must"
)

// controller-runtime defines the name of the variable.
const assetsVariable = "KUBEBUILDER_ASSETS"

var config *rest.Config

// Main runs the tests of a package in the environment, and exits.
func Main(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "envtest:", err)
		code = 1
	}
	os.Exit(code)
}

// Config returns the configuration of a client with all permissions. It skips the test if
// there is no environment.
func Config(tb testing.TB) *rest.Config {
	tb.Helper()
	if config == nil {
		prerequisite.Missing(tb, assetsVariable+" isn't set: run `make test-envtest`", prerequisite.Envtest)
	}
	return rest.CopyConfig(config)
}

// Kubeconfig returns the path of a file with this configuration for other programs.
func Kubeconfig(tb testing.TB) string {
	tb.Helper()
	return KubeconfigOf(tb, Config(tb))
}

// KubeconfigOf returns the path of a file with a configuration.
func KubeconfigOf(tb testing.TB, c *rest.Config) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	must.Succeed(tb, WriteKubeconfig(path, c))
	return path
}

// WriteKubeconfig writes a configuration to a file.
func WriteKubeconfig(path string, c *rest.Config) error {
	access := clientcmdapi.NewConfig()
	access.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	access.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}
	access.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	access.CurrentContext = "test"
	return clientcmd.WriteToFile(*access, path)
}

// Cluster is the API server, with what kubectl needs to reach it.
type Cluster struct {
	client.Client

	Config *rest.Config
	// Kubeconfig is the path of a file for kubectl.
	Kubeconfig string
}

// Connect returns the API server of the tests.
func Connect(tb testing.TB) *Cluster {
	tb.Helper()
	config := Config(tb)
	return &Cluster{Client(tb, config), config, Kubeconfig(tb)}
}

// Scheme has the kinds of Kubernetes, of bpfman, and CustomResourceDefinitions.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.Install(scheme)))
	return scheme
})

// Client returns a client with a configuration, such as that of [Config] or [As].
func Client(tb testing.TB, config *rest.Config) client.Client {
	tb.Helper()
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Patience is how long a test waits for what has to happen.
const Patience = time.Minute

// Eventually waits until check returns nil, and ends the test with its last error after [Patience].
func Eventually(tb testing.TB, what string, check func(ctx context.Context) error) {
	tb.Helper()
	// Cleanups wait too, and the test's context has ended by then.
	if err := eventually.Succeeds(context.WithoutCancel(tb.Context()), Patience, 20*time.Millisecond, check); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv(assetsVariable) == "" {
		return m.Run(), nil
	}
	definitions, err := Definitions()
	if err != nil {
		return 0, err
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{definitions}, ErrorIfCRDPathMissing: true}
	// OpenShift enables it.
	environment.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	config, err = environment.Start()
	defer func() { // they also run if the server refuses the definitions
		if stopErr := environment.Stop(); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("stop etcd and kube-apiserver: %w", stopErr))
		}
	}()
	if err != nil {
		return 0, fmt.Errorf("start etcd and kube-apiserver of %s: %w", os.Getenv(assetsVariable), err)
	}
	// Tests create many objects. The client must not limit their rate.
	config.QPS = -1
	return m.Run(), nil
}

// Definitions finds config/crd/bases above the working directory, which is the package of a
// test.
func Definitions() (string, error) {
	root, err := repository()
	return filepath.Join(root, "config", "crd", "bases"), err
}

// repository finds the repository above the working directory.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for directory := start; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, "config", "crd", "bases")); err == nil {
			return directory, nil
		}
		if directory == filepath.Dir(directory) {
			return "", fmt.Errorf("no config/crd/bases above %s", start)
		}
	}
}
