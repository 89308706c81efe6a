# What is released: docs/releasing.md.

##@ Release

# The project's own images have the release's tag by default.
RELEASE_DIR ?= release-v$(VERSION)
RELEASE_OVERLAYS = crds=config/crd operator=config/release/operator agent=config/release/agent csi=config/release/csi \
	inspector=config/release/inspector all=config/default monitoring=config/prometheus/objects openshift=config/openshift

# Images of a release are named by the digests that release-images wrote, unless they are specified. If there are
# none, as in a dry run, they are named by version.
in_metadata = $(shell sed -nE 's/^ *"$1": *"($2)".*/\1/p' $(LOCALBIN)/images/$3.json 2>/dev/null | head -n 1)
by_digest = $(if $(filter file,$(origin BPFMAN_$2_IMG)),$(addprefix BPFMAN_$2_IMG=,$(addsuffix @$(call in_metadata,containerimage.digest,sha256:[0-9a-f]{64},$1),$(call in_metadata,image.name,[^"@]*[^"@:/],$1))))
RELEASED = $(if $(filter file,$(origin IMAGE_TAG)),IMAGE_TAG=v$(VERSION)) $(call by_digest,operator,OPERATOR) $(call by_digest,agent,AGENT) $(call by_digest,csi,CSI) $(call by_digest,inspector,INSPECTOR) $(call by_digest,map-exporter,MAP_EXPORTER)

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

# An existing bundle can be that of a release, so it isn't generated again.
$(BUNDLE).Dockerfile:
	@$(MAKE) --no-print-directory bundle

.PHONY: release-bundle
release-bundle: ## Generate the OLM bundle of a release, with the images of its install files.
	@$(MAKE) --no-print-directory bundle $(RELEASED)

.PHONY: catalog
catalog: build-release $(BUNDLE).Dockerfile ## Generate a catalog with the bundle of BUNDLE_IMG in bin/catalog.
	@$(LOCALBIN)/release catalog --dir $(BUNDLE) --image $(BUNDLE_IMG) --out $(LOCALBIN)/catalog/configs/bpfman-operator/catalog.yaml
	$(if $(wildcard $(LOCALBIN)/opm),@$(LOCALBIN)/opm validate $(LOCALBIN)/catalog/configs)

CATALOG_SOURCE = sed -e 's|quay.io/bpfman/bpfman-operator-catalog:latest|$(CATALOG_IMG)|' \
	-e 's|namespace: openshift-marketplace|namespace: $(CATALOG_NAMESPACE)|' config/catalog/catalog-source.yaml

ARCHITECTURES ?= amd64 arm64 ppc64le s390x
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
RELEASE_IMAGES = $(filter-out node-probe=%,$(IMAGES))
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
