// The version of Kubernetes is here. build.sh adds what it requires.
module github.com/bpfman/bpfman-operator/hack/kubernetes

go 1.26.0

godebug default=go1.26

require k8s.io/kubernetes v1.37.2
