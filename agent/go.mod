module github.com/bpfman/bpfman-operator/agent

go 1.26.0
