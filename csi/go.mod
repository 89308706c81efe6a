module github.com/bpfman/bpfman-operator/csi

go 1.26.0
