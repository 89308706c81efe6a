// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import (
	"fmt"
	"os"

	"github.com/bpfman/bpfman-operator/hack/cluster/pki"
)

// users have a kubeconfig each; the groups are those that Kubernetes' own roles are bound to.
var users = []struct {
	file    string
	subject func(Settings) pki.Subject
}{
	{"admin", user("kubernetes-admin", "system:masters")},
	{"kube-controller-manager", user("system:kube-controller-manager")},
	{"kube-scheduler", user("system:kube-scheduler")},
	{"kube-proxy", user("system:kube-proxy")},
	{"kubelet", func(s Settings) pki.Subject {
		return pki.Subject{CommonName: "system:node:" + s.Node, Groups: []string{"system:nodes"}}
	}},
}

func user(name string, groups ...string) func(Settings) pki.Subject {
	return func(Settings) pki.Subject { return pki.Subject{CommonName: name, Groups: groups} }
}

// clusterCA is the authority that the API server and its clients trust.
const clusterCA = "ca"

// authorities, and the certificates that each signs. The registry's authority
// is apart because the daemon's image trusts it.
func authorities(s Settings) map[string]map[string]pki.Subject {
	ip := s.IP.Addr().String()
	return map[string]map[string]pki.Subject{
		clusterCA: {
			"apiserver": {CommonName: "kube-apiserver", Names: []string{
				ip, s.Services.Addr().Next().String(), "127.0.0.1", "localhost", s.Node,
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			}},
			"apiserver-kubelet": {CommonName: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
			"kubelet":           {CommonName: "kubelet", Names: []string{s.NodeIP.String(), s.Node, "127.0.0.1", "localhost"}},
			// Signs the tokens of ServiceAccounts; only its key is used.
			"service-accounts": {CommonName: "service-accounts"},
		},
		"front-proxy-ca": {"front-proxy": {CommonName: "front-proxy-client"}},
		"registry-ca": {"registry": {
			CommonName: "registry",
			Names:      append([]string{ip, "127.0.0.1", "localhost"}, Registries...),
		}},
	}
}

// writeCredentials makes the certificates and kubeconfigs under pki/.
func writeCredentials(s Settings) error {
	for authority, subjects := range authorities(s) {
		signer, err := pki.NewCA("bpfman cluster " + authority)
		if err != nil {
			return err
		}
		if err := signer.Write(s.Dir("pki"), authority); err != nil {
			return err
		}
		for name, subject := range subjects {
			pair, err := signer.Issue(subject)
			if err != nil {
				return err
			}
			if err := pair.Write(s.Dir("pki"), name); err != nil {
				return err
			}
		}
		if authority != clusterCA {
			continue
		}
		for _, u := range users {
			if err := writeUser(s, signer, u.file, u.subject(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeUser makes the certificate and the kubeconfig of a user.
func writeUser(s Settings, ca *pki.Pair, file string, subject pki.Subject) error {
	client, err := ca.Issue(subject)
	if err != nil {
		return err
	}
	if err := client.Write(s.Dir("pki"), file+"-user"); err != nil {
		return err
	}
	kubeconfig, err := pki.Kubeconfig(s.Server(), ca, client)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.Dir("pki", file+".kubeconfig"), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", file, err)
	}
	return nil
}
