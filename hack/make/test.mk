# Tests. docs/development.md describes them.

##@ Tests

# A test without a prerequisite is skipped, but fails if TEST_REQUIRES names the prerequisite (internal/prerequisite).
# Users name what their kernel and tools support. Targets add what they provide themselves.
TEST_REQUIRES ?=
requires = TEST_REQUIRES="$(TEST_REQUIRES) $1"
# For the tests that start the daemon.
REAL_DAEMON = BPFMAN_RPC=$(wildcard $(DAEMON)) BPFMAN_LAUNCHER=$(LOCALBIN)/daemon-launcher

.PHONY: test-reader
test-reader: $(LOCALBIN)/cosign build/reader/cmd/bpfman-reader ## Run the tests of signatures with those that cosign itself makes.
	$(call requires,cosign commands) COSIGN=$< BPFMAN_READER=$(LOCALBIN)/bpfman-reader go -C reader test -count=1 ./cmd/bpfman-reader

# What the fuzz tests find interesting is kept outside of the clone, for the next run.
FUZZ_TIME ?= 30s

.PHONY: test-fuzz
test-fuzz: ## Run each fuzz test for FUZZ_TIME=30s.
	@CORPUS=$(CACHE)/fuzz FUZZ_TIME=$(FUZZ_TIME) hack/fuzz.sh $(MODULES) hack tests

# Without PACKAGES, those whose decisions matter most. TESTS are packages whose tests judge what each package's own tests don't notice.
# AT are files or lines, such as agent/plan/diff.go:63.
MUTATED = $(addprefix ./,$(addprefix agent/,plan load confirm record report bytecode controller) $(addprefix operator/,status rollout deploy) csi/driver csi/maps internal/policy internal/rollout)
COUNT ?= 40
TESTS ?=
AT ?=

.PHONY: test-mutation
test-mutation: PACKAGES = $(MUTATED)
test-mutation: SEED := $(SEED)
test-mutation: ## Change COUNT=40 places of each of PACKAGES at random, from SEED, and print the changes that no test notices (TESTS="./tests/simulation" runs more tests than the packages' own; takes minutes).
	go run ./hack/mutate -count=$(COUNT) -seed=$(SEED) -also="$(TESTS)" -at="$(AT)" $(PACKAGES)

# The time for each fault is MINUTES. AT selects faults by their names, separated by commas.
.PHONY: test-reverts
test-reverts: MINUTES = 10
test-reverts: ## Take back one fix of hack/mutate/reverts.txt at a time, and search with the simulation for the fault, for at most MINUTES=10 (takes an hour).
	go run ./hack/mutate -reverts=hack/mutate/reverts.txt -timeout=$(MINUTES)m -at="$(AT)"

.PHONY: test-manifests
test-manifests: $(LOCALBIN)/helm $(LOCALBIN)/promtool chart ## Test the manifests, the Helm chart, permissions, monitoring, and the documentation. This needs nothing but Go.
	KYVERNO_FILES="$$($(call module_files,github.com/kyverno/kyverno@$(KYVERNO_VERSION)))" $(call requires,helm promtool kyverno) HELM=$(LOCALBIN)/helm PROMTOOL=$(LOCALBIN)/promtool go -C tests test -count=1 -skip '^TestTutorials$$' ./chart ./configuration ./docs ./gitops ./manifests ./monitoring ./plot ./rbac ./restarts ./scale ./tutorials
	go -C hack test -count=1 ./docs/reference ./docs/schemas ./keys ./kinds

.PHONY: test-release
test-release: bundle ## Validate the OLM bundle, and test the other parts of a release.
	cd hack/release && go test -count=1 ./...

.PHONY: vulnerabilities
vulnerabilities: $(LOCALBIN)/govulncheck ## Fail if the product calls code with a known vulnerability (https://vuln.go.dev).
	$< $(MODULES:%=./%/...)

.PHONY: lint-workflows
lint-workflows: $(LOCALBIN)/actionlint $(LOCALBIN)/zizmor ## Check the workflows: actionlint for mistakes, and zizmor for weaknesses, which needs Python's venv.
	$(LOCALBIN)/actionlint
	$(LOCALBIN)/zizmor --offline --quiet --min-severity=medium .github

