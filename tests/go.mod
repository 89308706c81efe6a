module github.com/bpfman/bpfman-operator/tests

go 1.26.0

require (
	github.com/bpfman/bpfman v0.0.0
	github.com/bpfman/bpfman-operator/examples v0.0.0
	github.com/cilium/ebpf v0.22.0
	github.com/google/go-containerregistry v0.22.1
	golang.org/x/sys v0.48.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.3 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/bpfman/bpfman-operator/examples => ../examples

replace github.com/bpfman/bpfman => ../gobpfman
