# The commands, their images, and the example programs.

##@ Build

# The commands in the images.
COMMANDS = $(patsubst %/main.go,%,$(wildcard $(patsubst %,%/cmd/*/main.go,operator agent reader inspector csi) \
	examples/cmd/counters/main.go examples/cmd/firewall/main.go examples/cmd/go-target/main.go examples/cmd/map-exporter/main.go tests/cmd/*/main.go))
# A uprobe finds a function of these by its symbol.
LDFLAGS = $(if $(filter %/go-target %/first-packet,$1),,-s -w) -X github.com/bpfman/bpfman-operator/apis/version.Version=$(VERSION)
# Without gRPC's tracing pages, nothing calls methods by name, so the linker removes unused methods: a quarter of
# each binary, which the node components would otherwise have in memory.
TAGS = grpcnotrace

# With BUILT=yes, bin/ isn't rebuilt, so that several instances of make can run at the same time.
UNLESS_BUILT = $(if $(BUILT),@: )

.PHONY: $(COMMANDS:%=build/%)
$(COMMANDS:%=build/%): build/%:
	$(UNLESS_BUILT)go -C $(firstword $(subst /, ,$*)) build -trimpath -tags $(TAGS) -ldflags "$(call LDFLAGS,$*)" -o $(LOCALBIN)/$(notdir $*) ./cmd/$(notdir $*)

# The registry for the project's images. The daemon's image is upstream's.
IMAGE_PREFIX ?= quay.io/bpfman
IMAGE_TAG ?= latest
BPFMAN_OPERATOR_IMG ?= $(IMAGE_PREFIX)/bpfman-operator:$(IMAGE_TAG)
BPFMAN_AGENT_IMG ?= $(IMAGE_PREFIX)/bpfman-agent:$(IMAGE_TAG)
BPFMAN_CSI_IMG ?= $(IMAGE_PREFIX)/bpfman-csi:$(IMAGE_TAG)
BPFMAN_INSPECTOR_IMG ?= $(IMAGE_PREFIX)/bpfman-inspector:$(IMAGE_TAG)
BPFMAN_COUNTERS_IMG ?= $(IMAGE_PREFIX)/bpfman-counters:$(IMAGE_TAG)
BPFMAN_MAP_EXPORTER_IMG ?= $(IMAGE_PREFIX)/bpfman-map-exporter:$(IMAGE_TAG)
BPFMAN_GO_TARGET_IMG ?= $(IMAGE_PREFIX)/bpfman-go-target:$(IMAGE_TAG)
BPFMAN_FIREWALL_IMG ?= $(IMAGE_PREFIX)/bpfman-firewall:$(IMAGE_TAG)
BPFMAN_NODE_PROBE_IMG ?= $(IMAGE_PREFIX)/bpfman-node-probe:$(IMAGE_TAG)
# docker or podman, depending on which one runs. Upstream's name for the variable is OCI_BIN.
CONTAINER_ENGINE ?= $(or $(OCI_BIN),$(firstword $(foreach engine,docker podman,$(if $(shell $(engine) info >/dev/null 2>&1 && echo yes),$(engine)))))

NEEDS = CONTAINER_ENGINE="$(CONTAINER_ENGINE)" KUBECTL="$(KUBECTL)" hack/needs.sh
# Docker 20.10 needs this to build the Dockerfile. It is the default of later versions.
export DOCKER_BUILDKIT ?= 1

.PHONY: container-engine
container-engine:
	@$(NEEDS) engine

.PHONY: image-builder
image-builder:
	@$(NEEDS) engine buildkit

# The images, by their targets in the Dockerfile. BUILT_IMAGES are their names.
IMAGES = operator=$(BPFMAN_OPERATOR_IMG) agent=$(BPFMAN_AGENT_IMG) csi=$(BPFMAN_CSI_IMG) inspector=$(BPFMAN_INSPECTOR_IMG) \
	counters=$(BPFMAN_COUNTERS_IMG) map-exporter=$(BPFMAN_MAP_EXPORTER_IMG) go-target=$(BPFMAN_GO_TARGET_IMG) firewall=$(BPFMAN_FIREWALL_IMG) \
	node-probe=$(BPFMAN_NODE_PROBE_IMG)
BUILT_IMAGES = $(foreach image,$(IMAGES),$(lastword $(subst =, ,$(image))))
IMAGE_TARGETS = $(foreach image,$(IMAGES),build-$(firstword $(subst =, ,$(image)))-image)

.PHONY: $(IMAGE_TARGETS)
$(IMAGE_TARGETS): build-%-image: image-builder
	$(CONTAINER_ENGINE) build --target $* -t $(patsubst $*=%,%,$(filter $*=%,$(IMAGES))) .

# Example eBPF programs. Their objects don't use CO-RE, and work on every kernel that supports their program types.
BYTECODE := $(patsubst examples/bytecode/%.bpf.c,$(LOCALBIN)/bytecode/%.o,$(wildcard examples/bytecode/*.bpf.c))
CLANG ?= clang
# Debian has asm/types.h in the directory for the machine's architecture.
BPF_CFLAGS ?= -O2 -g -target bpf -Wall -Werror -ffile-prefix-map=$(CURDIR)/= -fdebug-compilation-dir=. $(if $(MULTIARCH),-I/usr/include/$(MULTIARCH))
MULTIARCH = $(shell gcc -print-multiarch 2>/dev/null)
BYTECODE_REGISTRY ?= quay.io
BYTECODE_PREFIX ?= bpfman-bytecode
BYTECODE_PUSH_FLAGS ?=
# The sample for registries with a login.
BYTECODE_ALIAS := xdp_pass_private=xdp_pass

.PHONY: bytecode
bytecode: $(BYTECODE) ## Compile the example eBPF programs to bin/bytecode.

$(LOCALBIN)/bytecode/%.o: examples/bytecode/%.bpf.c $(wildcard examples/bytecode/*.h)
	@mkdir -p $(@D)
	$(CLANG) $(BPF_CFLAGS) -c $< -o $@

.PHONY: push-bytecode
push-bytecode: bytecode ## Push a bytecode image of each example program to BYTECODE_REGISTRY.
	go -C examples run ./cmd/bytecode-images --objects $(LOCALBIN)/bytecode --push $(BYTECODE_REGISTRY) --prefix $(BYTECODE_PREFIX) --alias $(BYTECODE_ALIAS) $(BYTECODE_PUSH_FLAGS)