RELEASE_TEST = $(foreach tool,registry cosign helm kustomize,$(LOCALBIN)/$(tool))

.PHONY: test-release-published
test-release-published: $(RELEASE_TEST) ## Publish a release of the last commit to a local registry, and verify it (ARCHITECTURES=amd64; takes minutes).
	RELEASE_PUBLISHED=$(LOCALBIN) go -C hack/release test -count=1 -v -timeout 60m -run '^TestRelease$$' .

# Another instance, whose nodes have none of the project's images.
RELEASE_INSTANCE ?= 253

.PHONY: test-release-installed
test-release-installed: deps build-cluster build/tests/cmd/csi-node-driver-registrar $(LOCALBIN)/oras $(RELEASE_TEST) ## Publish the former release and the last commit; install, upgrade, and uninstall them on a cluster, with the documentation's commands (as root; takes many minutes).
	@hack/release/deps.sh
	RELEASE_INSTALLED=$(LOCALBIN) CLUSTER_INSTANCE=$(RELEASE_INSTANCE) CLUSTER_KUBERNETES=$(KUBERNETES) CLUSTER_DAEMON=$(DAEMON) \
		go -C hack/release test -count=1 -v -timeout 2h -run '^TestInstalled$$' .

.PHONY: test-emulated
test-emulated: envtest bytecode $(BIG_ENDIAN_BYTECODE) ## Run the commands for arm64 under QEMU, to readiness, and have the reader of each byte order choose its bytecode (as root).
	@hack/release/deps.sh
	@$(MAKE) --no-print-directory build-architectures ARCHITECTURES=arm64 RELEASE_COMMANDS="bpfman-operator bpfman-agent bpfman-reader bpfman-ns bpfman-probe bpfman-csi bpfman-inspector"
	@$(MAKE) --no-print-directory build-architectures ARCHITECTURES=s390x RELEASE_COMMANDS=bpfman-reader
	$(call requires,emulators envtest) EMULATED_BIN=$(LOCALBIN) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) go -C tests test -count=1 -v -timeout 30m ./emulated

.PHONY: test-bytecode
test-bytecode: bytecode envtest build/reader/cmd/bpfman-reader build-launcher ## Test each call and the example programs on the real daemon, if this kernel supports them, and compare the samples with the programs (as root).
	$(call requires,daemon bytecode envtest commands) $(REAL_DAEMON) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) \
		go -C tests test -count=1 -v ./contract ./wire ./bytecode ./bytecodesource ./manifests ./v05

.PHONY: test-daemon
test-daemon: bytecode build-launcher ## Test what the agent, the CSI plugin, and the inspector rely on with the daemon of DAEMON, and those in memory (as root).
	$(call requires,daemon bytecode) $(REAL_DAEMON) BPFMAN_OTHER_RPC=$(OTHER_DAEMON) go -C tests test -count=1 -v ./contract

.PHONY: test-corpus
test-corpus: bytecode build-launcher ## Load and attach each program of the eBPF objects in Debian's packages with the real daemon, and compare them with libbpf's (as root).
	@hack/corpus.sh $(CACHE)/corpus
	$(call requires,daemon bytecode bpftool corpus) $(REAL_DAEMON) CORPUS=$(CACHE)/corpus go -C tests test -count=1 -v -timeout 30m -run '^TestCorpus$$' ./bytecode $(CORPUS_FLAGS)

.PHONY: test-inspector
test-inspector: bytecode envtest build/inspector/cmd/bpfman-inspector build-launcher ## Test that the inspector finds the same programs as bpftool, no matter what loaded, attached, or holds them (as root).
	$(call requires,daemon bytecode envtest commands) $(REAL_DAEMON) BPFMAN_INSPECTOR=$(LOCALBIN)/bpfman-inspector \
		KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) go -C tests test -count=1 -v ./inspector

.PHONY: test-upstream-daemon
test-upstream-daemon: bytecode build-launcher ## Build the bpfman daemon of v0.5.6, and test what it leaves on a node, and how the agent handles it (as root).
	@hack/upstream-daemon.sh $(CACHE)
	$(call requires,daemon upstream-daemon) BPFMAN_V05_RPC=$(UPSTREAM_DAEMON) $(REAL_DAEMON) \
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
	go -C tests test -c -o $(KERNEL_TESTS)/ ./bytecode ./bytecodesource ./contract ./e2e ./inspector
	go -C examples build -trimpath -o $(LOCALBIN)/bytecode-images ./cmd/bytecode-images

