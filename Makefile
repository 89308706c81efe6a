# bpfman-operator: `make help` lists the targets of this file, and `make help-all` also those of hack/make.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

LOCALBIN ?= $(CURDIR)/bin
# Large builds (Kubernetes, the daemon) are cached outside of the clone, by version.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bpfman-operator
MODULES := apis gobpfman internal bytecode agent reader inspector csi operator cli
# All Go packages: those of the product's modules, and of the module at the root.
PACKAGES := $(MODULES:%=./%/...) ./...
export CGO_ENABLED ?= 0

# The version to install, release, and bundle. The daemon has its own version, in BPFMAN_IMG.
override VERSION := $(or $(patsubst v%,%,$(VERSION)),0.6.0)

comma := ,
empty :=
space := $(empty) $(empty)

include $(addprefix hack/make/,tools.mk generate.mk build.mk cluster.mk deploy.mk kind.mk docs.mk ui.mk release.mk test.mk bench.mk)

##@ General

# A group can continue further down, or in another file.
.PHONY: help help-all
help: ## List the targets that you need most often.
help-all: ## List all targets.
help help-all:
	@awk 'BEGIN { FS = ":.*## *"; printf "\nUsage:\n  make <target>\n" } \
		/^##@/ { group = substr($$0, 5); if (!(group in lines)) order[++groups] = group } \
		/^[a-zA-Z_0-9-]+:.*## / { lines[group] = lines[group] sprintf("  \033[36m%-25s\033[0m %s\n", $$1, $$2) } \
		END { for (i = 1; i <= groups; i++) if (lines[order[i]] != "") printf "\033[1m%s\033[0m\n%s", order[i], lines[order[i]] }' \
		$(if $(filter help-all,$@),$(MAKEFILE_LIST),$(firstword $(MAKEFILE_LIST)))

##@ Local Dependencies

.PHONY: deps
deps: ## Install what this Debian 12 machine lacks: packages, the bpfman daemon, Kubernetes (as root).
	@hack/deps.sh $(CACHE) $(LOCALBIN)

# hack/make/tools.mk has their versions, and more tools.
kustomize: ## Install kustomize to bin/.
controller-gen: ## Install controller-gen to bin/.
register-gen: ## Install register-gen to bin/.
informer-gen: ## Install informer-gen to bin/.
lister-gen: ## Install lister-gen to bin/.
client-gen: ## Install client-gen to bin/.

.PHONY: envtest
envtest: $(if $(KUBEBUILDER_ASSETS),,$(KUBERNETES)) ## Build the API server and etcd of tests to bin/envtest, unless KUBEBUILDER_ASSETS names others.
	$(if $(KUBEBUILDER_ASSETS),,@mkdir -p $(ENVTEST_ASSETS) && for name in etcd kube-apiserver kubectl; do ln -sfn $(KUBERNETES) $(ENVTEST_ASSETS)/$$name; done)

opm: ## Install opm to bin/; `make catalog` then validates with it.

##@ Development

# What writes the lists of kinds compiles with the DeepCopy methods of a new one.
.PHONY: manifests
manifests: $(LOCALBIN)/controller-gen generate-deepcopy ## Generate definitions and roles, and what lists kinds or keys of the ConfigMap.
	go run ./hack/kinds lists
	go run ./hack/keys write
	$(GENERATE) $< crd paths=./v1alpha1 output:crd:dir=../config/crd/bases
	mv config/crd/bases/bpfman.io_*states.yaml config/states/
	$(GENERATE) $< crd paths=./namespaced output:crd:dir=../config/namespaced/crd
	mv config/namespaced/crd/bpfman.io_*states.yaml config/namespaced/states/
	go run ./hack/kinds chart
	go run ./hack/kinds definitions

# The order matters: informers need clients and listers.
.PHONY: generate
generate: manifests ## Generate all generated code and manifests.
	$(MAKE) generate-register
	$(MAKE) generate-typed-clients generate-typed-listers
	$(MAKE) generate-typed-informers generate-reference generate-problems

.PHONY: generate-deepcopy
generate-deepcopy: $(LOCALBIN)/controller-gen ## Generate the DeepCopy methods (zz_generated.deepcopy.go).
	$(GENERATE) $< object:headerFile=../hack/boilerplate.go.txt paths=./v1alpha1 paths=./namespaced

.PHONY: generate-register
generate-register: $(LOCALBIN)/register-gen ## Generate the registration of the kinds (zz_generated.register.go).
	$(GENERATE) $< $(BOILERPLATE) --output-file zz_generated.register.go ./v1alpha1

.PHONY: generate-typed-clients
generate-typed-clients: $(LOCALBIN)/client-gen ## Generate the clientset and its fake (apis/client/clientset).
	rm -rf apis/client/clientset
	$(GENERATE) $< $(BOILERPLATE) --clientset-name clientset --output-dir client --output-pkg $(APIS)/client \
		--input-base "" --input $(APIS)/v1alpha1

