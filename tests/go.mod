module github.com/bpfman/bpfman-operator/tests

go 1.26.0