KERNEL_TEST = LOCALBIN=$(LOCALBIN) DAEMON=$(DAEMON) OTHER_DAEMON=$(OTHER_DAEMON) KUBERNETES=$(KUBERNETES) hack/kernel/test.sh

.PHONY: test-kernel
test-kernel: deps deps-kernel build-kernel-tests ## Boot Linux 6.12 in a virtual machine, and test every type of program and chains of them on the real daemon, and LSM programs on the daemon in Go of OTHER_DAEMON (as root).
	@$(KERNEL_TEST) daemon $(CACHE) $(KERNEL_MEMORY) $(KERNEL_INSTANCE)

.PHONY: test-kernel-node
test-kernel-node: deps deps-kernel build-kernel-tests ## Run a whole Kubernetes node in that virtual machine, and test every kind of object there (as root; takes minutes).
	@$(KERNEL_TEST) node $(CACHE) $(KERNEL_MEMORY) $(KERNEL_INSTANCE)

.PHONY: test-mixed-kernels
test-mixed-kernels: deps deps-kernel build-kernel-tests kubectl-bpfman ## Join that virtual machine, with Linux 6.12, to two nodes on this machine, and test one object on all three (as root; takes minutes).
	@$(KERNEL_TEST) mixed $(CACHE) $(KERNEL_MEMORY) $(KERNEL_INSTANCE)

.PHONY: test-csi
test-csi: bytecode build/csi/cmd/bpfman-csi build-launcher ## Run the CSI plugin's tests as root: real mounts and maps, kills, and the real daemon.
	$(call requires,daemon) $(REAL_DAEMON) BPFMAN_CSI=$(LOCALBIN)/bpfman-csi go -C csi test -count=1 ./...

.PHONY: test-sanity
test-sanity: bytecode build/csi/cmd/bpfman-csi build-launcher ## Run csi-sanity, the CSI community's suite, against the plugin with the real daemon (as root).
	$(call requires,daemon commands) $(REAL_DAEMON) BPFMAN_CSI=$(LOCALBIN)/bpfman-csi go -C tests test -count=1 -v ./sanity

CONTAINERD = $(CACHE)/containerd-$(shell awk '$$1 == "require" { print $$3 }' hack/containerd/go.mod)/containerd

FIRST_PACKET = $(REAL_DAEMON) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) CONTAINERD=$(CONTAINERD) FIRST_PACKET=$(LOCALBIN)/first-packet BPFMAN_AGENT=$(LOCALBIN)/bpfman-agent

.PHONY: build-first-packet
build-first-packet: bytecode envtest build/agent/cmd/bpfman-agent build/agent/cmd/bpfman-ns build/tests/cmd/first-packet build-launcher build-containerd
.PHONY: build-containerd
build-containerd:
	@hack/containerd/build.sh $(CACHE)

.PHONY: test-storage
test-storage: TEST_REQUIRES += storage-suite
test-storage: export KUBERNETES_STORAGE = $(LOCALBIN)/kubernetes-storage
test-storage: E2E_FLAGS = -run '^TestStorageSuite$$'
test-storage: $(LOCALBIN)/kubernetes-storage test-e2e ## Run Kubernetes' own tests of ephemeral inline volumes on the CSI plugin, on the cluster of test-e2e (builds them first).

.PHONY: test-first-packet
test-first-packet: build-first-packet ## Test on containerd 2 and the real daemon that programs are attached before the first packet of a pod and the first instruction of a container (as root; builds containerd first).
	$(call requires,daemon bytecode envtest commands) $(FIRST_PACKET) go -C tests test -count=1 -v -timeout 20m ./firstpacket

# `make deps-kernel` installs it.
VNG ?= $(CACHE)/virtme-ng-1.42/bin/vng
VM_KERNEL ?= $(firstword $(wildcard $(CACHE)/linux-6.12/boot/vmlinuz-*))

.PHONY: test-selinux
test-selinux: ## Test maps of volumes in a virtual machine with Linux 6.12, where SELinux is enforced (as root; needs secilc).
	@test -x "$(VNG)" -a -f "$(VM_KERNEL)" || { echo "the virtual machine's parts are missing: set VNG and VM_KERNEL" >&2; exit 1; }
	@hack/selinux/test.sh $(VNG) $(VM_KERNEL)