.PHONY: generate-typed-listers
generate-typed-listers: $(LOCALBIN)/lister-gen ## Generate the listers (apis/client/listers).
	rm -rf apis/client/listers
	$(GENERATE) $< $(BOILERPLATE) --output-dir client/listers --output-pkg $(APIS)/client/listers ./v1alpha1

.PHONY: generate-typed-informers
generate-typed-informers: $(LOCALBIN)/informer-gen ## Generate the informers (apis/client/informers).
	rm -rf apis/client/informers
	$(GENERATE) $< $(BOILERPLATE) --output-dir client/informers --output-pkg $(APIS)/client/informers --single-directory \
		--versioned-clientset-package $(APIS)/client/clientset --listers-package $(APIS)/client/listers ./v1alpha1

.PHONY: vendors
vendors: ## Update the modules' dependencies, and the vendor directory for builds without a network.
	go work sync
	@for module in $(MODULES) .; do (cd $$module && GOWORK=off go mod tidy) || exit 1; done
	@rm -f go.work.sum && go list -m all >/dev/null # without the checksums of former dependencies
	go work vendor

.PHONY: fmt
fmt: $(LOCALBIN)/gofumpt ## Format the Go code.
	$< -w $(MODULES) examples hack tests

.PHONY: verify
verify: $(LOCALBIN)/gofumpt generate ## Fail if generated files are stale, or if Go code isn't formatted.
	@files=$$($< -l $(MODULES) examples hack tests); test -z "$$files" || { echo "not formatted, run make fmt:"; echo "$$files"; exit 1; }
	@changes=$$(git status --porcelain -- $(GENERATED)); test -z "$$changes" || { echo "generated files differ from what is committed, run make generate:"; echo "$$changes"; exit 1; }

# The linter runs on all modules of the workspace in one process, so it reads common dependencies once.
.PHONY: lint
lint: $(LOCALBIN)/golangci-lint $(LOCALBIN)/actionlint prose ## Run the linters: golangci-lint, actionlint for the workflows, vale for the documentation.
	$(LOCALBIN)/actionlint
	$< run --allow-parallel-runners $(PACKAGES)

.PHONY: docs
docs: $(DOCS_VENV)/bin/mkdocs schemas ## Build the documentation's site to bin/site; fail if a link is broken.
	$(MKDOCS) build --quiet

# The e2e tests with many restarts and long waits only run with `make test-e2e`. Only the one-node cluster has an
# audit log, which test-rbac reads.
.PHONY: test
test: deps ## Run all tests but the longest (as root), on the cluster of KUBECONFIG or the one-node cluster.
	@MAKE="$(MAKE)" ENVTEST_FLAGS=-short E2E_FLAGS=-short hack/parts.sh $(TEST_CODE) test-e2e $(if $(ONE_NODE),test-rbac)

TEST_CODE = test-unit test-reader test-manifests test-release test-envtest test-bytecode test-csi test-sanity test-inspector test-simulation

.PHONY: test-code
test-code: deps ## Run all tests that need no cluster (as root).
	@MAKE="$(MAKE)" ENVTEST_FLAGS=-short hack/parts.sh $(TEST_CODE)

.PHONY: test-unit
test-unit: ## Run the tests that need nothing but Go and a C compiler, with the race detector.
	CGO_ENABLED=1 go test -race $(MODULES:%=./%/...) ./examples/...

ENVTESTS = ./envtest/... ./simulation/apiserver

.PHONY: test-envtest
test-envtest: envtest kubectl-bpfman chart ## Run the tests that need a kube-apiserver and etcd.
	$(call requires,envtest commands) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman go -C tests test -count=1 -p 4 -parallel 8 -timeout 20m $(ENVTEST_FLAGS) $(ENVTESTS)

# On the one-node cluster, the pods are recreated, because images can have changed under the same names.
.PHONY: test-e2e
test-e2e: kubectl-bpfman bytecode $(LOCALBIN)/cosign $(if $(ONE_NODE),cluster-up) ## Deploy bpfman to the cluster of KUBECONFIG or the one-node cluster, and test it there.
	$(if $(ONE_NODE),@KUBECONFIG=$(CLUSTER_KUBECONFIG) $(KUBECTL) -n bpfman delete pods --all --ignore-not-found)
	$(if $(filter-out kustomize,$(E2E_INSTALL)),@$(MAKE) --no-print-directory undeploy-kustomize)
	@$(MAKE) --no-print-directory deploy-$(E2E_INSTALL)
	@cd tests && $(call requires,cluster bytecode commands cosign kubectl) $(if $(ONE_NODE),$(E2E_ONE_NODE)) KUBECTL="$(KUBECTL)" COSIGN="$(LOCALBIN)/cosign" BYTECODE_REGISTRY="$(BYTECODE_REGISTRY)" BYTECODE_PREFIX="$(BYTECODE_PREFIX)" \
		BPFMAN_NODE_PROBE_IMG="$(BPFMAN_NODE_PROBE_IMG)" BPFMAN_COUNTERS_IMG="$(BPFMAN_COUNTERS_IMG)" BPFMAN_GO_TARGET_IMG="$(BPFMAN_GO_TARGET_IMG)" \
		BPFMAN_MAP_EXPORTER_IMG="$(BPFMAN_MAP_EXPORTER_IMG)" E2E_NODES="$(E2E_NODES)" \
		go test -count=1 -v -parallel 8 -timeout $(E2E_TIMEOUT) $(E2E_FLAGS) ./e2e

