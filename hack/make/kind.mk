# Clusters of kind (https://kind.sigs.k8s.io), whose nodes are containers.

##@ Tests

KIND_CLUSTER_NAME ?= bpfman-deployment
KIND ?= $(LOCALBIN)/kind
# The image of the nodes, by default that of kind's release, and the cluster's configuration.
KIND_NODE_IMAGE ?=
KIND_CONFIG ?= hack/kind/cluster.yaml
KIND_TIMEOUT ?= 3m
KIND_RUN = KIND_EXPERIMENTAL_PROVIDER=$(filter podman,$(notdir $(CONTAINER_ENGINE))) $(KIND)

.PHONY: build-kubeadm
build-kubeadm:
	$(UNLESS_BUILT)hack/kubernetes/build.sh $(CACHE) $(LOCALBIN) kubeadm

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
