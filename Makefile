# bpfman-operator: `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

LOCALBIN ?= $(CURDIR)/bin
# Large builds (Kubernetes, the daemon) are cached outside of the clone, by version.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bpfman-operator
MODULES := apis gobpfman internal agent csi operator cli
# All Go packages: those of the product's modules, and of the module at the root.
PACKAGES := $(MODULES:%=./%/...) ./...
export CGO_ENABLED ?= 0

##@ General

# A group can continue further down, where the prerequisites of its targets are defined.
.PHONY: help
help: ## Display this help.
	@awk 'BEGIN { FS = ":.*##"; printf "\nUsage:\n  make <target>\n" } \
		/^##@/ { group = substr($$0, 5); if (!(group in lines)) order[++groups] = group } \
		/^[a-zA-Z_0-9-]+:.*##/ { lines[group] = lines[group] sprintf("  \033[36m%-28s\033[0m %s\n", $$1, $$2) } \
		END { for (i = 1; i <= groups; i++) printf "\n%s\n%s", order[i], lines[order[i]] }' $(MAKEFILE_LIST)

# The version to install, release, and bundle. The daemon has its own version, in BPFMAN_IMG.
VERSION ?= 0.6.0

##@ Local Dependencies

.PHONY: deps
deps: ## Install what is missing on this Debian 12 machine: packages, the bpfman daemon, Kubernetes (as root).
	@hack/deps.sh $(CACHE) $(LOCALBIN)

include hack/make/tools.mk

##@ Development

# The generators run on the apis module alone, not on the workspace.
APIS := github.com/bpfman/bpfman-operator/apis
GENERATE := cd apis && GOWORK=off
BOILERPLATE := --go-header-file ../hack/boilerplate.go.txt

.PHONY: manifests
manifests: $(LOCALBIN)/controller-gen ## Generate the CustomResourceDefinitions and the ClusterRoles for users from apis/v1alpha1.
	$(GENERATE) $< crd paths=./v1alpha1 output:crd:dir=../config/crd/bases
	$(GENERATE) go run ./internal/userroles >../config/rbac/users/roles.yaml

# The order matters: clients need apply configurations, and informers need clients and listers.
.PHONY: generate
generate: manifests ## Generate all generated code and manifests.
	$(MAKE) generate-deepcopy generate-register
	$(MAKE) generate-apply-configurations
	$(MAKE) generate-typed-clients generate-typed-listers
	$(MAKE) generate-typed-informers generate-reference generate-remedies generate-diagrams

.PHONY: generate-deepcopy
generate-deepcopy: $(LOCALBIN)/controller-gen ## Generate the DeepCopy methods (zz_generated.deepcopy.go).
	$(GENERATE) $< object:headerFile=../hack/boilerplate.go.txt paths=./v1alpha1

.PHONY: generate-register
generate-register: $(LOCALBIN)/register-gen ## Generate the registration of the kinds (zz_generated.register.go).
	$(GENERATE) $< $(BOILERPLATE) --output-file zz_generated.register.go ./v1alpha1

.PHONY: generate-apply-configurations
generate-apply-configurations: $(LOCALBIN)/applyconfiguration-gen ## Generate the apply configurations (apis/client/applyconfiguration).
	rm -rf apis/client/applyconfiguration
	$(GENERATE) $< $(BOILERPLATE) --output-dir client/applyconfiguration --output-pkg $(APIS)/client/applyconfiguration ./v1alpha1

.PHONY: generate-typed-clients
generate-typed-clients: $(LOCALBIN)/client-gen ## Generate the clientset and its fake (apis/client/clientset).
	rm -rf apis/client/clientset
	$(GENERATE) $< $(BOILERPLATE) --clientset-name clientset --output-dir client --output-pkg $(APIS)/client \
		--input-base "" --input $(APIS)/v1alpha1 --apply-configuration-package $(APIS)/client/applyconfiguration

.PHONY: generate-typed-listers
generate-typed-listers: $(LOCALBIN)/lister-gen ## Generate the listers (apis/client/listers).
	rm -rf apis/client/listers
	$(GENERATE) $< $(BOILERPLATE) --output-dir client/listers --output-pkg $(APIS)/client/listers ./v1alpha1

.PHONY: generate-typed-informers
generate-typed-informers: $(LOCALBIN)/informer-gen ## Generate the informers (apis/client/informers).
	rm -rf apis/client/informers
	$(GENERATE) $< $(BOILERPLATE) --output-dir client/informers --output-pkg $(APIS)/client/informers --single-directory \
		--versioned-clientset-package $(APIS)/client/clientset --listers-package $(APIS)/client/listers ./v1alpha1

# The generator escapes braces in code too, where the backslashes would be shown, and keeps the comments' line breaks.
.PHONY: generate-reference
generate-reference: $(LOCALBIN)/crd-ref-docs ## Generate the API reference (docs/reference/api.md).
	@mkdir -p docs/reference
	$< --source-path=apis/v1alpha1 --config=hack/api-reference.yaml --renderer=markdown --output-path=docs/reference/api.md --log-level=ERROR
	@sed -i -E -e 's/^(_Appears in:_|_Validation:_)$$/&\n/' \
		-e 's/\\([{}])/\1/g' -e 's/(Required|Optional): \{\}/\1/g' -e 's/Schemaless: \{\} <br \/>//' \
		-e ':join; s/([^ >])<br \/>([^<-])/\1 \2/; t join' docs/reference/api.md

# `kubectl bpfman why` uses the texts of the page.
.PHONY: generate-remedies
generate-remedies: ## Generate the remedies that the kubectl plugin suggests (cli/remedy/remedies.md) from docs/status.md.
	grep '^|' docs/status.md >cli/remedy/remedies.md

.PHONY: generate-diagrams
generate-diagrams: ## Generate the documentation's diagrams (docs/diagrams).
	go -C hack/docs run ./diagrams ../../docs/diagrams

# Nothing below is committed. The documentation's site has the schemas in the same directory.
SCHEMAS := $(LOCALBIN)/schemas

.PHONY: schemas
schemas: $(SCHEMAS)/bpfman.io/all.json ## Generate the JSON schemas of the kinds, for editors, in bin/schemas.

