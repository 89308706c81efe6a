module github.com/bpfman/bpfman-operator/operator

go 1.26.0
