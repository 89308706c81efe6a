module github.com/bpfman/bpfman-operator/csi

go 1.26.0

require (
	github.com/cilium/ebpf v0.22.0
	golang.org/x/sys v0.49.0
)

require golang.org/x/sync v0.23.0 // indirect

replace github.com/bpfman/bpfman => ../gobpfman
