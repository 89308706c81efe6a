// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package cluster reads and changes bpfman's objects, and reads related objects, in the cluster that kubectl's flags and
// the kubeconfig select.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bpfman/bpfman-operator/apis/definitions"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	"github.com/bpfman/bpfman-operator/internal/kinds"
)

// NodePods are the labels of node pods.
var NodePods = client.MatchingLabels{"name": "bpfman-daemon"}

const (
	// requestTimeout is the timeout of each request without --request-timeout.
	requestTimeout = 30 * time.Second
	// page is the number of objects in a page of a list.
	page = 500
)

// Cluster is a connection to a cluster.
type Cluster struct {
	client.Reader
	// Writer changes objects.
	Writer client.Writer
	// Scheme has the kinds of the cluster. It can be nil for those of v0.5.
	Scheme *runtime.Scheme
	// API is a client for bpfman's API, for lists that are too large for memory.
	API rest.Interface
	// Config is for requests that a Reader doesn't support, such as exec.
	Config *rest.Config
	// Namespace is the namespace from --namespace or from the context.
	Namespace string
	// Context is the name of the context in the kubeconfig, or the address of the API server if there is none.
	Context string
	// Flags are the flags with which other commands reach the same cluster, quoted for a shell.
	Flags string
}

// Connect returns the cluster when a command needs it. It sends one request, for the kinds that the cluster has.
type Connect func() (*Cluster, error)

// With returns a Connect for kubectl's flags.
func With(flags *genericclioptions.ConfigFlags) Connect {
	return func() (*Cluster, error) {
		config, err := flags.ToRESTConfig()
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil, fmt.Errorf("read namespace of kubeconfig: %w", err)
		}
		// Warnings of the API server are for users who write objects.
		config.WarningHandler = rest.NoWarnings{}
		requests := rest.CopyConfig(config)
		if requests.Timeout == 0 {
			requests.Timeout = requestTimeout
		}
		// Leave rate limiting to the API server.
		requests.QPS = -1
		asks, err := discovery.NewDiscoveryClientForConfig(requests)
		if err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
		served, _ := definitions.Served(context.Background(), asks.RESTClient()) // what follows fails too, and says why
		scheme := Scheme(served...)
		objects, err := client.New(requests, client.Options{Scheme: scheme, Mapper: mapper(scheme)})
		if err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
		api, err := kinds.NewClient(requests, scheme)
		if err != nil {
			return nil, fmt.Errorf("create client: %w", err)
		}
		from := &reader{objects, api, scheme, runtime.NewParameterCodec(scheme)}
		return &Cluster{Reader: from, Writer: objects, Scheme: scheme, API: api, Config: config, Namespace: namespace, Context: contextOf(flags, config), Flags: quoted(flags)}, nil
	}
}

func contextOf(flags *genericclioptions.ConfigFlags, config *rest.Config) string {
	raw, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return config.Host
	}
	return cmp.Or(ptr.Deref(flags.Context, ""), raw.CurrentContext, config.Host)
}

// quoted returns the flags that select a cluster, a user, and whom the user acts as. Without one of them, a copied command
// would run with other rights. The token and the password are variables of the shell instead: they must not appear on a
// page, or in a shell's history.
func quoted(flags *genericclioptions.ConfigFlags) string {
	var words strings.Builder
	add := func(name string, values ...string) {
		for _, value := range values {
			if value != "" {
				words.WriteString(" --" + name + " '" + strings.ReplaceAll(value, "'", `'\''`) + "'")
			}
		}
	}
	for _, f := range []struct {
		name  string
		value *string
	}{
		{"kubeconfig", flags.KubeConfig},
		{"context", flags.Context},
		{"cluster", flags.ClusterName},
		{"user", flags.AuthInfoName},
		{"server", flags.APIServer},
		{"tls-server-name", flags.TLSServerName},
		{"certificate-authority", flags.CAFile},
		{"client-certificate", flags.CertFile},
		{"client-key", flags.KeyFile},
		{"proxy-url", flags.ProxyURL},
		{"username", flags.Username},
		{"as", flags.Impersonate},
		{"as-uid", flags.ImpersonateUID},
	} {
		add(f.name, ptr.Deref(f.value, ""))
	}
	add("as-group", ptr.Deref(flags.ImpersonateGroup, nil)...)
	add("as-user-extra", ptr.Deref(flags.ImpersonateUserExtra, nil)...)
	if ptr.Deref(flags.Insecure, false) {
		words.WriteString(" --insecure-skip-tls-verify")
	}
	for _, secret := range []struct {
		flag  string
		value *string
	}{{` --token "$TOKEN"`, flags.BearerToken}, {` --password "$PASSWORD"`, flags.Password}} {
		if ptr.Deref(secret.value, "") != "" {
			words.WriteString(secret.flag)
		}
	}
	return words.String()
}

// Scheme returns a scheme with the kinds that commands use, as a cluster serves them.
func Scheme(served ...metav1.APIResource) *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), definitions.Install(scheme, served)); err != nil {
		panic(err) // two compiled kinds have the same name
	}
	return scheme
}

// mapper returns a RESTMapper for the kinds that commands use. It saves the discovery of all the kinds of the API
// server.
func mapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.SchemeGroupVersion, corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), meta.RESTScopeNamespace)
	for _, k := range v1alpha1.AllKindsOf(scheme) {
		mapper.Add(k.GroupVersionKind(), k.Scope())
	}
	for kind, scope := range map[string]meta.RESTScope{
		"ConfigMap": meta.RESTScopeNamespace, "Event": meta.RESTScopeNamespace, "Namespace": meta.RESTScopeRoot,
		"Node": meta.RESTScopeRoot, "Pod": meta.RESTScopeNamespace,
	} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), scope)
	}
	return mapper
}

// All lists objects. It returns an empty slice instead of nil if there are none.
func All[T any, O interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, list client.ObjectList, options ...client.ListOption) ([]T, error) {
	objects := []T{}
	err := Each(ctx, from, list, func(o O) error {
		objects = append(objects, *o)
		return nil
	}, options...)
	if err != nil {
		return nil, err
	}
	return objects, nil
}

// Each lists objects in pages, which limits the memory on both sides, and calls visit with each object. To set the
// page size, pass a limit in options.
func Each[O client.Object](ctx context.Context, from client.Reader, list client.ObjectList, visit func(O) error, options ...client.ListOption) error {
	options = append([]client.ListOption{client.Limit(page)}, options...)
	for next := ""; ; {
		if err := from.List(ctx, list, append(options, client.Continue(next))...); err != nil {
			return err //nolint:wrapcheck // it says what was listed
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			o, ok := item.(O)
			if !ok {
				return fmt.Errorf("a list has an item of %T", item)
			}
			return visit(o)
		})
		if err != nil {
			return err
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
		// List leaves fields unchanged that a page doesn't have.
		if err := meta.SetList(list, nil); err != nil {
			return fmt.Errorf("empty a list: %w", err)
		}
		list.SetContinue("")
	}
}
