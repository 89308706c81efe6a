# Installing on a cluster.

KUBECTL ?= $(or $(shell command -v kubectl),$(LOCALBIN)/kubectl)
# What to deploy: config/default, or an overlay.
DEPLOY ?= config/default
DAEMON_NAME := quay.io/bpfman/bpfman:v0.6.0
REGISTRAR_NAME := registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.13.0
BPFMAN_IMG ?= $(DAEMON_NAME)
BPFMAN_REGISTRAR_IMG ?= $(REGISTRAR_NAME)
ignore-not-found ?= true
DEPLOY_TIMEOUT ?= 180s

# Each way to install first checks for definitions of other software, and refuses to continue if there are some:
# docs/install.md. IMAGES_LOADED=yes says that the nodes have your own images under the default names, which are
# upstream's.
INSTALL = KUBECTL="$(KUBECTL)" TIMEOUT=$(DEPLOY_TIMEOUT) IMAGES_LOADED=$(or $(IMAGES_LOADED),$(if $(filter $(CLUSTER_KUBECONFIG),$(KUBECONFIG)),yes)) hack/install/install.sh
UNINSTALL_SCRIPT = KUBECTL="$(KUBECTL)" hack/install/uninstall.sh

# Images are in the Deployment and, as text, in the ConfigMap.
WITH_IMAGES = sed \
	-e 's|$(DAEMON_NAME)|$(BPFMAN_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-operator:latest|$(BPFMAN_OPERATOR_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-agent:latest|$(BPFMAN_AGENT_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-csi:latest|$(BPFMAN_CSI_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-inspector:latest|$(BPFMAN_INSPECTOR_IMG)|' \
	-e 's|$(REGISTRAR_NAME)|$(BPFMAN_REGISTRAR_IMG)|' \
	-e 's|quay.io/bpfman/bpfman-map-exporter:latest|$(BPFMAN_MAP_EXPORTER_IMG)|'
RENDER = $(KUBECTL) kustomize $(DEPLOY) | $(WITH_IMAGES)

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
