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

##@ One-node cluster

##@ Deployment

##@ Tests and benchmarks