# Another instance, so that it doesn't affect a cluster in use.
.PHONY: test-cluster
test-cluster: deps build-cluster ## Test that clusters of one and of several nodes start, and that nothing is left of them (as root).
	cd hack/cluster && CLUSTER_PROGRAM=$(LOCALBIN)/cluster CLUSTER_KUBERNETES=$(KUBERNETES) go test -count=1 ./...

# The settings for the one-node cluster are here. For other clusters, use the environment. BYTECODE_REGISTRY and
# BYTECODE_PREFIX say where the daemon finds the example programs (`make push-bytecode`). BYTECODE_PUSH and
# BYTECODE_PUSH_CA say where the tests can push more programs to the same place.
ONE_NODE = $(filter $(CLUSTER_KUBECONFIG),$(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG)))
E2E_ONE_NODE = KUBECONFIG=$(CLUSTER_KUBECONFIG) BYTECODE_PUSH=10.97.$(CLUSTER_INSTANCE).2:5000 \
	BYTECODE_PUSH_CA=$(CLUSTER_STATE)/pki/registry-ca.crt SAMPLE_APP_IMG=$(BPFMAN_GO_TARGET_IMG) \
	BPFMAN_NEXT_IMG=quay.io/bpfman/bpfman:next BPFMAN_OPERATOR_NEXT_IMG=quay.io/bpfman/bpfman-operator:next \
	BPFMAN_AGENT_NEXT_IMG=quay.io/bpfman/bpfman-agent:next BPFMAN_CSI_NEXT_IMG=quay.io/bpfman/bpfman-csi:next \
	BPFMAN_INSPECTOR_NEXT_IMG=quay.io/bpfman/bpfman-inspector:next E2E_MACHINES="$(CLUSTER)" \
	$(if $(OTHER_DAEMON),BPFMAN_OTHER_IMG=quay.io/bpfman/bpfman:other)
# With this variable, tests for several nodes fail on a smaller cluster. Without it, they are skipped.
E2E_NODES ?=
E2E_FLAGS ?=
E2E_TIMEOUT ?= 45m
# How to install bpfman: kustomize, release, or helm. For the latter two, bpfman is uninstalled first.
E2E_INSTALL ?= kustomize

# A separate cluster, because nodes are stopped, added, and removed.
NODES_INSTANCE ?= 252
NODES_FLAGS ?=

.PHONY: test-nodes
test-nodes: ## Test bpfman on three nodes on this machine, which join, leave, fail, and are drained (as root; NODES_FLAGS="-run OneFails").
	@status=0; $(MAKE) --no-print-directory test-e2e CLUSTER_INSTANCE=$(NODES_INSTANCE) CLUSTER_NODES=3 E2E_NODES=3 E2E_FLAGS="-run '^TestNode|^TestStagedRollout|^TestRollback' $(NODES_FLAGS)" || status=$$?; \
		$(MAKE) --no-print-directory cluster-down CLUSTER_INSTANCE=$(NODES_INSTANCE) || status=1; exit $$status

TUTORIALS_FLAGS ?=

# On other clusters than the one-node cluster, tutorials that push images need TUTORIALS_REGISTRY, a registry to
# push to, with a certificate of TUTORIALS_REGISTRY_CA. Without it, they are skipped.
# One needs NRI, which this machine's containerd might not have.
.PHONY: test-tutorials
test-tutorials: CLUSTER_CONTAINERD = $(dir $(CONTAINERD))
test-tutorials: $(if $(ONE_NODE),build-containerd) kubectl-bpfman $(if $(shell command -v rustup),$(LOCALBIN)/bpf-linker) $(if $(ONE_NODE),$(LOCALBIN)/cosign $(LOCALBIN)/prometheus $(LOCALBIN)/promtool cluster-up) ## Run each tutorial, from its own text, on the cluster of KUBECONFIG where bpfman is deployed, or on the one-node cluster (TUTORIALS_FLAGS="-run /firewall").
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

