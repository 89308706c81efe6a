module github.com/bpfman/bpfman-operator/apis

go 1.26.0
