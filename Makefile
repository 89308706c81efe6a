# bpfman-operator: `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

LOCALBIN ?= $(CURDIR)/bin
# Heavy builds (Kubernetes, the daemon) are kept outside the clone, keyed by version.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bpfman-operator
MODULES := apis gobpfman agent csi operator examples tests
export CGO_ENABLED ?= 0

##@ General

.PHONY: help
help: ## Display this help.
	@awk 'BEGIN {FS = ":.*##"; printf "\nUsage:\n  make <target>\n"} /^[a-zA-Z_0-9-]+:.*?##/ { printf "  \033[36m%-24s\033[0m %s\n", $$1, $$2 } /^##@/ { printf "\n%s\n", substr($$0, 5) }' $(MAKEFILE_LIST)

##@ Local Dependencies

##@ Development

##@ Build

# Example eBPF programs. Their objects work on every kernel that has their program types: no CO-RE.
BYTECODE := $(patsubst examples/bytecode/%.bpf.c,$(LOCALBIN)/bytecode/%.o,$(wildcard examples/bytecode/*.bpf.c))
CLANG ?= clang
# Debian keeps asm/types.h in the directory of the machine's own architecture.
BPF_CFLAGS ?= -O2 -g -target bpf -Wall -Werror -ffile-prefix-map=$(CURDIR)/= -fdebug-compilation-dir=. $(if $(MULTIARCH),-I/usr/include/$(MULTIARCH))
MULTIARCH = $(shell gcc -print-multiarch 2>/dev/null)
BYTECODE_REGISTRY ?= quay.io
BYTECODE_PREFIX ?= bpfman-bytecode
BYTECODE_PUSH_FLAGS ?=

.PHONY: bytecode
bytecode: $(BYTECODE) ## Compile the example eBPF programs to bin/bytecode.

$(LOCALBIN)/bytecode/%.o: examples/bytecode/%.bpf.c $(wildcard examples/bytecode/*.h)
	@mkdir -p $(@D)
	$(CLANG) $(BPF_CFLAGS) -c $< -o $@

.PHONY: push-bytecode
push-bytecode: bytecode ## Push a bytecode image per example program to BYTECODE_REGISTRY.
	go -C examples run ./cmd/bytecode-images --objects $(LOCALBIN)/bytecode --push $(BYTECODE_REGISTRY) --prefix $(BYTECODE_PREFIX) --alias xdp_pass_private=xdp_pass $(BYTECODE_PUSH_FLAGS)

##@ One-node cluster

##@ Deployment

##@ Tests and benchmarks
