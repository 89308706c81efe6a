module github.com/bpfman/bpfman-operator/hack/kubernetes/oldest

go 1.22.0

require k8s.io/kubernetes v1.30.14
