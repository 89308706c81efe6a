# Tools, and Kubernetes and the daemon, which the tests run.

##@ Local Dependencies

# go install builds each tool to bin/ on first use, and again if the version here isn't the one in bin/. A tool's
# own go.mod selects the versions of its dependencies.
CODE_GENERATOR := k8s.io/code-generator/cmd
CODE_GENERATOR_VERSION := v0.37.2
KIND_VERSION := v0.33.0
KWOK_VERSION := v0.8.0
# The release whose definitions the example for Kyverno is compared with.
KYVERNO_VERSION := v1.19.1
$(LOCALBIN)/client-gen: PACKAGE = $(CODE_GENERATOR)/client-gen@$(CODE_GENERATOR_VERSION)
$(LOCALBIN)/informer-gen: PACKAGE = $(CODE_GENERATOR)/informer-gen@$(CODE_GENERATOR_VERSION)
$(LOCALBIN)/lister-gen: PACKAGE = $(CODE_GENERATOR)/lister-gen@$(CODE_GENERATOR_VERSION)
$(LOCALBIN)/register-gen: PACKAGE = $(CODE_GENERATOR)/register-gen@$(CODE_GENERATOR_VERSION)
$(LOCALBIN)/controller-gen: PACKAGE = sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
$(LOCALBIN)/crd-ref-docs: PACKAGE = github.com/elastic/crd-ref-docs@v0.3.0
$(LOCALBIN)/kustomize: PACKAGE = sigs.k8s.io/kustomize/kustomize/v5@v5.8.2
$(LOCALBIN)/gofumpt: PACKAGE = mvdan.cc/gofumpt@v0.12.0
$(LOCALBIN)/golangci-lint: PACKAGE = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
$(LOCALBIN)/setup-envtest: PACKAGE = sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1
$(LOCALBIN)/helm: PACKAGE = helm.sh/helm/v4/cmd/helm@v4.3.1
$(LOCALBIN)/kind: PACKAGE = sigs.k8s.io/kind@$(KIND_VERSION)
$(LOCALBIN)/kwok: PACKAGE = sigs.k8s.io/kwok/cmd/kwok@$(KWOK_VERSION)
$(LOCALBIN)/registry: PACKAGE = github.com/distribution/distribution/v3/cmd/registry@v3.1.2
$(LOCALBIN)/oras: PACKAGE = oras.land/oras/cmd/oras@v1.3.6
$(LOCALBIN)/cosign: PACKAGE = github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
$(LOCALBIN)/actionlint: PACKAGE = github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
$(LOCALBIN)/govulncheck: PACKAGE = golang.org/x/vuln/cmd/govulncheck@v1.9.0
# Its parsers for programming languages are written in C.
$(LOCALBIN)/vale: PACKAGE = github.com/vale-cli/vale/v3/cmd/vale@v3.20.0
$(LOCALBIN)/vale: export CGO_ENABLED = 1

TOOLS := client-gen informer-gen lister-gen register-gen controller-gen crd-ref-docs kustomize \
	gofumpt golangci-lint setup-envtest helm kind kwok cosign registry oras actionlint govulncheck vale
$(TOOLS:%=$(LOCALBIN)/%): hack/make/tools.mk
	@mkdir -p $(@D)
	@echo "building $(@F)" >&2
	@GOBIN=$(@D) GOWORK=off go install $(PACKAGE) && touch $@

# A package of PyPI with one program, in a virtual environment of its own.
$(LOCALBIN)/zizmor: hack/release/workflows/zizmor.txt
	@rm -rf $(LOCALBIN)/zizmor-venv && $(PYTHON) -m venv $(LOCALBIN)/zizmor-venv
	@$(LOCALBIN)/zizmor-venv/bin/pip install -q --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@ln -sf zizmor-venv/bin/zizmor $@

# go install refuses Prometheus, whose go.mod replaces modules, and asks for the list of a module's versions, which some
# module proxies don't have for opm. They are built in a new module.
$(LOCALBIN)/opm: MODULE = github.com/operator-framework/operator-registry@v1.73.0
# Without the tags, opm needs C libraries for image signatures.
$(LOCALBIN)/opm: TOOL_FLAGS = -tags json1,containers_image_openpgp
# With only the service discovery that the tutorial uses, and without the web pages.
$(LOCALBIN)/prometheus $(LOCALBIN)/promtool: MODULE = github.com/prometheus/prometheus@v0.313.5
$(LOCALBIN)/prometheus $(LOCALBIN)/promtool: TOOL_FLAGS = -trimpath -ldflags "-s -w" -tags remove_all_sd,enable_kubernetes_sd