# The API server in memory answers as the version of Kubernetes whose libraries it is built from.
.PHONY: test-previous-kubernetes
test-previous-kubernetes: $(PREVIOUS_KUBERNETES) ## Run the tests of definitions, status, and the operator's objects on the API server of the version of Kubernetes before that of the one-node cluster.
	@$(MAKE) --no-print-directory test-envtest ENVTESTS=./envtest/... KUBEBUILDER_ASSETS=$(patsubst %/,%,$(dir $(PREVIOUS_KUBERNETES)))

.PHONY: test-oldest-kubernetes
test-oldest-kubernetes: $(OLDEST_KUBERNETES) ## Run the tests of definitions, status, and the operator's objects on the API server of the oldest version of Kubernetes that bpfman supports.
	@$(MAKE) --no-print-directory test-envtest ENVTESTS=./envtest/... KUBEBUILDER_ASSETS=$(patsubst %/,%,$(dir $(OLDEST_KUBERNETES)))

# Slow tests of what rarely breaks. docs/development.md says when to run them.
.PHONY: test-slow
test-slow: ## Run the slow tests that `.ci/run` leaves out: the fuzz tests, the previous and the oldest Kubernetes, nodes in the virtual machine, three nodes, the tutorials, the page, and the longest tests of test-envtest, test-e2e, and test-lifecycle.
	@MAKE="$(MAKE)" hack/parts.sh test-fuzz test-envtest test-corpus test-previous-kubernetes test-oldest-kubernetes test-kernel-node test-mixed-kernels test-nodes test-e2e \
		test-tutorials test-ui "test-chaos MINUTES=30" "test-lifecycle LIFECYCLE_FLAGS=" test-emulated test-storage test-first-packet test-release-published test-release-installed

.PHONY: test-rbac
test-rbac: ## Compare the components' permissions with their requests in the audit log of the one-node cluster, after test-e2e (AUDIT_LOG).
	$(call requires,audit-log) AUDIT_LOG=$(AUDIT_LOG) go -C tests test -count=1 -v -run AuditLog ./rbac

AUDIT_LOG ?= $(CLUSTER_STATE)/logs/audit.log

# The search is for new seeds, each time. SEED sets the first. HAVING=<text> plays only histories with a fault or an operation with
# this text. GO_ON=yes lists all histories that break an invariant, instead of shortening the first one. EACH_STEP=<seed> plays the history of that seed with one fault at
# each of its steps instead. What is found is kept in tests/simulation/recordings.
SIMULATION = go -C tests test -count=1 -v -timeout 0 $(SIMULATION_FLAGS) ./simulation/history
EACH_STEP ?=
HAVING ?=
GO_ON ?=

# In CI, the seeds come from the commit, so that another run plays the same histories.
SIMULATION_SEED = $(if $(filter command line,$(origin SEED)),$(SEED),$(if $(CI),$(shell printf %d 0x$$(git rev-parse --short=12 HEAD)),0))

.PHONY: test-simulation
test-simulation: MINUTES = 1
test-simulation: ## Play recorded and, for MINUTES=1, random histories of a simulated cluster with faults, and check what always holds (docs/reliability.md).
	go -C tests test -count=1 $(SCENARIO_FLAGS) ./simulation ./simulation/start
	$(SIMULATION) -args -search=$(MINUTES)m -seed=$(SIMULATION_SEED) $(if $(EACH_STEP),-each=$(EACH_STEP)) -having="$(HAVING)" $(if $(GO_ON),-go-on) -keep=$(CURDIR)/tests/simulation/recordings

SIMULATED = agent/controller agent/record operator/...
COVERED = -coverpkg=$(subst $(space),$(comma),$(SIMULATED:%=github.com/bpfman/bpfman-operator/%))

.PHONY: cover-simulation
cover-simulation: ## Print which part of agent/controller, agent/record, and operator the simulation and unit tests cover together.
	@$(MAKE) --no-print-directory test-simulation SCENARIO_FLAGS="-coverprofile=$(LOCALBIN)/scenarios.cover $(COVERED)" \
		SIMULATION_FLAGS="-coverprofile=$(LOCALBIN)/simulation.cover $(COVERED)"
	go test -coverprofile=$(LOCALBIN)/unit.cover $(COVERED) $(SIMULATED:%=./%)
	@hack/cover.sh $(addprefix $(LOCALBIN)/,scenarios.cover simulation.cover unit.cover)
