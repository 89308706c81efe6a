# The cluster of this machine: hack/cluster.

##@ Cluster of this machine

# A machine can have several clusters. Each has its own number, state directory, and kubeconfig.
CLUSTER_INSTANCE ?= 0
# The number of nodes. A running cluster with more nodes keeps them.
CLUSTER_NODES ?= 1
# The node for the command, by number or name.
NODE ?= 1
CLUSTER_STATE ?= /var/lib/bpfman-cluster$(filter-out 0,$(CLUSTER_INSTANCE))
CLUSTER_KUBECONFIG ?= $(LOCALBIN)/kubeconfig$(filter-out 0,$(CLUSTER_INSTANCE))
# The directory of containerd and its shim. By default, they are this machine's.
CLUSTER_CONTAINERD ?=
CLUSTER = $(LOCALBIN)/cluster --instance $(CLUSTER_INSTANCE) --state-dir $(CLUSTER_STATE) --kubernetes $(KUBERNETES) \
	$(if $(CLUSTER_CONTAINERD),--containerd $(CLUSTER_CONTAINERD)) --daemon $(DAEMON) $(if $(OTHER_DAEMON),--other-daemon $(OTHER_DAEMON)) --bin $(LOCALBIN) --kubeconfig $(CLUSTER_KUBECONFIG)

# The cluster's program, and the content of its images.
.PHONY: build-cluster
build-cluster: build-launcher
	$(UNLESS_BUILT)go -C hack/cluster build -trimpath -ldflags "-s -w" -o $(LOCALBIN)/ . ./pause ./offline ./ociruntime

.PHONY: build-launcher
build-launcher:
	$(UNLESS_BUILT)go -C hack/cluster build -trimpath -ldflags "-s -w" -o $(LOCALBIN)/daemon-launcher ./launcher

.PHONY: cluster-status
cluster-status: build-cluster ## Show whether that cluster is running, and where its logs and files are.
	@$(CLUSTER) status

.PHONY: cluster-load
cluster-load: build-cluster ## Load the images that changed into that cluster, from bin/, without building.
	@$(CLUSTER) load-images

.PHONY: cluster-bytecode
cluster-bytecode: ## Push the example programs to that cluster's registry, which is quay.io in the cluster.
	@$(MAKE) --no-print-directory push-bytecode BYTECODE_REGISTRY=10.97.$(CLUSTER_INSTANCE).2:5000 \
		BYTECODE_PUSH_FLAGS="--ca $(CLUSTER_STATE)/pki/registry-ca.crt"

.PHONY: cluster-shell
cluster-shell: build-cluster ## Open a shell inside that cluster's node NODE=1.
	@$(CLUSTER) --node $(NODE) exec

.PHONY: cluster-do
cluster-do: build-cluster ## Stop, start, or signal the node NODE=1 of that cluster or its components, or add and remove nodes: DO="halt", "boot", "reboot", "stop kubelet", "start kubelet", "signal STOP containerd", "add-node", "remove-node".
	@$(CLUSTER) --node $(NODE) $(or $(DO),$(error DO says what to do, for example DO="stop kubelet"))