OTHER_TOOLS := opm prometheus promtool
$(OTHER_TOOLS:%=$(LOCALBIN)/%): hack/make/tools.mk
	@mkdir -p $(@D)
	@echo "building $(@F)" >&2
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && cd "$$dir" && export GOWORK=off GOFLAGS=-mod=mod && \
		go mod init tool 2>/dev/null && go mod edit -require $(MODULE) && \
		go build $(TOOL_FLAGS) -o $@ $(firstword $(subst @, ,$(MODULE)))/cmd/$(@F) && touch $@

# module_files MODULE@VERSION is a command that prints the directory of the module's files.
module_files = go mod download -json $1 | sed -n 's/.*"Dir": "\(.*\)",/\1/p'

# The linker for eBPF programs in Rust uses the LLVM of the compiler that builds it. The tutorial names both
# versions.
RUST_TOOLCHAIN = $(shell sed -n 's/^channel = "\(.*\)"/\1/p' docs/tutorials/program-in-rust.md)
BPF_LINKER_VERSION := 0.10.4
BPF_LINKER = $(CACHE)/bpf-linker-$(BPF_LINKER_VERSION)/bin/bpf-linker
$(LOCALBIN)/bpf-linker: $(BPF_LINKER)
	@mkdir -p $(@D)
	@ln -sf $< $@

$(BPF_LINKER):
	rustup toolchain install $(RUST_TOOLCHAIN) --profile minimal --component rust-src
	cargo +$(RUST_TOOLCHAIN) install bpf-linker --version $(BPF_LINKER_VERSION) --locked --root $(CACHE)/bpf-linker-$(BPF_LINKER_VERSION)

# Each of them is also a target without bin/, such as make cosign.
.PHONY: $(TOOLS) $(OTHER_TOOLS) zizmor bpf-linker
$(TOOLS) $(OTHER_TOOLS) zizmor bpf-linker: %: $(LOCALBIN)/%

kubernetes_version = $(shell awk '$$2 == "k8s.io/kubernetes" { print $$3 }' hack/kubernetes/$(1))
KUBERNETES_VERSION := $(call kubernetes_version,go.mod)
KUBERNETES := $(CACHE)/kubernetes-$(KUBERNETES_VERSION)/kubernetes
# The version before it, and the oldest that bpfman supports, with which only tests run.
PREVIOUS_KUBERNETES := $(CACHE)/kubernetes-$(call kubernetes_version,previous.mod)/kubernetes
OLDEST_KUBERNETES := $(CACHE)/kubernetes-$(call kubernetes_version,oldest/go.mod)/kubernetes
DAEMON := $(CACHE)/bpfman-0.6.0/bin/bpfman-rpc
# For tests of switching from this version.
UPSTREAM_DAEMON := $(CACHE)/bpfman-0.5.6/bin/bpfman-rpc

$(KUBERNETES):
	@hack/kubernetes/build.sh $(CACHE) $(LOCALBIN)

$(PREVIOUS_KUBERNETES):
	@hack/kubernetes/build.sh $(CACHE) $(LOCALBIN) previous

$(OLDEST_KUBERNETES): $(KUBERNETES)
	@hack/kubernetes/build.sh $(CACHE) $(LOCALBIN) oldest

# Kubernetes' tests of storage drivers.
$(LOCALBIN)/kubernetes-storage: hack/kubernetes/go.mod hack/kubernetes/storage/main.go
	@hack/kubernetes/build.sh $(CACHE) $(LOCALBIN) storage

# The API server and etcd of tests. One binary contains all of Kubernetes' components, and the name with which it is
# called selects the component. KUBEBUILDER_ASSETS selects other ones, such as those of setup-envtest.
ENVTEST_ASSETS := $(abspath $(or $(KUBEBUILDER_ASSETS),$(LOCALBIN)/envtest))

# Releases of envtest have the versions of Kubernetes.
.PHONY: download-envtest
download-envtest: $(LOCALBIN)/setup-envtest ## Download an API server and etcd for tests, and print their directory, for KUBEBUILDER_ASSETS.
	@$< use $(basename $(KUBERNETES_VERSION:v%=%)).x --bin-dir $(CACHE)/envtest --print path
