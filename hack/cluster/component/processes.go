// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package component

import "slices"

// Process is a program that runs on the node all the time.
type Process struct {
	Name string
	Path string // the file to execute; if it is "", Name is looked up in PATH
	Args []string
	// NeedsAPI delays the start until the API server is ready, because the process would
	// otherwise exit.
	NeedsAPI bool
}

// Processes returns the node's components, in the order in which to start them.
func Processes(s Settings) []Process {
	ofEachNode := []string{"containerd", "kubelet", "kube-proxy"}
	return slices.DeleteFunc(processes(s), func(p Process) bool {
		if slices.Contains(ofEachNode, p.Name) {
			return !s.RunsPods()
		}
		return !s.HasControlPlane()
	})
}

// Names returns the names of the node's components.
func Names(s Settings) []string {
	var names []string
	for _, process := range Processes(s) {
		names = append(names, process.Name)
	}
	return names
}

func processes(s Settings) []Process {
	pki := func(name string) string { return s.Dir("pki", name) }
	etc := func(name string) string { return s.Dir("etc", name) }
	return []Process{
		{Name: "etcd", Path: s.Kubernetes, Args: []string{
			"--data-dir=" + s.Dir("etcd"),
			"--listen-client-urls=http://127.0.0.1:2379",
			"--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
			"--unsafe-no-fsync", // the cluster doesn't outlive its machine
			"--log-level=warn",
		}},
		{Name: "containerd", Path: s.containerd("containerd"), Args: []string{"--config=" + etc("containerd.toml")}},
		{Name: "kube-apiserver", Path: s.Kubernetes, Args: apiServerArgs(s)},
		{Name: "kube-controller-manager", Path: s.Kubernetes, NeedsAPI: true, Args: []string{
			"--kubeconfig=" + pki("kube-controller-manager.kubeconfig"),
			"--authentication-kubeconfig=" + pki("kube-controller-manager.kubeconfig"),
			"--authorization-kubeconfig=" + pki("kube-controller-manager.kubeconfig"),
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + pki("service-accounts.key"),
			"--root-ca-file=" + pki("ca.crt"),
			"--cluster-signing-cert-file=" + pki("ca.crt"),
			"--cluster-signing-key-file=" + pki("ca.key"),
			"--node-monitor-grace-period=20s",
		}},
		{Name: "kube-scheduler", Path: s.Kubernetes, NeedsAPI: true, Args: []string{
			"--kubeconfig=" + pki("kube-scheduler.kubeconfig"),
			"--authentication-kubeconfig=" + pki("kube-scheduler.kubeconfig"),
			"--authorization-kubeconfig=" + pki("kube-scheduler.kubeconfig"),
			"--leader-elect=false",
		}},
		{Name: "kubelet", Path: s.Kubernetes, NeedsAPI: true, Args: []string{
			"--config=" + etc("kubelet.yaml"),
			"--kubeconfig=" + pki("kubelet.kubeconfig"),
			"--hostname-override=" + s.Node,
			"--node-ip=" + s.IP.Addr().String(),
		}},
		{Name: "kube-proxy", Path: s.Kubernetes, NeedsAPI: true, Args: []string{
			"--config=" + etc("kube-proxy.yaml"),
		}},
	}
}

func apiServerArgs(s Settings) []string {
	pki := func(name string) string { return s.Dir("pki", name) }
	return []string{
		"--advertise-address=" + s.IP.Addr().String(),
		"--secure-port=" + apiPort,
		"--etcd-servers=http://127.0.0.1:2379",
		"--service-cluster-ip-range=" + s.Services.String(),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("service-accounts.crt"),
		"--service-account-signing-key-file=" + pki("service-accounts.key"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"),
		"--proxy-client-key-file=" + pki("front-proxy.key"),
		"--audit-policy-file=" + s.Dir("etc", "audit.yaml"),
		"--audit-log-path=" + s.Log("audit"),
		"--audit-log-mode=batch",
		"--audit-log-maxsize=100",
		"--audit-log-maxbackup=1",
	}
}