$(SCHEMAS)/bpfman.io/all.json: $(wildcard config/crd/bases/*.yaml hack/docs/schemas/*.go)
	@rm -rf $(SCHEMAS)
	go -C hack/docs run ./schemas $(CURDIR)/config/crd/bases $(SCHEMAS)

# The chart's namespace is the namespace of the release.
CHART := charts/bpfman-operator
CHART_FILES := $(addprefix $(CHART)/files/,crds.yaml rbac.yaml monitoring.yaml)
IN_CHART = sed -e 's/namespace: bpfman$$/namespace: "@namespace@"/' -e 's/serviceaccount:bpfman:/serviceaccount:@namespace@:/g' -e 's/^  - bpfman$$/  - "@namespace@"/'

.PHONY: chart
chart: $(CHART_FILES) ## Complete the Helm chart of this clone with what it has in common with the manifests (charts/bpfman-operator/files).

$(CHART)/files/crds.yaml: OVERLAY = config/crd
$(CHART)/files/rbac.yaml: OVERLAY = config/chart
$(CHART)/files/monitoring.yaml: OVERLAY = config/prometheus/objects
$(CHART_FILES): $(LOCALBIN)/kustomize $(shell find config -type f) Makefile
	@mkdir -p $(@D)
	$(LOCALBIN)/kustomize build $(OVERLAY) | $(IN_CHART) >$@

.PHONY: vendors
vendors: ## Update the modules' dependencies, and the vendor directory for builds without a network.
	go work sync
	@for module in $(MODULES) .; do (cd $$module && GOWORK=off go mod tidy) || exit 1; done
	go work vendor

.PHONY: fmt
fmt: $(LOCALBIN)/gofumpt ## Format the Go code.
	$< -w $(MODULES) examples hack tests

.PHONY: verify
verify: $(LOCALBIN)/gofumpt generate ## Fail if generated files are stale, or if Go code isn't formatted.
	@files=$$($< -l $(MODULES) examples hack tests); test -z "$$files" || { echo "not formatted, run make fmt:"; echo "$$files"; exit 1; }
	@changes=$$(git status --porcelain -- $(GENERATED)); test -z "$$changes" || { echo "generated files differ from what is committed, run make generate:"; echo "$$changes"; exit 1; }

# The output of `generate`.
GENERATED = apis/v1alpha1 apis/client config/crd/bases config/rbac/users/roles.yaml docs/reference/api.md docs/diagrams cli/remedy/remedies.md

# The linter runs on all modules of the workspace in one process, so it reads common dependencies once.
.PHONY: lint
lint: $(LOCALBIN)/golangci-lint prose ## Run the linters: golangci-lint (.golangci.yml), and vale for the documentation (hack/vale).
	$< run --allow-parallel-runners $(PACKAGES)

##@ Documentation

# The site's builder is a Python program. hack/docs/requirements.txt pins versions and hashes.
PYTHON ?= python3
DOCS_VENV := $(LOCALBIN)/docs-venv
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs
# hack/docs/content.py adds them to the site.
docs docs-serve docs-publish: export SCHEMAS := $(SCHEMAS)

$(DOCS_VENV)/bin/mkdocs: hack/docs/requirements.txt
	@rm -rf $(DOCS_VENV)
	@$(PYTHON) -m venv $(DOCS_VENV) || { echo "Python's venv is needed: make deps-docs installs it" >&2; exit 1; }
	@echo "installing the site's builder"
	@$(DOCS_VENV)/bin/pip install -q --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@touch $@

.PHONY: docs
docs: $(DOCS_VENV)/bin/mkdocs schemas ## Build the documentation's site to bin/site; fail if a link or an anchor is broken, or a page isn't in the navigation.
	$(MKDOCS) build --quiet

.PHONY: docs-serve
docs-serve: $(DOCS_VENV)/bin/mkdocs schemas ## Show the documentation's site at http://127.0.0.1:8000, with edits as they are saved (DOCS_ADDRESS).
	$(MKDOCS) serve --dev-addr $(DOCS_ADDRESS)

DOCS_ADDRESS ?= 127.0.0.1:8000

# mike stores the site of each version in a separate directory of the branch, for the version selector.
DOCS_VERSION ?= dev
DOCS_ALIASES ?=
DOCS_PUSH ?= git push origin gh-pages

.PHONY: docs-publish
docs-publish: $(DOCS_VENV)/bin/mkdocs schemas ## Add this version's site to the branch gh-pages and push it (DOCS_VERSION, DOCS_ALIASES, DOCS_REF). With DOCS_PUSH= it isn't pushed.
	PATH="$(DOCS_VENV)/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(DOCS_VERSION) $(DOCS_ALIASES)
	$(if $(DOCS_ALIASES),PATH="$(DOCS_VENV)/bin:$$PATH" mike set-default $(firstword $(DOCS_ALIASES)))
	hack/docs/not-found.sh $(DOCS_VERSION)
	$(DOCS_PUSH)

# pin DIRECTORY
pin = $(PYTHON) -m venv $(LOCALBIN)/pip-tools && $(LOCALBIN)/pip-tools/bin/pip install -q pip-tools && \
	cd $1 && $(LOCALBIN)/pip-tools/bin/pip-compile -q --upgrade --generate-hashes --strip-extras --allow-unsafe --no-emit-find-links --no-emit-index-url --no-header -o requirements.txt requirements.in

.PHONY: docs-requirements
docs-requirements: ## Pin the packages of the site's builder, with hashes, from hack/docs/requirements.in.
	$(call pin,hack/docs)

# A terminal recorder, and a program that converts recordings to animations.
RECORDINGS_VENV := $(LOCALBIN)/recordings-venv

$(RECORDINGS_VENV)/bin/termtosvg: hack/recordings/requirements.txt
	@rm -rf $(RECORDINGS_VENV)
	@$(PYTHON) -m venv $(RECORDINGS_VENV) || { echo "Python's venv is needed: make deps-docs installs it" >&2; exit 1; }
	@$(RECORDINGS_VENV)/bin/pip install -q --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@touch $@

RECORD = TERMTOSVG=$(RECORDINGS_VENV)/bin/termtosvg CLUSTER_INSTANCE=$(CLUSTER_INSTANCE) CLUSTER_KUBECONFIG=$(CLUSTER_KUBECONFIG) hack/recordings/record.sh

.PHONY: recordings
recordings: $(RECORDINGS_VENV)/bin/termtosvg kubectl-bpfman build build-cluster bytecode ## Record the sessions of hack/recordings on the one-node cluster, as animations to docs/recordings (as root).
	@$(RECORD)

.PHONY: render-recordings
render-recordings: $(RECORDINGS_VENV)/bin/termtosvg ## Render the animations of the existing recordings again.
	@$(RECORD) render

.PHONY: recordings-requirements
recordings-requirements: ## Pin the packages of the terminal recorder, with hashes, from hack/recordings/requirements.in.
	$(call pin,hack/recordings)

.PHONY: deps-docs
deps-docs: ## Install what test-docs needs: Python's venv, and Chromium (as root).
	@hack/docs/deps.sh

AXE := $(LOCALBIN)/axe/axe_playwright_python/axe.min.js

$(AXE): hack/docs/axe.txt | $(DOCS_VENV)/bin/mkdocs
	@$(DOCS_VENV)/bin/pip install -q --disable-pip-version-check --only-binary :all: --no-deps --require-hashes --upgrade --target $(LOCALBIN)/axe -r $<
	@touch $@

.PHONY: test-docs
test-docs: deps-docs docs $(AXE) ## Test each page of the documentation's site in a browser: narrow and wide, light and dark, and the search.
	SITE=$(LOCALBIN)/site AXE=$(AXE) go -C hack/docs test -count=1 -timeout 30m ./site

# This includes the API reference, and therefore checks the API's comments too.
PAGES = $(shell git ls-files --cached --others --exclude-standard '*.md' ':!hack/vale' ':!cli/remedy')
VALE = $(LOCALBIN)/vale --config hack/vale/vale.ini

.PHONY: prose
prose: $(LOCALBIN)/vale ## Check the documentation's language (vale, configured in hack/vale).
	@found=$$($(VALE) --minAlertLevel=suggestion --output=line --no-exit hack/vale/wrong.md); for rule in hack/vale/styles/bpfman/*.yml; do \
		grep -q "bpfman.$$(basename $$rule .yml):" <<<"$$found" || { echo "$$rule finds nothing in hack/vale/wrong.md" >&2; exit 1; }; done
	@$(VALE) $(PAGES)

##@ Build

# The commands in the images.
COMMANDS = $(patsubst %/main.go,%,$(wildcard operator/cmd/*/main.go agent/cmd/*/main.go csi/cmd/*/main.go \
	examples/cmd/counters/main.go examples/cmd/firewall/main.go examples/cmd/go-target/main.go examples/cmd/map-exporter/main.go tests/cmd/*/main.go))
# A uprobe finds a function of go-target by its symbol.
LDFLAGS = $(if $(filter %/go-target,$1),,-s -w) -X github.com/bpfman/bpfman-operator/apis/version.Version=$(VERSION)
# Without gRPC's tracing pages, nothing calls methods by name, so the linker removes unused methods: a quarter of
# each binary, which the node components would otherwise have in memory.
TAGS = grpcnotrace

# With BUILT=yes, bin/ isn't rebuilt, so that several instances of make can run at the same time.
UNLESS_BUILT = $(if $(BUILT),@: )

.PHONY: build
build: $(COMMANDS:%=build/%) ## Build all commands to bin/, statically linked.

.PHONY: $(COMMANDS:%=build/%)
$(COMMANDS:%=build/%): build/%:
	$(UNLESS_BUILT)go -C $(firstword $(subst /, ,$*)) build -trimpath -tags $(TAGS) -ldflags "$(call LDFLAGS,$*)" -o $(LOCALBIN)/$(notdir $*) ./cmd/$(notdir $*)

.PHONY: kubectl-bpfman
kubectl-bpfman: ## Build the kubectl plugin, `kubectl bpfman`, to bin/, for this machine.
	go -C cli build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $(LOCALBIN)/$@ ./cmd/$@
	@install cli/kubectl_complete-bpfman $(LOCALBIN)

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

.PHONY: build-images
build-images: build-operator-image build-agent-image build-csi-image build-inspector-image build-example-images ## Build all images, with Docker and BuildKit, or with Podman.

.PHONY: build-operator-image
build-operator-image: image-builder ## Build bpfman-operator's image.
	$(CONTAINER_ENGINE) build --target operator -t $(BPFMAN_OPERATOR_IMG) .

.PHONY: build-agent-image
build-agent-image: image-builder ## Build bpfman-agent's image.
	$(CONTAINER_ENGINE) build --target agent -t $(BPFMAN_AGENT_IMG) .

.PHONY: build-csi-image
build-csi-image: image-builder ## Build bpfman-csi's image.
	$(CONTAINER_ENGINE) build --target csi -t $(BPFMAN_CSI_IMG) .

.PHONY: build-inspector-image
build-inspector-image: image-builder ## Build bpfman-inspector's image.
	$(CONTAINER_ENGINE) build --target inspector -t $(BPFMAN_INSPECTOR_IMG) .

.PHONY: build-example-images
build-example-images: image-builder ## Build the images of the examples and tests.
	$(CONTAINER_ENGINE) build --target counters -t $(BPFMAN_COUNTERS_IMG) .
	$(CONTAINER_ENGINE) build --target map-exporter -t $(BPFMAN_MAP_EXPORTER_IMG) .
	$(CONTAINER_ENGINE) build --target go-target -t $(BPFMAN_GO_TARGET_IMG) .
	$(CONTAINER_ENGINE) build --target firewall -t $(BPFMAN_FIREWALL_IMG) .
	$(CONTAINER_ENGINE) build --target node-probe -t $(BPFMAN_NODE_PROBE_IMG) .

# The images that build-images builds.
BUILT_IMAGES = $(BPFMAN_OPERATOR_IMG) $(BPFMAN_AGENT_IMG) $(BPFMAN_CSI_IMG) $(BPFMAN_INSPECTOR_IMG) $(BPFMAN_COUNTERS_IMG) $(BPFMAN_MAP_EXPORTER_IMG) $(BPFMAN_GO_TARGET_IMG) $(BPFMAN_FIREWALL_IMG) $(BPFMAN_NODE_PROBE_IMG)

.PHONY: push-images
push-images: container-engine ## Push the images that build-images builds.
	@set -x; for image in $(BUILT_IMAGES); do $(CONTAINER_ENGINE) push "$$image"; done

# Example eBPF programs. Their objects don't use CO-RE, and work on every kernel that supports their program types.
BYTECODE := $(patsubst examples/bytecode/%.bpf.c,$(LOCALBIN)/bytecode/%.o,$(wildcard examples/bytecode/*.bpf.c))
CLANG ?= clang
# Debian has asm/types.h in the directory for the machine's architecture.
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
push-bytecode: bytecode ## Push a bytecode image of each example program to BYTECODE_REGISTRY.
	go -C examples run ./cmd/bytecode-images --objects $(LOCALBIN)/bytecode --push $(BYTECODE_REGISTRY) --prefix $(BYTECODE_PREFIX) --alias xdp_pass_private=xdp_pass $(BYTECODE_PUSH_FLAGS)

##@ Cluster of this machine

# A machine can have several clusters. Each has its own number, state directory, and kubeconfig.
CLUSTER_INSTANCE ?= 0
# The number of nodes. A running cluster with more nodes keeps them.
CLUSTER_NODES ?= 1
# The node for the command, by number or name.
NODE ?= 1
CLUSTER_STATE ?= /var/lib/bpfman-cluster$(filter-out 0,$(CLUSTER_INSTANCE))
CLUSTER_KUBECONFIG ?= $(LOCALBIN)/kubeconfig$(filter-out 0,$(CLUSTER_INSTANCE))
CLUSTER = $(LOCALBIN)/cluster --instance $(CLUSTER_INSTANCE) --state-dir $(CLUSTER_STATE) --kubernetes $(KUBERNETES) \
	--daemon $(DAEMON) --bin $(LOCALBIN) --kubeconfig $(CLUSTER_KUBECONFIG)

# The cluster's program, and the content of its images.
.PHONY: build-cluster
build-cluster: build-launcher
	$(UNLESS_BUILT)go -C hack/cluster build -trimpath -ldflags "-s -w" -o $(LOCALBIN)/ . ./pause ./offline ./ociruntime

.PHONY: build-launcher
build-launcher:
	$(UNLESS_BUILT)go -C hack/cluster build -trimpath -ldflags "-s -w" -o $(LOCALBIN)/daemon-launcher ./launcher

.PHONY: cluster-up
cluster-up: deps build build-cluster ## Start a Kubernetes cluster with CLUSTER_NODES=1 to 8 nodes on this machine, with the project's images.
	@$(CLUSTER) --nodes $(CLUSTER_NODES) up
	@$(MAKE) --no-print-directory cluster-bytecode

.PHONY: cluster-down
cluster-down: build-cluster ## Stop that cluster, and remove everything but the cache.
	@$(CLUSTER) down

.PHONY: cluster-status
cluster-status: build-cluster ## Show whether that cluster is running, and where its logs and files are.
	@$(CLUSTER) status

.PHONY: cluster-images
cluster-images: build cluster-load ## Build the commands, and load the images that changed into that cluster.

.PHONY: cluster-load
cluster-load: build-cluster ## Load the images that changed into that cluster, from bin/, without building.
	@$(CLUSTER) load-images

.PHONY: cluster-bytecode
cluster-bytecode: ## Push the example programs to that cluster's registry, which is quay.io in the cluster.
	@$(MAKE) --no-print-directory push-bytecode BYTECODE_REGISTRY=10.97.$(CLUSTER_INSTANCE).2:5000 \
		BYTECODE_PUSH_FLAGS="--ca $(CLUSTER_STATE)/pki/registry-ca.crt"

# Another instance, so that it doesn't affect a cluster in use.
.PHONY: test-cluster
test-cluster: deps build-cluster ## Test that clusters of one and of several nodes start, and that nothing is left of them (as root).
	cd hack/cluster && CLUSTER_PROGRAM=$(LOCALBIN)/cluster CLUSTER_KUBERNETES=$(KUBERNETES) go test -count=1 ./...

.PHONY: cluster-shell
cluster-shell: build-cluster ## Open a shell inside that cluster's node NODE=1.
	@$(CLUSTER) --node $(NODE) exec

.PHONY: cluster-do
cluster-do: build-cluster ## Stop, start, or signal the node NODE=1 of that cluster or its components, or add and remove nodes: DO="halt", "boot", "reboot", "stop kubelet", "start kubelet", "signal STOP containerd", "add-node", "remove-node".
	@$(CLUSTER) --node $(NODE) $(or $(DO),$(error DO says what to do, for example DO="stop kubelet"))

##@ CRD Deployment

KUBECTL ?= $(or $(shell command -v kubectl),$(LOCALBIN)/kubectl)
# What to deploy: config/default, or an overlay.
DEPLOY ?= config/default
BPFMAN_IMG ?= quay.io/bpfman/bpfman:v0.6.0
BPFMAN_REGISTRAR_IMG ?= registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0
ignore-not-found ?= true
DEPLOY_TIMEOUT ?= 180s

# Each way to install first checks for definitions of other software, and refuses to continue if there are some:
# docs/install.md. IMAGES_LOADED=yes says that the nodes have your own images under the default names, which are
# upstream's.
INSTALL = KUBECTL="$(KUBECTL)" TIMEOUT=$(DEPLOY_TIMEOUT) IMAGES_LOADED=$(or $(IMAGES_LOADED),$(if $(filter $(CLUSTER_KUBECONFIG),$(KUBECONFIG)),yes)) hack/install/install.sh
UNINSTALL_SCRIPT = KUBECTL="$(KUBECTL)" hack/install/uninstall.sh

.PHONY: install
install: ## Install the CustomResourceDefinitions into the cluster of KUBECONFIG.
	$(KUBECTL) kustomize config/crd | $(INSTALL) -

.PHONY: uninstall
uninstall: ## Delete the CustomResourceDefinitions that bpfman installed, with all objects of their kinds.
	$(UNINSTALL_SCRIPT) --definitions

##@ Vanilla K8s Deployment

# Images are in the Deployment and, as text, in the ConfigMap.
WITH_IMAGES = sed \
	-e 's|quay.io/bpfman/bpfman:v0.6.0|$(BPFMAN_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-operator:latest|$(BPFMAN_OPERATOR_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-agent:latest|$(BPFMAN_AGENT_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-csi:latest|$(BPFMAN_CSI_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-inspector:latest|$(BPFMAN_INSPECTOR_IMG)|' \
	-e 's|registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0|$(BPFMAN_REGISTRAR_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-map-exporter:latest|$(BPFMAN_MAP_EXPORTER_IMG)|'
RENDER = $(KUBECTL) kustomize $(DEPLOY) | $(WITH_IMAGES)

.PHONY: deploy
deploy: ## Deploy bpfman to the cluster of KUBECONFIG (DEPLOY=config/default), and wait until it is running.
	$(RENDER) | $(INSTALL) -

.PHONY: undeploy
undeploy: ## Remove bpfman, its CustomResourceDefinitions, and all objects of their kinds.
	$(RENDER) | $(UNINSTALL_SCRIPT) -

.PHONY: deployed
deployed:
	$(KUBECTL) -n bpfman rollout status deployment/bpfman-operator --timeout=$(DEPLOY_TIMEOUT)
	$(KUBECTL) -n bpfman wait --for=create daemonset/bpfman-daemon --timeout=$(DEPLOY_TIMEOUT)
	$(KUBECTL) -n bpfman rollout status daemonset/bpfman-daemon --timeout=$(DEPLOY_TIMEOUT)

# The ways to install in docs/install.md, for tests: `make deploy`, the files of a release, and the Helm chart.
# They use the cluster in KUBECONFIG, or the one-node cluster with its specific settings.
WAYS = deploy-kustomize undeploy-kustomize deploy-release undeploy-release deploy-helm undeploy-helm
$(WAYS): export KUBECONFIG := $(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG))

.PHONY: $(WAYS)
deploy-kustomize undeploy-kustomize: %-kustomize:
	@$(MAKE) --no-print-directory $* $(if $(ONE_NODE),DEPLOY=config/one-node)

RELEASE_TRIED = $(LOCALBIN)/release-tried
deploy-release: $(LOCALBIN)/kustomize
	@$(MAKE) --no-print-directory release-yamls RELEASE_DIR=$(RELEASE_TRIED)
	$(if $(ONE_NODE),IMAGES_LOADED=yes )KUBECTL="$(KUBECTL)" $(RELEASE_TRIED)/install.sh$(if $(ONE_NODE), --no-wait) $(RELEASE_TRIED)/bpfman-all-install.yaml
	$(if $(ONE_NODE),$(KUBECTL) -n bpfman patch configmap bpfman-config --patch-file config/one-node/config.yaml)
	$(if $(ONE_NODE),@$(MAKE) --no-print-directory deployed)

undeploy-release:
	KUBECTL="$(KUBECTL)" $(RELEASE_TRIED)/uninstall.sh $(RELEASE_TRIED)/bpfman-all-install.yaml

deploy-helm: $(LOCALBIN)/helm
	@$(MAKE) --no-print-directory packaged-chart
	$(LOCALBIN)/helm install bpfman $(LOCALBIN)/chart/bpfman-operator-$(VERSION).tgz --namespace bpfman --create-namespace --take-ownership --force-conflicts $(if $(or $(ONE_NODE),$(filter yes,$(IMAGES_LOADED))),--set images.loaded=true) $(if $(ONE_NODE),--values config/one-node/values.yaml)
	$(KUBECTL) label --overwrite namespace bpfman pod-security.kubernetes.io/enforce=privileged
	@$(MAKE) --no-print-directory deployed
	$(LOCALBIN)/helm test bpfman --namespace bpfman

undeploy-helm: $(LOCALBIN)/helm
	HELM=$(LOCALBIN)/helm $(UNINSTALL_SCRIPT) --helm

# A kind cluster (https://kind.sigs.k8s.io), whose nodes are containers.
KIND_CLUSTER_NAME ?= bpfman-deployment
KIND ?= $(LOCALBIN)/kind
# The image of the nodes, by default that of kind's release, and the cluster's configuration.
KIND_NODE_IMAGE ?=
KIND_CONFIG ?= hack/kind/cluster.yaml
KIND_TIMEOUT ?= 3m
KIND_RUN = KIND_EXPERIMENTAL_PROVIDER=$(filter podman,$(notdir $(CONTAINER_ENGINE))) $(KIND)

.PHONY: setup-kind
setup-kind: container-engine $(KIND) ## Create the kind cluster KIND_CLUSTER_NAME, if it doesn't exist, and make it the current context.
	@if $(KIND_RUN) get clusters 2>/dev/null | grep -qx '$(KIND_CLUSTER_NAME)'; then $(KIND_RUN) export kubeconfig --name $(KIND_CLUSTER_NAME); \
	else $(KIND_RUN) create cluster --name $(KIND_CLUSTER_NAME) --config $(KIND_CONFIG) $(addprefix --image ,$(KIND_NODE_IMAGE)) --wait $(KIND_TIMEOUT); fi

.PHONY: destroy-kind
destroy-kind: container-engine $(KIND) ## Delete the kind cluster.
	$(KIND_RUN) delete cluster --name $(KIND_CLUSTER_NAME)

##@ Build

.PHONY: load-images-kind
load-images-kind: container-engine $(KIND) ## Load the images that build-images builds into the kind cluster.
	@archive=$$(mktemp) && trap 'rm -f "$$archive"' EXIT && for image in $(BUILT_IMAGES); do \
		echo "load $$image"; $(CONTAINER_ENGINE) save "$$image" >"$$archive"; $(KIND_RUN) load image-archive --name $(KIND_CLUSTER_NAME) "$$archive"; done

##@ Vanilla K8s Deployment

.PHONY: run-on-kind
run-on-kind: ## Check the requirements, create the kind cluster, build and load the images, and deploy bpfman.
	@$(NEEDS) engine rootful buildkit go kubectl
	@$(MAKE) --no-print-directory setup-kind
	@$(MAKE) --no-print-directory build-images
	@$(MAKE) --no-print-directory load-images-kind
	@$(MAKE) --no-print-directory deploy IMAGES_LOADED=yes
	@printf '\n%s\n' 'bpfman runs on the kind cluster $(KIND_CLUSTER_NAME), which is now the current context of kubectl.' \
		'To attach a program, continue with docs/get-started.md#attach-a-program. To delete the cluster, run: make destroy-kind'

.PHONY: kind-reload-images
kind-reload-images: load-images-kind ## Load the images again after make build-images, and restart the pods that use them.
	$(KUBECTL) --context kind-$(KIND_CLUSTER_NAME) -n bpfman rollout restart deployment/bpfman-operator daemonset/bpfman-daemon
	$(KUBECTL) --context kind-$(KIND_CLUSTER_NAME) -n bpfman rollout status deployment/bpfman-operator --timeout=$(DEPLOY_TIMEOUT)
	$(KUBECTL) --context kind-$(KIND_CLUSTER_NAME) -n bpfman rollout status daemonset/bpfman-daemon --timeout=$(DEPLOY_TIMEOUT)

# Without KUBECONFIG, on a cluster of this machine. With KUBECONFIG, on that cluster.
.PHONY: run
run: export CLUSTER_DOWN = make cluster-down$(if $(filter-out 0,$(CLUSTER_INSTANCE)), CLUSTER_INSTANCE=$(CLUSTER_INSTANCE))
run: ## Start a one-node cluster, deploy bpfman, and show a sample program whose counters a pod without privileges reads.
	@$(if $(KUBECONFIG),,DAEMON="$(DAEMON)" $(NEEDS) root apt go rust cgroup disk)
	@KUBECTL="$(KUBECTL)" CLUSTER_KUBECONFIG="$(CLUSTER_KUBECONFIG)" DEPLOY="$(DEPLOY)" \
		BYTECODE_REGISTRY="$(BYTECODE_REGISTRY)" BYTECODE_PREFIX="$(BYTECODE_PREFIX)" BPFMAN_COUNTERS_IMG="$(BPFMAN_COUNTERS_IMG)" \
		hack/run.sh

##@ Development

# The project's own images have the release's tag by default.
RELEASE_DIR ?= release-v$(VERSION)
RELEASE_OVERLAYS = crds=config/crd operator=config/release/operator agent=config/release/agent csi=config/release/csi \
	inspector=config/release/inspector all=config/default monitoring=config/prometheus/objects openshift=config/openshift

# Images of a release are named by the digests that release-images wrote, unless they are specified. If there are
# none, as in a dry run, they are named by version.
in_metadata = $(shell sed -nE 's/^ *"$1": *"($2)".*/\1/p' $(LOCALBIN)/images/$3.json 2>/dev/null | head -n 1)
by_digest = $(if $(filter file,$(origin BPFMAN_$2_IMG)),$(addprefix BPFMAN_$2_IMG=,$(addsuffix @$(call in_metadata,containerimage.digest,sha256:[0-9a-f]{64},$1),$(call in_metadata,image.name,[^"@]*[^"@:/],$1))))
RELEASED = $(if $(filter file,$(origin IMAGE_TAG)),IMAGE_TAG=v$(VERSION)) $(call by_digest,operator,OPERATOR) $(call by_digest,agent,AGENT) $(call by_digest,csi,CSI) $(call by_digest,inspector,INSPECTOR) $(call by_digest,map-exporter,MAP_EXPORTER)

.PHONY: build-release-yamls
build-release-yamls: $(LOCALBIN)/kustomize ## Write the install files of a release to release-vVERSION: one for each component, one for the definitions, and one for everything.
	@$(MAKE) --no-print-directory release-yamls $(RELEASED)

.PHONY: release-yamls
release-yamls:
	@rm -rf $(RELEASE_DIR) && mkdir -p $(RELEASE_DIR)
	@for overlay in $(RELEASE_OVERLAYS); do file=$(RELEASE_DIR)/bpfman-$${overlay%%=*}-install.yaml; \
		$(LOCALBIN)/kustomize build "$${overlay#*=}" | $(WITH_IMAGES) >"$$file"; echo "$$file"; done
	@cp hack/install/install.sh hack/install/uninstall.sh $(RELEASE_DIR)

.PHONY: package-chart
package-chart: $(LOCALBIN)/helm ## Package the Helm chart of this version, with its images, to bin/chart.
	@$(MAKE) --no-print-directory packaged-chart $(RELEASED)

# Files in the archive have the time of the commit.
.PHONY: packaged-chart
packaged-chart: chart
	@rm -rf $(LOCALBIN)/chart && mkdir -p $(LOCALBIN)/chart && cp -r $(CHART) $(LOCALBIN)/chart
	@for file in values.yaml Chart.yaml; do $(WITH_IMAGES) $(CHART)/$$file >$(LOCALBIN)/chart/$(notdir $(CHART))/$$file; done
	@find $(LOCALBIN)/chart -exec touch --date=@$(COMMIT_TIME) {} +
	@$(LOCALBIN)/helm package $(LOCALBIN)/chart/$(notdir $(CHART)) --version $(VERSION) --app-version v$(VERSION) --destination $(LOCALBIN)/chart

# The repository for Helm and Artifact Hub: docs/releasing.md.
CHART_REGISTRY ?= oci://quay.io/bpfman/charts
CHART_PUSH_FLAGS ?=

.PHONY: chart-push
chart-push: $(LOCALBIN)/helm ## Push the packaged chart to CHART_REGISTRY.
	$(LOCALBIN)/helm push $(LOCALBIN)/chart/$(notdir $(CHART))-$(VERSION).tgz $(CHART_REGISTRY) $(CHART_PUSH_FLAGS)

##@ Openshift Deployment

.PHONY: deploy-openshift
deploy-openshift: ## Deploy bpfman to the OpenShift cluster of KUBECONFIG, and wait until it is running.
	@$(MAKE) --no-print-directory deploy DEPLOY=config/openshift

.PHONY: undeploy-openshift
undeploy-openshift: ## Remove bpfman from the OpenShift cluster, with its CustomResourceDefinitions and all objects of their kinds.
	@$(MAKE) --no-print-directory undeploy DEPLOY=config/openshift

##@ Development

# For the Operator Lifecycle Manager: docs/olm.md. The variables above select other images than the published ones.
CHANNELS ?= candidate
DEFAULT_CHANNEL ?= $(firstword $(subst $(comma),$(space),$(CHANNELS)))
# What an upgrade replaces: the name of the previous version, and a range of versions.
BUNDLE_REPLACES ?=
BUNDLE_SKIP_RANGE ?=
BUNDLE_IMG ?= $(IMAGE_PREFIX)/bpfman-operator-bundle:$(IMAGE_TAG)
CATALOG_IMG ?= $(IMAGE_PREFIX)/bpfman-operator-catalog:$(IMAGE_TAG)
# The namespace where OLM looks for catalogs. It is olm if OLM's own scripts installed it.
CATALOG_NAMESPACE ?= openshift-marketplace

.PHONY: build-release
build-release:
	@cd hack/release && go build -trimpath -o $(LOCALBIN)/release .

BUNDLE := $(LOCALBIN)/bundle

.PHONY: bundle
bundle: build-release $(LOCALBIN)/kustomize ## Generate the OLM bundle from config/manifests and config/samples in bin/bundle, and validate it.
	@$(LOCALBIN)/release bundle --manifests <($(LOCALBIN)/kustomize build config/manifests | $(WITH_IMAGES)) \
		--samples <($(LOCALBIN)/kustomize build config/samples) --version $(VERSION) --dir $(BUNDLE) --dockerfile $(BUNDLE).Dockerfile \
		--channels $(CHANNELS) --default-channel $(DEFAULT_CHANNEL) --replaces "$(BUNDLE_REPLACES)" --skip-range "$(BUNDLE_SKIP_RANGE)"

# An existing bundle can be that of a release, so it isn't generated again.
$(BUNDLE).Dockerfile:
	@$(MAKE) --no-print-directory bundle

.PHONY: release-bundle
release-bundle: ## Generate the OLM bundle of a release, with the images of its install files.
	@$(MAKE) --no-print-directory bundle $(RELEASED)

.PHONY: test-release
test-release: bundle ## Validate the OLM bundle, and test the other parts of a release.
	cd hack/release && go test -count=1 ./...

##@ Build

.PHONY: bundle-build
bundle-build: container-engine $(BUNDLE).Dockerfile ## Build the image of the bundle in bin/bundle, BUNDLE_IMG.
	$(CONTAINER_ENGINE) build -f $(BUNDLE).Dockerfile -t $(BUNDLE_IMG) $(BUNDLE)

.PHONY: bundle-push
bundle-push: container-engine ## Push the image of the bundle.
	$(CONTAINER_ENGINE) push $(BUNDLE_IMG)

.PHONY: catalog
catalog: build-release $(BUNDLE).Dockerfile ## Generate a catalog with the bundle of BUNDLE_IMG in bin/catalog.
	@$(LOCALBIN)/release catalog --dir $(BUNDLE) --image $(BUNDLE_IMG) --out $(LOCALBIN)/catalog/configs/bpfman-operator/catalog.yaml
	$(if $(wildcard $(LOCALBIN)/opm),@$(LOCALBIN)/opm validate $(LOCALBIN)/catalog/configs)

.PHONY: catalog-build
catalog-build: container-engine catalog ## Build the image of that catalog, CATALOG_IMG.
	$(CONTAINER_ENGINE) build -f catalog.Dockerfile -t $(CATALOG_IMG) $(LOCALBIN)/catalog

.PHONY: catalog-push
catalog-push: container-engine ## Push the image of the catalog.
	$(CONTAINER_ENGINE) push $(CATALOG_IMG)

##@ Openshift Deployment

CATALOG_SOURCE = sed -e 's|quay.io/bpfman/bpfman-operator-catalog:latest|$(CATALOG_IMG)|' \
	-e 's|namespace: openshift-marketplace|namespace: $(CATALOG_NAMESPACE)|' config/catalog/catalog-source.yaml

.PHONY: catalog-deploy
catalog-deploy: ## Add that catalog to the cluster of KUBECONFIG, which must have OLM (CATALOG_NAMESPACE).
	$(CATALOG_SOURCE) | $(KUBECTL) apply -f -

.PHONY: catalog-undeploy
catalog-undeploy: ## Remove that catalog from the cluster. The operator that was installed from it stays.
	$(CATALOG_SOURCE) | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

##@ Release

# What is published, and how: docs/releasing.md.
ARCHITECTURES ?= amd64 arm64 ppc64le s390x
comma := ,
empty :=
space := $(empty) $(empty)
# Images and SBOMs have the time of the commit, so that they are reproducible.
COMMIT_TIME = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct))
REVISION = $(shell git rev-parse HEAD)