.PHONY: test-integration
test-integration: test-e2e ## Run test-e2e; this is the name that upstream uses.

.PHONY: bundle
bundle: build-release $(LOCALBIN)/kustomize ## Generate the OLM bundle in bin/bundle, and validate it.
	@$(LOCALBIN)/release bundle --manifests <($(LOCALBIN)/kustomize build config/manifests | $(WITH_IMAGES)) \
		--samples <($(LOCALBIN)/kustomize build config/samples | $(WITH_IMAGES)) --version $(VERSION) --dir $(BUNDLE) --dockerfile $(BUNDLE).Dockerfile \
		--channels $(CHANNELS) --default-channel $(DEFAULT_CHANNEL) --replaces "$(BUNDLE_REPLACES)" --skip-range "$(BUNDLE_SKIP_RANGE)"

.PHONY: build-release-yamls
build-release-yamls: $(LOCALBIN)/kustomize ## Write the install files of a release to release-vVERSION.
	@$(MAKE) --no-print-directory release-yamls $(RELEASED)

##@ Build

.PHONY: build
build: $(COMMANDS:%=build/%) ## Build all commands to bin/, statically linked.

.PHONY: kubectl-bpfman
kubectl-bpfman: $(if $(shell command -v npm),$(UI_PAGE),no-ui) ## Build the kubectl plugin, `kubectl bpfman`, to bin/.
	go -C cli build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $(LOCALBIN)/$@ ./cmd/$@
	@install cli/kubectl_complete-bpfman $(LOCALBIN)

.PHONY: build-images
build-images: $(IMAGE_TARGETS) ## Build all images, with Docker and BuildKit, or with Podman.

build-operator-image: ## Build bpfman-operator's image.
build-agent-image: ## Build bpfman-agent's image.

.PHONY: push-images
push-images: container-engine ## Push the images that build-images builds.
	@set -x; for image in $(BUILT_IMAGES); do $(CONTAINER_ENGINE) push "$$image"; done

.PHONY: load-images-kind
load-images-kind: container-engine $(KIND) ## Load the images that build-images builds into the kind cluster.
	@archive=$$(mktemp) && trap 'rm -f "$$archive"' EXIT && for image in $(BUILT_IMAGES); do \
		echo "load $$image"; $(CONTAINER_ENGINE) save "$$image" >"$$archive"; $(KIND_RUN) load image-archive --name $(KIND_CLUSTER_NAME) "$$archive"; done

.PHONY: bundle-build
bundle-build: container-engine $(BUNDLE).Dockerfile ## Build the image of that bundle, BUNDLE_IMG.
	$(CONTAINER_ENGINE) build -f $(BUNDLE).Dockerfile -t $(BUNDLE_IMG) $(BUNDLE)

.PHONY: bundle-push
bundle-push: container-engine ## Push the image of the bundle.
	$(CONTAINER_ENGINE) push $(BUNDLE_IMG)

.PHONY: catalog-build
catalog-build: container-engine catalog ## Build the image of a catalog with that bundle, CATALOG_IMG.
	$(CONTAINER_ENGINE) build -f catalog.Dockerfile -t $(CATALOG_IMG) $(LOCALBIN)/catalog

.PHONY: catalog-push
catalog-push: container-engine ## Push the image of the catalog.
	$(CONTAINER_ENGINE) push $(CATALOG_IMG)

##@ Cluster of this machine

.PHONY: cluster-up
cluster-up: deps build build-cluster ## Start a Kubernetes cluster with CLUSTER_NODES=1 to 8 nodes on this machine (as root).
	@$(CLUSTER) --nodes $(CLUSTER_NODES) up
	@$(MAKE) --no-print-directory cluster-bytecode

.PHONY: cluster-down
cluster-down: build-cluster ## Stop that cluster, and remove everything but the cache.
	@$(CLUSTER) down

##@ CRD Deployment

.PHONY: install
install: ## Install the CustomResourceDefinitions into the cluster of KUBECONFIG.
	$(KUBECTL) kustomize config/crd | $(INSTALL) -

