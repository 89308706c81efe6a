// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import (
	"fmt"
	"os"

	"github.com/bpfman/bpfman-operator/hack/cluster/pki"
)

// users are the users that get a kubeconfig. Kubernetes' default roles are bound to their
// groups.
var users = map[string]pki.Subject{
	"admin":                   {CommonName: "kubernetes-admin", Groups: []string{"system:masters"}},
	"kube-controller-manager": {CommonName: "system:kube-controller-manager"},
	"kube-scheduler":          {CommonName: "system:kube-scheduler"},
	"kube-proxy":              {CommonName: "system:kube-proxy"},
}

// clusterCA is the certificate authority that the API server and its clients trust.
const clusterCA = "ca"

// authorities returns the certificate authorities, with the certificates that each signs.
// The registry has a separate authority, because the daemon's image trusts it.
func authorities(s Settings) map[string]map[string]pki.Subject {
	ip := s.IP.Addr().String()
	return map[string]map[string]pki.Subject{
		clusterCA: {
			"apiserver": {CommonName: "kube-apiserver", Names: []string{
				ip, s.Services.Addr().Next().String(), "127.0.0.1", "localhost", s.Node,
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			}},
			"apiserver-kubelet": {CommonName: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
			// The key for the tokens of ServiceAccounts. The certificate isn't used.
			"service-accounts": {CommonName: "service-accounts"},
		},
		"front-proxy-ca": {"front-proxy": {CommonName: "front-proxy-client"}},
		"registry-ca": {"registry": {
			CommonName: "registry",
			Names:      append([]string{ip, "127.0.0.1", "localhost"}, Registries...),
		}},
	}
}

// writeCredentials creates the certificates and kubeconfigs in pki/, except for those that
// are specific to a node.
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
		for file, subject := range users {
			if err := writeUser(s, signer, file, subject); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeNodeCredentials creates the certificates and the kubeconfig of the node's kubelet.
func writeNodeCredentials(s Settings) error {
	ca, err := pki.Read(s.Dir("pki"), clusterCA)
	if err != nil {
		return err
	}
	server, err := ca.Issue(pki.Subject{CommonName: "kubelet", Names: []string{s.IP.Addr().String(), s.Node, "127.0.0.1", "localhost"}})
	if err != nil {
		return err
	}
	if err := server.Write(s.Dir("pki"), "kubelet"); err != nil {
		return err
	}
	return writeUser(s, ca, "kubelet", pki.Subject{CommonName: "system:node:" + s.Node, Groups: []string{"system:nodes"}})
}

// writeUser creates the certificate and the kubeconfig of a user.
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
		return fmt.Errorf("write the kubeconfig of %s: %w", file, err)
	}
	return nil
}