.PHONY: build-architectures
build-architectures: ## Build all commands for each of ARCHITECTURES, to bin/linux-<architecture>.
	@for architecture in $(ARCHITECTURES); do \
		GOOS=linux GOARCH=$$architecture GOFLAGS=-buildvcs=false $(MAKE) --no-print-directory build LOCALBIN=$(LOCALBIN)/linux-$$architecture; done

# The released commands. The others are for tests.
RELEASE_COMMANDS = bpfman-operator bpfman-agent bpfman-reader bpfman-csi bpfman-inspector counters map-exporter
RELEASE_BINARIES = $(foreach architecture,$(ARCHITECTURES),$(RELEASE_COMMANDS:%=$(LOCALBIN)/linux-$(architecture)/%))

# The kubectl plugin also runs on users' machines.
PLUGIN_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
PLUGINS = $(foreach platform,$(PLUGIN_PLATFORMS),$(LOCALBIN)/plugin/$(subst /,-,$(platform))/kubectl-bpfman$(if $(filter windows/%,$(platform)),.exe))

.PHONY: build-plugins
build-plugins: ## Build the kubectl plugin for each of PLUGIN_PLATFORMS, to bin/plugin/<system>-<architecture>.
	@for plugin in $(PLUGINS); do platform=$$(basename $$(dirname $$plugin)); echo "building kubectl-bpfman for $$platform"; \
		GOOS=$${platform%-*} GOARCH=$${platform#*-} GOFLAGS=-buildvcs=false \
		go -C cli build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $$plugin ./cmd/kubectl-bpfman || exit 1; done

.PHONY: sbom
sbom: build-release build-architectures build-plugins ## Write a bill of materials (CycloneDX) for each released command.
	SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(LOCALBIN)/release sbom --version $(VERSION) $(RELEASE_BINARIES) $(PLUGINS)

.PHONY: licences
licences: build-release build-architectures build-plugins ## Collect the licenses of everything in the released commands in bin/licences; fail on one that is unknown or isn't allowed.
	@rm -rf $(LOCALBIN)/licences
	$(LOCALBIN)/release licences --out $(LOCALBIN)/licences $(RELEASE_BINARIES) $(PLUGINS)

.PHONY: release-files
release-files: sbom licences build-release-yamls package-chart release-bundle schemas ## Write the files of a release to bin/release-files: install files, chart, bundle, schemas, commands, SBOMs, licenses, checksums.
	@rm -rf $(LOCALBIN)/release-files && mkdir -p $(LOCALBIN)/release-files
	@named=$$(grep -hoE '^ *(- )?(image|bpfman\.(agent\.|csi\.|csi\.registrar\.|inspector\.)?image): *[^ ]+' $(RELEASE_DIR)/*.yaml | grep -v @sha256: | sort -u); test -z "$$named" || \
		{ echo "a release names its images by digest (make release-images), but has:"; echo "$$named"; exit 1; } >&2
	@cp $(RELEASE_DIR)/*.yaml $(RELEASE_DIR)/*.sh $(LOCALBIN)/chart/*.tgz $(LOCALBIN)/release-files
	@for architecture in $(ARCHITECTURES); do \
		tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(COMMIT_TIME) -C $(LOCALBIN)/linux-$$architecture -c $(RELEASE_COMMANDS) $(RELEASE_COMMANDS:%=%.cdx.json) | \
		gzip -n >$(LOCALBIN)/release-files/bpfman-operator-$(VERSION)-linux-$$architecture.tar.gz; done
	@for dir in bundle licences schemas; do \
		tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@$(COMMIT_TIME) -C $(LOCALBIN) -c $$dir | \
		gzip -n >$(LOCALBIN)/release-files/bpfman-operator-$(VERSION)-$$dir.tar.gz; done
	@$(MAKE) --no-print-directory plugin-archives
	@cd $(LOCALBIN)/release-files && sha256sum * >checksums.txt && cat checksums.txt

RELEASE_URL ?= https://github.com/bpfman/bpfman-operator/releases/download/v$(VERSION)

# From the output of sbom. krew's index accepts the manifest without changes.
.PHONY: plugin-archives
plugin-archives: build-release
	@mkdir -p $(LOCALBIN)/release-files
	@for plugin in $(PLUGINS); do dir=$$(dirname $$plugin); cp LICENSE cli/kubectl_complete-bpfman $$dir && \
		tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime=@$(COMMIT_TIME) -C $$dir -c . | \
		gzip -n >$(LOCALBIN)/release-files/kubectl-bpfman-$(VERSION)-$$(basename $$dir).tar.gz || exit 1; done
	$(LOCALBIN)/release krew --version $(VERSION) --url $(RELEASE_URL) --template cli/krew.yaml --out $(LOCALBIN)/release-files/bpfman.yaml \
		$(LOCALBIN)/release-files/kubectl-bpfman-$(VERSION)-*.tar.gz

# Each copy has its own build cache, so that the second build reuses nothing.
.PHONY: verify-reproducible
verify-reproducible: ## Build the commands of the last commit twice, in two directories, and fail if they differ (ARCHITECTURES, PLUGIN_PLATFORMS).
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && for copy in one another/longer; do \
		mkdir -p "$$dir/$$copy" && git archive HEAD | tar -x -C "$$dir/$$copy" && \
		GOCACHE="$$dir/$$copy/cache" $(MAKE) -C "$$dir/$$copy" --no-print-directory build-architectures build-plugins LOCALBIN="$$dir/$$copy/bin" && \
		(cd "$$dir/$$copy/bin" && sha256sum linux-*/* plugin/*/*) >"$$dir/$${copy%%/*}.sums" && rm -rf "$${dir:?}/$$copy"; done && \
	diff "$$dir/one.sums" "$$dir/another.sums" && cat "$$dir/one.sums"

# An image for several architectures is pushed directly to its registry. BuildKit adds an SBOM and the provenance.
RELEASE_IMAGES = operator=$(BPFMAN_OPERATOR_IMG) agent=$(BPFMAN_AGENT_IMG) csi=$(BPFMAN_CSI_IMG) inspector=$(BPFMAN_INSPECTOR_IMG) counters=$(BPFMAN_COUNTERS_IMG) \
	map-exporter=$(BPFMAN_MAP_EXPORTER_IMG) firewall=$(BPFMAN_FIREWALL_IMG) go-target=$(BPFMAN_GO_TARGET_IMG)
IMAGE_BUILD_ARGS ?=

.PHONY: release-images
release-images: ## Build the images for all ARCHITECTURES and push them, with docker buildx; write their digests to bin/images.
	@rm -rf $(LOCALBIN)/images && mkdir -p $(LOCALBIN)/images
	for image in $(RELEASE_IMAGES); do docker buildx build --platform $(subst $(space),$(comma),$(ARCHITECTURES:%=linux/%)) \
		--target "$${image%%=*}" --tag "$${image#*=}" --metadata-file "$(LOCALBIN)/images/$${image%%=*}.json" \
		--build-arg SOURCE_DATE_EPOCH=$(COMMIT_TIME) --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) $(IMAGE_BUILD_ARGS) \
		--sbom=true --provenance=mode=max --output type=image,push=true,rewrite-timestamp=true .; done

.PHONY: sign-images
sign-images: ## Sign these images with cosign, with the identity of the workflow that runs this; no key is stored.
	for file in $(LOCALBIN)/images/*.json; do cosign sign --yes "$$(jq -er '."image.name" + "@" + ."containerimage.digest"' "$$file")"; done

##@ Development

# A test without a prerequisite is skipped, but fails if TEST_REQUIRES names the prerequisite (internal/prerequisite).
# Users name what their kernel and tools support. Targets add what they provide themselves.
TEST_REQUIRES ?=
requires = TEST_REQUIRES="$(TEST_REQUIRES) $1"

# The e2e tests with many restarts and long waits only run with `make test-e2e`.
.PHONY: test
test: E2E_FLAGS = -short
test: test-code test-e2e ## Run all tests (as root). The end-to-end tests, except the longest, run on the cluster of KUBECONFIG, or on the one-node cluster, which keeps running.

.PHONY: test-code
test-code: ENVTEST_FLAGS = -short
test-code: deps test-unit test-reader test-manifests test-release test-envtest test-bytecode test-csi test-sanity test-inspector ## Run all tests that need no cluster (as root).

.PHONY: test-unit
test-unit: ## Run the tests that need nothing but Go and a C compiler, with the race detector.
	CGO_ENABLED=1 go test -race $(MODULES:%=./%/...) ./examples/...

.PHONY: test-reader
test-reader: $(LOCALBIN)/cosign build/agent/cmd/bpfman-reader ## Run the tests of signatures with those that cosign itself makes.
	$(call requires,cosign commands) COSIGN=$< BPFMAN_READER=$(LOCALBIN)/bpfman-reader go -C agent test -count=1 ./cmd/bpfman-reader

# What the fuzz tests find interesting is kept outside of the clone, for the next run.
FUZZ_TIME ?= 30s

.PHONY: test-fuzz
test-fuzz: ## Run each fuzz test for FUZZ_TIME=30s.
	@CORPUS=$(CACHE)/fuzz FUZZ_TIME=$(FUZZ_TIME) hack/fuzz.sh $(MODULES) hack tests

.PHONY: test-envtest
test-envtest: envtest kubectl-bpfman chart ## Run the tests that need a kube-apiserver and etcd.
	$(call requires,envtest commands) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman go -C tests test -count=1 $(ENVTEST_FLAGS) ./envtest/...

.PHONY: test-manifests
test-manifests: $(LOCALBIN)/helm chart ## Test the manifests, the Helm chart, permissions, monitoring, and the documentation. This needs nothing but Go.
	$(call requires,helm) HELM=$(LOCALBIN)/helm go -C tests test -count=1 -skip '^TestTutorials$$' ./chart ./docs ./manifests ./monitoring ./rbac ./tutorials
	go -C hack/docs test -count=1 ./schemas

.PHONY: test-bytecode
test-bytecode: bytecode envtest build/agent/cmd/bpfman-reader build-launcher ## Test each call and the example programs on the real daemon, if this kernel supports them, and compare the samples with the programs (as root).
	$(call requires,daemon bytecode envtest commands) BPFMAN_RPC=$(wildcard $(DAEMON)) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) \
		go -C tests test -count=1 -v ./wire ./bytecode ./bytecodesource ./manifests ./v05

.PHONY: test-inspector
test-inspector: bytecode envtest build/agent/cmd/bpfman-inspector build-launcher ## Test that the inspector finds the same programs as bpftool, no matter what loaded, attached, or holds them (as root).
	$(call requires,daemon bytecode envtest commands) BPFMAN_RPC=$(wildcard $(DAEMON)) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher BPFMAN_INSPECTOR=$(LOCALBIN)/bpfman-inspector \
		KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) go -C tests test -count=1 -v ./inspector

.PHONY: deps-upstream-daemon
deps-upstream-daemon: ## Build the bpfman daemon of v0.5.6, which test-upstream-daemon needs.
	@hack/upstream-daemon.sh $(CACHE)

.PHONY: test-upstream-daemon
test-upstream-daemon: bytecode deps-upstream-daemon build-launcher ## Test what the bpfman daemon of v0.5.6 leaves on a node, and how the agent handles it (as root).
	$(call requires,daemon upstream-daemon) BPFMAN_V05_RPC=$(UPSTREAM_DAEMON) BPFMAN_RPC=$(DAEMON) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher \
		go -C tests test -count=1 -v ./v05

# The virtual machine builds nothing. Everything that the tests run is built before.
KERNEL_TESTS := $(LOCALBIN)/kernel
KERNEL_MEMORY ?= 4G
KERNEL_INSTANCE ?= 251

.PHONY: deps-kernel
deps-kernel: ## Install what the virtual machine needs: qemu, virtme-ng, Debian's 6.12 kernel (as root).
	@hack/kernel/deps.sh $(CACHE)

.PHONY: build-kernel-tests
build-kernel-tests: build build-cluster bytecode
	@mkdir -p $(KERNEL_TESTS)
	go -C tests test -c -o $(KERNEL_TESTS)/ ./bytecode ./e2e ./inspector
	go -C examples build -trimpath -o $(LOCALBIN)/bytecode-images ./cmd/bytecode-images

KERNEL_TEST = LOCALBIN=$(LOCALBIN) DAEMON=$(DAEMON) KUBERNETES=$(KUBERNETES) hack/kernel/test.sh

.PHONY: test-kernel
test-kernel: deps deps-kernel build-kernel-tests ## Boot Linux 6.12 in a virtual machine, and test every type of program and chains of them on the real daemon (as root).
	@$(KERNEL_TEST) daemon $(CACHE) $(KERNEL_MEMORY) $(KERNEL_INSTANCE)

.PHONY: test-kernel-node
test-kernel-node: deps deps-kernel build-kernel-tests ## Run a whole Kubernetes node in that virtual machine, and test every kind of object there (as root; takes minutes).
	@$(KERNEL_TEST) node $(CACHE) $(KERNEL_MEMORY) $(KERNEL_INSTANCE)

.PHONY: test-mixed-kernels
test-mixed-kernels: deps deps-kernel build-kernel-tests kubectl-bpfman ## Join that virtual machine, with Linux 6.12, to two nodes on this machine, and test one object on all three (as root; takes minutes).
	@$(KERNEL_TEST) mixed $(CACHE) $(KERNEL_MEMORY) $(KERNEL_INSTANCE)

.PHONY: test-kyverno
test-kyverno: ## Test the example policy for Kyverno with Kyverno's own code, which is downloaded first.
	GOWORK=off go -C tests/kyverno test -count=1 ./...

.PHONY: test-csi
test-csi: bytecode build/csi/cmd/bpfman-csi build-launcher ## Run the CSI plugin's tests as root: real mounts and maps, kills, and the real daemon.
	$(call requires,daemon) BPFMAN_RPC=$(wildcard $(DAEMON)) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher BPFMAN_CSI=$(LOCALBIN)/bpfman-csi go -C csi test -count=1 ./...

.PHONY: test-sanity
test-sanity: bytecode build/csi/cmd/bpfman-csi build-launcher ## Run csi-sanity, the CSI community's suite, against the plugin with the real daemon (as root).
	$(call requires,daemon commands) BPFMAN_RPC=$(wildcard $(DAEMON)) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher BPFMAN_CSI=$(LOCALBIN)/bpfman-csi go -C tests test -count=1 -v ./sanity

# `make deps-kernel` installs it.
VNG ?= $(CACHE)/virtme-ng-1.42/bin/vng
VM_KERNEL ?= $(firstword $(wildcard $(CACHE)/linux-6.12/boot/vmlinuz-*))

.PHONY: test-selinux
test-selinux: ## Test maps of volumes in a virtual machine with Linux 6.12, where SELinux is enforced (as root; needs secilc).
	@test -x "$(VNG)" -a -f "$(VM_KERNEL)" || { echo "the virtual machine's parts are missing: set VNG and VM_KERNEL" >&2; exit 1; }
	@hack/selinux/test.sh $(VNG) $(VM_KERNEL)

# The settings for the one-node cluster are here. For other clusters, use the environment. BYTECODE_REGISTRY and
# BYTECODE_PREFIX say where the daemon finds the example programs (`make push-bytecode`). BYTECODE_PUSH and
# BYTECODE_PUSH_CA say where the tests can push more programs to the same place.
ONE_NODE = $(filter $(CLUSTER_KUBECONFIG),$(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG)))
E2E_ONE_NODE = KUBECONFIG=$(CLUSTER_KUBECONFIG) BYTECODE_PUSH=10.97.$(CLUSTER_INSTANCE).2:5000 \
	BYTECODE_PUSH_CA=$(CLUSTER_STATE)/pki/registry-ca.crt SAMPLE_APP_IMG=$(BPFMAN_GO_TARGET_IMG) \
	BPFMAN_NEXT_IMG=quay.io/bpfman/bpfman:next BPFMAN_OPERATOR_NEXT_IMG=quay.io/bpfman/bpfman-operator:next \
	BPFMAN_AGENT_NEXT_IMG=quay.io/bpfman/bpfman-agent:next BPFMAN_CSI_NEXT_IMG=quay.io/bpfman/bpfman-csi:next \
	BPFMAN_INSPECTOR_NEXT_IMG=quay.io/bpfman/bpfman-inspector:next E2E_MACHINES="$(CLUSTER)"
# With this variable, tests for several nodes fail on a smaller cluster. Without it, they are skipped.
E2E_NODES ?=
E2E_FLAGS ?=
E2E_TIMEOUT ?= 45m
# How to install bpfman: kustomize, release, or helm. For the latter two, bpfman is uninstalled first.
E2E_INSTALL ?= kustomize

# On the one-node cluster, the pods are recreated, because images can have changed under the same names.
.PHONY: test-e2e
test-e2e: kubectl-bpfman bytecode $(LOCALBIN)/cosign $(if $(ONE_NODE),cluster-up) ## Deploy bpfman to the cluster of KUBECONFIG, or the one-node cluster, and test it there (E2E_FLAGS="-run Kills").
	$(if $(ONE_NODE),@KUBECONFIG=$(CLUSTER_KUBECONFIG) $(KUBECTL) -n bpfman delete pods --all --ignore-not-found)
	$(if $(filter-out kustomize,$(E2E_INSTALL)),@$(MAKE) --no-print-directory undeploy-kustomize)
	@$(MAKE) --no-print-directory deploy-$(E2E_INSTALL)
	@cd tests && $(call requires,cluster bytecode commands cosign kubectl) $(if $(ONE_NODE),$(E2E_ONE_NODE)) KUBECTL="$(KUBECTL)" COSIGN="$(LOCALBIN)/cosign" BYTECODE_REGISTRY="$(BYTECODE_REGISTRY)" BYTECODE_PREFIX="$(BYTECODE_PREFIX)" \
		BPFMAN_NODE_PROBE_IMG="$(BPFMAN_NODE_PROBE_IMG)" BPFMAN_COUNTERS_IMG="$(BPFMAN_COUNTERS_IMG)" BPFMAN_GO_TARGET_IMG="$(BPFMAN_GO_TARGET_IMG)" \
		BPFMAN_MAP_EXPORTER_IMG="$(BPFMAN_MAP_EXPORTER_IMG)" E2E_NODES="$(E2E_NODES)" \
		go test -count=1 -v -timeout $(E2E_TIMEOUT) $(E2E_FLAGS) ./e2e

.PHONY: build-kubeadm
build-kubeadm:
	$(UNLESS_BUILT)GOWORK=off go -C hack/kubernetes build -trimpath -ldflags "-s -w $(foreach setting,gitVersion=$(KUBERNETES_VERSION) gitTreeState=clean gitMajor=1 gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))),-X k8s.io/component-base/version.$(setting))" -o $(LOCALBIN)/kubeadm ./kubeadm

# hack/kind/test.sh explains what it does if nothing can be pulled.
KIND_TEST = KIND_FILES="$$($(call module_files,sigs.k8s.io/kind@$(KIND_VERSION)))" LOCALBIN=$(LOCALBIN) CACHE=$(CACHE) KUBERNETES=$(KUBERNETES) DAEMON=$(DAEMON) KIND=$(KIND) KUBECTL="$(KUBECTL)" \
	CONTAINER_ENGINE="$(CONTAINER_ENGINE)" hack/kind/test.sh

.PHONY: test-kind
test-kind: E2E_FLAGS = -short
test-kind: $(KIND) $(LOCALBIN)/cosign ## Create a kind cluster, deploy bpfman, run the e2e tests there, and delete it. Without a container engine, this needs root and Debian 12.
	@UPROBED_IMG=$(BPFMAN_GO_TARGET_IMG) E2E_FLAGS="$(E2E_FLAGS)" $(KIND_TEST) test-e2e

.PHONY: test-tutorials-kind
test-tutorials-kind: $(KIND) ## Create a kind cluster, deploy bpfman, run the tutorials there, and delete it. Without a container engine, this needs root and Debian 12 (TUTORIALS_FLAGS="-run /firewall").
	@TUTORIALS_FLAGS="$(TUTORIALS_FLAGS)" $(KIND_TEST) test-tutorials

# A separate cluster, because nodes are stopped, added, and removed.
NODES_INSTANCE ?= 252
NODES_FLAGS ?=

.PHONY: test-nodes
test-nodes: ## Test bpfman on three nodes on this machine, which join, leave, fail, and are drained (as root; NODES_FLAGS="-run OneFails").
	@status=0; $(MAKE) --no-print-directory test-e2e CLUSTER_INSTANCE=$(NODES_INSTANCE) CLUSTER_NODES=3 E2E_NODES=3 E2E_FLAGS="-run '^TestNode' $(NODES_FLAGS)" || status=$$?; \
		$(MAKE) --no-print-directory cluster-down CLUSTER_INSTANCE=$(NODES_INSTANCE) || status=1; exit $$status

TUTORIALS_FLAGS ?=

# On other clusters than the one-node cluster, tutorials that push images need TUTORIALS_REGISTRY, a registry to
# push to, with a certificate of TUTORIALS_REGISTRY_CA. Without it, they are skipped.
.PHONY: test-tutorials
test-tutorials: kubectl-bpfman $(if $(shell command -v rustup),$(LOCALBIN)/bpf-linker) $(if $(ONE_NODE),$(LOCALBIN)/cosign $(LOCALBIN)/prometheus $(LOCALBIN)/promtool cluster-up) ## Run each tutorial, from its own text, on the cluster of KUBECONFIG where bpfman is deployed, or on the one-node cluster (TUTORIALS_FLAGS="-run /firewall").
	$(if $(ONE_NODE),@$(MAKE) --no-print-directory deploy-kustomize)
	@cd tests && $(call requires,cluster) $(if $(ONE_NODE),KUBECONFIG=$(CLUSTER_KUBECONFIG) TUTORIALS_REGISTRY=10.97.$(CLUSTER_INSTANCE).2:5000/tutorials TUTORIALS_REGISTRY_CA=$(CLUSTER_STATE)/pki/registry-ca.crt) \
		TUTORIALS_COMMANDS=$(LOCALBIN) go test -count=1 -v -timeout 2h $(TUTORIALS_FLAGS) ./tutorials

LIFECYCLE_FLAGS ?= -short

# This removes bpfman with all objects of its kinds. On a cluster that isn't the one-node cluster, it needs
# explicit permission.
.PHONY: test-lifecycle
test-lifecycle: ## Install bpfman with each method, uninstall it in each order, and install it again, on the one-node cluster, or with UNINSTALL=yes on that of KUBECONFIG.
	@test -n "$(ONE_NODE)" -o "$(UNINSTALL)" = yes || { echo "this uninstalls bpfman, with all objects of its kinds, from the cluster of $(KUBECONFIG): UNINSTALL=yes lets it" >&2; exit 1; }
	@$(MAKE) --no-print-directory test-e2e E2E_INSTALL=kustomize E2E_UNINSTALL=yes E2E_FLAGS="$(LIFECYCLE_FLAGS) -run '^Test(Lifecycle|FromUpstream|Upstream)'"

# Each run has a different seed, unless you specify SEED. STRETCH multiplies the duration of faults. WITHOUT leaves
# out operations and faults, by name, separated by semicolons.
# REPLAY repeats a recorded sequence, and with SHRINK=yes looks for a shorter one that fails.
SEED ?= $(shell date +%s)
MINUTES ?= 5
CHAOS_TEST = cd tests && $(call requires,cluster) KUBECONFIG=$(CLUSTER_KUBECONFIG) CHAOS_CLUSTER="$(CLUSTER)" CHAOS_STATE=$(CLUSTER_STATE) CHAOS_PROBE=$(LOCALBIN)/node-probe \
	CHAOS_BYTECODE=quay.io/$(BYTECODE_PREFIX) CHAOS_PUSH="$(MAKE) --no-print-directory -C $(CURDIR) cluster-bytecode CLUSTER_INSTANCE=$(CLUSTER_INSTANCE)" \
	BPFMAN_COUNTERS_IMG="$(BPFMAN_COUNTERS_IMG)" BPFMAN_GO_TARGET_IMG="$(BPFMAN_GO_TARGET_IMG)" MINUTES=$(MINUTES)

.PHONY: test-chaos
test-chaos: SEED := $(SEED)
test-chaos: bytecode build/tests/cmd/node-probe cluster-up ## Perform random operations and inject random faults on the one-node cluster, for MINUTES from SEED, and compare the cluster with a model (docs/reliability.md).
	@$(MAKE) --no-print-directory deploy-kustomize KUBECONFIG=$(CLUSTER_KUBECONFIG)
	@echo "SEED=$(SEED) MINUTES=$(MINUTES)"
	@$(CHAOS_TEST) CHAOS_FILE=$(or $(CHAOS_FILE),$(LOCALBIN)/chaos-$(SEED).json) SEED=$(SEED) STRETCH="$(STRETCH)" WITHOUT="$(WITHOUT)" \
		REPLAY="$(abspath $(REPLAY))" SHRINK="$(SHRINK)" go test -count=1 -v -timeout 12h ./chaos

AT_ONCE ?= 100

.PHONY: soak
soak: MINUTES = 60
soak: PROGRAMS ?= 500
soak: bytecode build/tests/cmd/node-probe cluster-up ## Load and unload AT_ONCE=100 of PROGRAMS=500 programs at a time for MINUTES=60 on the one-node cluster; write what the components use to bin/soak.csv and bin/soak.svg.
	@$(MAKE) --no-print-directory deploy-kustomize KUBECONFIG=$(CLUSTER_KUBECONFIG)
	@$(CHAOS_TEST) CHAOS_FILE=$(LOCALBIN)/soak.csv PROGRAMS=$(PROGRAMS) AT_ONCE=$(AT_ONCE) go test -count=1 -v -timeout 12h -run Soak ./chaos

# Slow tests of what rarely breaks. docs/development.md says when to run them.
.PHONY: test-slow
test-slow: ## Run the slow tests that `.ci/run` leaves out: the fuzz tests, nodes in the virtual machine, three nodes, the tutorials, and the longest tests of test-envtest, test-e2e, and test-lifecycle.
	@$(MAKE) --no-print-directory test-fuzz
	@$(MAKE) --no-print-directory test-envtest
	@$(MAKE) --no-print-directory test-kernel-node
	@$(MAKE) --no-print-directory test-mixed-kernels
	@$(MAKE) --no-print-directory test-nodes
	@$(MAKE) --no-print-directory test-e2e
	@$(MAKE) --no-print-directory test-tutorials
	@$(MAKE) --no-print-directory test-chaos MINUTES=30
	@$(MAKE) --no-print-directory test-lifecycle LIFECYCLE_FLAGS=

.PHONY: test-integration
test-integration: test-e2e ## Run test-e2e; this is the name that upstream uses.

.PHONY: test-rbac
test-rbac: ## Compare the components' permissions with their requests in the audit log of the one-node cluster, after test-e2e (AUDIT_LOG).
	$(call requires,audit-log) AUDIT_LOG=$(AUDIT_LOG) go -C tests test -count=1 -v -run AuditLog ./rbac

AUDIT_LOG ?= $(CLUSTER_STATE)/logs/audit.log

# Only this cluster has an audit log.
test: $(if $(ONE_NODE),test-rbac)

BENCH_ROUNDS ?= 5
# The one-node cluster has an audit log. On other clusters, requests aren't counted by verb.
BENCH_AUDIT_LOG ?= $(if $(filter $(CLUSTER_KUBECONFIG),$(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG))),$(CLUSTER_STATE)/logs/audit.log)
# The cost of policies is measured if the image can be signed, which requires a writable registry.
BENCH_POLICY ?= $(if $(BENCH_AUDIT_LOG),--cosign $(LOCALBIN)/cosign --sign-at 10.97.$(CLUSTER_INSTANCE).2:5000/$(BYTECODE_PREFIX)/go-tracepoint-counter:latest --sign-ca $(CLUSTER_STATE)/pki/registry-ca.crt)
# A reboot is simulated only on a cluster for tests, because it removes everything that bpfman has loaded on the node.
BENCH_REBOOT ?= $(if $(BENCH_AUDIT_LOG),--reboot)

.PHONY: bench
bench: $(LOCALBIN)/cosign ## Measure time, requests, and memory, compared with the daemon alone and with the daemon as upstream ships it, on the cluster of KUBECONFIG or the one-node cluster, where bpfman is deployed.
	go -C tests build -trimpath -o $(LOCALBIN)/bench ./bench
	KUBECONFIG=$(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG)) $(LOCALBIN)/bench --kubectl $(KUBECTL) --probe-image $(BPFMAN_NODE_PROBE_IMG) \
		--rounds $(BENCH_ROUNDS) --audit-log "$(BENCH_AUDIT_LOG)" --out $(LOCALBIN)/bench.json $(BENCH_POLICY) $(BENCH_REBOOT)
	@$(MAKE) --no-print-directory bench-csi bench-inspector bench-plugin

# Its results are added to those of the other benchmarks.
.PHONY: bench-plugin
bench-plugin: envtest kubectl-bpfman ## Measure `kubectl bpfman programs` with 1,000 nodes of 100 programs each, on a separate kube-apiserver.
	KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json \
		go -C tests test -count=1 -run '^$$' -bench Programs -benchtime 3x ./envtest/plugin

.PHONY: bench-csi
bench-csi: bytecode build/csi/cmd/bpfman-csi build-launcher ## Measure the CSI plugin with 200 volumes on the real daemon, with 1, 10, and 50 workers (as root).
	BPFMAN_RPC=$(wildcard $(DAEMON)) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher BPFMAN_CSI=$(LOCALBIN)/bpfman-csi BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json \
		go -C csi test -count=1 -run '^$$' -bench Volumes -benchtime 1x ./cmd/bpfman-csi

.PHONY: bench-inspector
bench-inspector: envtest build/agent/cmd/bpfman-inspector ## Measure the inspector with 200 programs, 200 links, and 500 processes: one scan, and its idle load (as root; takes three minutes).
	BPFMAN_INSPECTOR=$(LOCALBIN)/bpfman-inspector KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json \
		go -C tests test -count=1 -run '^$$' -bench Inspector -benchtime 1x -timeout 30m ./inspector

# What two cores can do in ten minutes. For 250,000 reports, use NODES=5000 PROGRAMS=50.
NODES ?= 500
SCALE_FLAGS ?=

.PHONY: bench-scale bench-agent
bench-scale bench-agent: PROGRAMS ?= 20
bench-agent: AGENT_ONLY = --agent-only --out $(LOCALBIN)/bench-agent.json
bench-agent: bench-scale ## Measure the memory of an agent with 60 programs; this is the part of bench-scale that takes a minute.
bench-scale: envtest build/operator/cmd/bpfman-operator build/agent/cmd/bpfman-agent $(LOCALBIN)/kwok ## Measure what a cluster of NODES nodes with PROGRAMS programs costs the operator, the API server, and the agents, on a separate kube-apiserver.
	go -C tests build -trimpath -o $(LOCALBIN)/scale ./scale
	go -C operator test -c -trimpath -o $(LOCALBIN)/reports.test ./reports
	KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) $(LOCALBIN)/scale $(SCALE_FLAGS) --reports-test $(LOCALBIN)/reports.test --nodes $(NODES) --programs $(PROGRAMS) --operator $(LOCALBIN)/bpfman-operator --agent $(LOCALBIN)/bpfman-agent \
		--kwok $(LOCALBIN)/kwok --kwok-stages "$$($(call module_files,sigs.k8s.io/kwok@$(KWOK_VERSION)))/kustomize/stage" --out $(LOCALBIN)/bench-scale.json $(AGENT_ONLY)
