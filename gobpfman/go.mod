module github.com/bpfman/bpfman

go 1.26.0
