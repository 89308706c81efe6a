module github.com/bpfman/bpfman-operator/examples

go 1.26.0
