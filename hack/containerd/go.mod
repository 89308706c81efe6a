// The version of containerd for make test-first-packet is here. build.sh adds what it requires.
module github.com/bpfman/bpfman-operator/hack/containerd

go 1.26.6

require github.com/containerd/containerd/v2 v2.4.2