.PHONY: uninstall
uninstall: ## Delete the CustomResourceDefinitions, with all objects of their kinds.
	$(UNINSTALL_SCRIPT) --definitions

##@ Vanilla K8s Deployment

.PHONY: setup-kind
setup-kind: container-engine $(KIND) ## Create the kind cluster KIND_CLUSTER_NAME, unless it exists, and make it the current context.
	@if $(KIND_RUN) get clusters 2>/dev/null | grep -qx '$(KIND_CLUSTER_NAME)'; then $(KIND_RUN) export kubeconfig --name $(KIND_CLUSTER_NAME); \
	else $(KIND_RUN) create cluster --name $(KIND_CLUSTER_NAME) --config $(KIND_CONFIG) $(addprefix --image ,$(KIND_NODE_IMAGE)) --wait $(KIND_TIMEOUT); fi

.PHONY: destroy-kind
destroy-kind: container-engine $(KIND) ## Delete the kind cluster.
	$(KIND_RUN) delete cluster --name $(KIND_CLUSTER_NAME)

# Without KUBECONFIG, on a cluster of this machine. With KUBECONFIG, on that cluster.
.PHONY: run
run: export CLUSTER_DOWN = make cluster-down$(if $(filter-out 0,$(CLUSTER_INSTANCE)), CLUSTER_INSTANCE=$(CLUSTER_INSTANCE))
run: ## Start a one-node cluster, deploy bpfman, and show a sample program with its counters (as root).
	@$(if $(KUBECONFIG),,DAEMON="$(DAEMON)" $(NEEDS) root apt go rust cgroup disk)
	@KUBECTL="$(KUBECTL)" CLUSTER_KUBECONFIG="$(CLUSTER_KUBECONFIG)" DEPLOY="$(DEPLOY)" \
		BYTECODE_REGISTRY="$(BYTECODE_REGISTRY)" BYTECODE_PREFIX="$(BYTECODE_PREFIX)" BPFMAN_COUNTERS_IMG="$(BPFMAN_COUNTERS_IMG)" \
		hack/run.sh

.PHONY: run-on-kind
run-on-kind: ## Create the kind cluster, build and load the images, and deploy bpfman.
	@$(NEEDS) engine rootful buildkit go kubectl
	@$(MAKE) --no-print-directory setup-kind
	@$(MAKE) --no-print-directory build-images
	@$(MAKE) --no-print-directory load-images-kind
	@$(MAKE) --no-print-directory deploy IMAGES_LOADED=yes
	@printf '\n%s\n' 'bpfman runs on the kind cluster $(KIND_CLUSTER_NAME), which is now the current context of kubectl.' \
		'To attach a program, continue with docs/get-started.md#attach-a-program. To delete the cluster, run: make destroy-kind'

.PHONY: deploy
deploy: ## Deploy bpfman to the cluster of KUBECONFIG (DEPLOY=config/default), and wait until it runs.
	$(RENDER) | $(INSTALL) -

.PHONY: undeploy
undeploy: ## Remove bpfman, its CustomResourceDefinitions, and all objects of their kinds.
	$(RENDER) | $(UNINSTALL_SCRIPT) -

.PHONY: kind-reload-images
kind-reload-images: load-images-kind ## Load the images again after build-images, and restart the pods that use them.
	$(KUBECTL) --context kind-$(KIND_CLUSTER_NAME) -n bpfman rollout restart deployment/bpfman-operator daemonset/bpfman-daemon
	$(KUBECTL) --context kind-$(KIND_CLUSTER_NAME) -n bpfman rollout status deployment/bpfman-operator --timeout=$(DEPLOY_TIMEOUT)
	$(KUBECTL) --context kind-$(KIND_CLUSTER_NAME) -n bpfman rollout status daemonset/bpfman-daemon --timeout=$(DEPLOY_TIMEOUT)

##@ Openshift Deployment

.PHONY: deploy-openshift
deploy-openshift: ## Deploy bpfman to the OpenShift cluster of KUBECONFIG, and wait until it runs.
	@$(MAKE) --no-print-directory deploy DEPLOY=config/openshift

.PHONY: undeploy-openshift
undeploy-openshift: ## Remove bpfman from the OpenShift cluster, with all objects of its kinds.
	@$(MAKE) --no-print-directory undeploy DEPLOY=config/openshift

.PHONY: catalog-deploy
catalog-deploy: ## Add that catalog to the cluster of KUBECONFIG, which must have OLM (CATALOG_NAMESPACE).
	$(CATALOG_SOURCE) | $(KUBECTL) apply -f -

.PHONY: catalog-undeploy
catalog-undeploy: ## Remove that catalog. The operator that was installed from it stays.
	$(CATALOG_SOURCE) | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -
