module github.com/bpfman/bpfman-operator/examples

go 1.26.0

require (
	github.com/bpfman/bpfman-operator/apis v0.0.0
	github.com/cilium/ebpf v0.22.0
	github.com/google/go-containerregistry v0.22.1
	github.com/prometheus/client_golang v1.24.1
	github.com/prometheus/common v0.70.1
	golang.org/x/sys v0.49.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/bpfman/bpfman-operator/agent v0.0.0 // indirect
	github.com/distribution/reference v0.6.0 // indirect
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/bpfman/bpfman-operator/cli v0.0.0-00010101000000-000000000000
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.3 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	golang.org/x/sync v0.23.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/bpfman/bpfman-operator/cli => ../cli

replace github.com/bpfman/bpfman-operator/apis => ../apis

replace github.com/bpfman/bpfman-operator/agent => ../agent

replace github.com/bpfman/bpfman-operator/kinds => ../kinds

replace github.com/bpfman/bpfman => ../gobpfman
