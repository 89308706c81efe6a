# What is released: docs/releasing.md.

##@ Release

# GitHub's repository, whose owner's registry is the default. Without one, specify the registry.
REPOSITORY ?= $(or $(GITHUB_REPOSITORY),$(shell git remote get-url origin 2>/dev/null | sed -nE 's,^.*github\.com[:/]([^/]+/[^/]+)$$,\1,p' | sed 's/\.git$$//'))
OWNERS_REGISTRY = $(if $(REPOSITORY),ghcr.io/$(shell tr A-Z a-z <<<'$(firstword $(subst /, ,$(REPOSITORY)))'))
SOURCE = https://github.com/$(or $(REPOSITORY),bpfman/bpfman-operator)
# yes: publish. Otherwise, everything is only built.
PUBLISH ?=
# Without a key, cosign signs as the workflow that runs this.
COSIGN_FLAGS ?=

RELEASE_DIR ?= release-v$(VERSION)
RELEASE_OVERLAYS = crds=config/crd states=config/states namespaced=config/namespaced namespaced-states=config/namespaced/states operator=config/release/operator agent=config/release/agent csi=config/release/csi \
	inspector=config/release/inspector all=config/default monitoring=config/prometheus/objects openshift=config/openshift
# An empty REGISTRY is as good as none.
ifeq ($(REGISTRY),)
override REGISTRY := $(OWNERS_REGISTRY)
endif
# The images of a release in the OCI layout, and what replaces the tree's names of images.
RELEASE_IMAGES := $(LOCALBIN)/release-images
RELEASE_NAMES := $(LOCALBIN)/release-names.sed
RELEASE_FILES := $(LOCALBIN)/release-files
RELEASE = SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(LOCALBIN)/release
OF_RELEASE = --version $(VERSION) --registry "$(REGISTRY)" --source $(SOURCE) --revision "$(REVISION)" --architectures "$(ARCHITECTURES)" --layout $(RELEASE_IMAGES)
# In a trial without a release, the project's own images have the release's tag.
RELEASED = $(if $(filter yes,$(BY_DIGEST)),WITH_IMAGES='sed -f $(RELEASE_NAMES)',$(if $(filter file,$(origin IMAGE_TAG)),IMAGE_TAG=v$(VERSION)))

.PHONY: release
release: build-release ## Build everything that a release of VERSION at REGISTRY is, and with PUBLISH=yes, publish and sign it (docs/releasing.md).
	@$(RELEASE) notes $(OF_RELEASE) $(if $(filter yes,$(PUBLISH)),,--unreleased) >$(LOCALBIN)/release-notes.md
	@$(if $(filter yes,$(PUBLISH)),$(MAKE) --no-print-directory release-tagged)
	@$(MAKE) --no-print-directory release-images
	@$(MAKE) --no-print-directory release-files BY_DIGEST=yes
	@$(if $(filter yes,$(PUBLISH)),$(MAKE) --no-print-directory release-publish,echo "nothing is published: make release PUBLISH=yes does that")

# The version is in the Makefile. These files name it too, for readers.
.PHONY: bump
bump: ## Set the next version, NEW=X.Y.Z, in the Makefile and wherever the documentation names it.
	@sed -i -E 's/(release-v|bpfman-operator[-:]|download\/v|tags\/v|--version |tag .v|VERSION\)\),|^version: |^appVersion: v)$(VERSION)/\1$(NEW)/g' \
		Makefile charts/bpfman-operator/Chart.yaml docs/install.md docs/upgrade.md docs/air-gapped.md docs/olm.md

# `go get` finds the module apis by its own tag.
.PHONY: release-tagged
release-tagged:
	@changes=$$(git status --porcelain); test -z "$$changes" || { echo "a release is built from a commit, but there are changes:"; echo "$$changes"; exit 1; } >&2
	@for tag in v$(VERSION) apis/v$(VERSION); do test "$$(git rev-parse -q --verify "refs/tags/$$tag^{commit}")" = "$(REVISION)" || \
		{ echo "this commit isn't tagged $$tag: git tag -s $$tag" >&2; exit 1; }; done

.PHONY: release-yamls
release-yamls:
	@rm -rf $(RELEASE_DIR) && mkdir -p $(RELEASE_DIR)
	@for overlay in $(RELEASE_OVERLAYS); do file=$(RELEASE_DIR)/bpfman-$${overlay%%=*}-install.yaml; \
		$(LOCALBIN)/kustomize build "$${overlay#*=}" | $(WITH_IMAGES) >"$$file"; echo "$$file"; done
	@cp hack/install/install.sh hack/install/uninstall.sh hack/install/mirror.sh $(RELEASE_DIR)

.PHONY: package-chart
package-chart: $(LOCALBIN)/helm ## Package the Helm chart of this version, with its images, to bin/chart.
	@$(MAKE) --no-print-directory packaged-chart $(RELEASED)

# Files in the archive have the time of the commit.
.PHONY: packaged-chart
packaged-chart: chart
	@rm -rf $(LOCALBIN)/chart && mkdir -p $(LOCALBIN)/chart && cp -r $(CHART) $(LOCALBIN)/chart
	@cd $(CHART) && for file in values.yaml Chart.yaml README.md files/crds.yaml files/namespaced.yaml; do $(WITH_IMAGES) $$file >$(LOCALBIN)/chart/$(notdir $(CHART))/$$file; done
	@find $(LOCALBIN)/chart -exec touch --date=@$(COMMIT_TIME) {} +
	@$(LOCALBIN)/helm package $(LOCALBIN)/chart/$(notdir $(CHART)) --version $(VERSION) --app-version v$(VERSION) --destination $(LOCALBIN)/chart

# For the Operator Lifecycle Manager: docs/olm.md. The variables above select other images than the published ones.
# Release candidates are only in the channel candidate, which releases are in too.
CHANNELS ?= $(if $(findstring -,$(VERSION)),,stable$(comma))candidate
DEFAULT_CHANNEL ?= $(firstword $(subst $(comma),$(space),$(CHANNELS)))
# What an upgrade replaces: the name of the previous release, and a range of versions, which has candidates too.
BUNDLE_REPLACES ?= $(addprefix bpfman-operator.,$(shell git tag --list 'v*' --sort=v:refname | awk '$$0 == "v$(VERSION)" { exit } !/-/ { last = $$0 } END { print last }'))
BUNDLE_SKIP_RANGE ?= <$(VERSION)
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
	@SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(MAKE) --no-print-directory bundle $(RELEASED)

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

# The released commands, those of all images. The others are for tests.
RELEASE_COMMANDS = bpfman-operator bpfman-agent bpfman-reader bpfman-ns bpfman-probe bpfman-csi bpfman-inspector counters map-exporter firewall go-target
RELEASE_BINARIES = $(foreach architecture,$(ARCHITECTURES),$(RELEASE_COMMANDS:%=$(LOCALBIN)/linux-$(architecture)/%))

.PHONY: build-architectures
build-architectures: ## Build the released commands for each of ARCHITECTURES, to bin/linux-<architecture>.
	@for architecture in $(ARCHITECTURES); do \
		GOOS=linux GOARCH=$$architecture GOFLAGS="$(GOFLAGS) -buildvcs=false" $(MAKE) --no-print-directory $(filter $(addprefix %/,$(RELEASE_COMMANDS)),$(COMMANDS:%=build/%)) LOCALBIN=$(LOCALBIN)/linux-$$architecture || exit 1; done

# The kubectl plugin also runs on users' machines.
PLUGIN_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
PLUGINS = $(foreach platform,$(PLUGIN_PLATFORMS),$(LOCALBIN)/plugin/$(subst /,-,$(platform))/kubectl-bpfman$(if $(filter windows/%,$(platform)),.exe))

.PHONY: build-plugins
build-plugins: $(UI_PAGE) ## Build the kubectl plugin for each of PLUGIN_PLATFORMS, to bin/plugin/<system>-<architecture>.
	@for plugin in $(PLUGINS); do platform=$$(basename $$(dirname $$plugin)); echo "building kubectl-bpfman for $$platform"; \
		GOOS=$${platform%-*} GOARCH=$${platform#*-} GOFLAGS="$(GOFLAGS) -buildvcs=false" \
		go -C cli build -trimpath -tags $(TAGS) -ldflags "$(LDFLAGS)" -o $$plugin ./cmd/kubectl-bpfman || exit 1; done

.PHONY: sbom
sbom: build-release build-architectures build-plugins ## Write a bill of materials (CycloneDX) for each released command.
	SOURCE_DATE_EPOCH=$(COMMIT_TIME) $(LOCALBIN)/release sbom --version $(VERSION) $(RELEASE_BINARIES) $(PLUGINS)

.PHONY: licences
licences: build-release build-architectures build-plugins ## Collect the licenses of everything in the released commands in bin/licences; fail on one that is unknown or isn't allowed.
	@rm -rf $(LOCALBIN)/licences
	$(LOCALBIN)/release licences --out $(LOCALBIN)/licences $(RELEASE_BINARIES) $(PLUGINS)

.PHONY: release-files
release-files: sbom licences build-release-yamls package-chart release-bundle schemas release-mirror ## Write the files of a release to bin/release-files: install files, chart, bundle, examples, schemas, commands, SBOMs, licenses, checksums.
	@rm -rf $(RELEASE_FILES) && mkdir -p $(RELEASE_FILES)
	@named=$$(grep -hoE '^ *(- )?(image|bpfman\.(agent\.|csi\.|csi\.registrar\.|inspector\.)?image): *[^ ]+' $(RELEASE_DIR)/*.yaml | sed '/@sha256:/d' | sort -u); test -z "$$named" || \
		{ echo "a release names its images by digest, but has:"; echo "$$named"; exit 1; } >&2
	@cp $(RELEASE_DIR)/*.yaml $(RELEASE_DIR)/*.sh $(LOCALBIN)/chart/*.tgz $(RELEASE_FILES)
	@sed -f $(RELEASE_NAMES) config/catalog/catalog-source.yaml >$(RELEASE_FILES)/bpfman-catalog-source.yaml
	@rm -rf $(LOCALBIN)/examples && mkdir -p $(LOCALBIN)/examples && cp -r examples/config/. $(LOCALBIN)/examples && cp -r config/samples $(LOCALBIN)/examples
	@find $(LOCALBIN)/examples $(LOCALBIN)/schemas -type f -exec sed -i -f $(RELEASE_NAMES) {} +
	@for architecture in $(ARCHITECTURES); do \
		$(ARCHIVE) -C $(LOCALBIN)/linux-$$architecture -c $(RELEASE_COMMANDS) $(RELEASE_COMMANDS:%=%.cdx.json) | \
		gzip -n >$(RELEASE_FILES)/bpfman-operator-$(VERSION)-linux-$$architecture.tar.gz; done
	@for dir in bundle licences schemas examples; do \
		$(ARCHIVE) -C $(LOCALBIN) -c $$dir | gzip -n >$(RELEASE_FILES)/bpfman-operator-$(VERSION)-$$dir.tar.gz; done
	@$(MAKE) --no-print-directory plugin-archives
	@$(ARCHIVE) -C $(RELEASE_MIRROR) -c . >$(RELEASE_FILES)/bpfman-operator-$(VERSION)-images.tar
	@cd $(RELEASE_FILES) && sha256sum * >checksums.txt && cat checksums.txt

ARCHIVE = tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime=@$(COMMIT_TIME)

RELEASE_URL ?= $(SOURCE)/releases/download/v$(VERSION)

# From the output of sbom. krew's index accepts the manifest without changes.
.PHONY: plugin-archives
plugin-archives: build-release
	@mkdir -p $(LOCALBIN)/release-files
	@for plugin in $(PLUGINS); do dir=$$(dirname $$plugin); case $$plugin in *.exe) complete=kubectl_complete-bpfman.cmd ;; *) complete=kubectl_complete-bpfman ;; esac; \
		cp LICENSE cli/$$complete $$dir && \
		$(ARCHIVE) -C $$dir -c . | gzip -n >$(RELEASE_FILES)/kubectl-bpfman-$(VERSION)-$$(basename $$dir).tar.gz || exit 1; done
	$(LOCALBIN)/release krew --version $(VERSION) --url $(RELEASE_URL) --template cli/krew.yaml --out $(RELEASE_FILES)/bpfman.yaml \
		$(RELEASE_FILES)/kubectl-bpfman-$(VERSION)-*.tar.gz

# Each copy has its own build cache, so that the second build reuses nothing.
.PHONY: verify-reproducible
verify-reproducible: ## Build the commands of the last commit twice, in two directories, and fail if they differ (ARCHITECTURES, PLUGIN_PLATFORMS).
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && for copy in one another/longer; do \
		mkdir -p "$$dir/$$copy" && git archive HEAD | tar -x -C "$$dir/$$copy" && \
		GOCACHE="$$dir/$$copy/cache" $(MAKE) -C "$$dir/$$copy" --no-print-directory build-architectures build-plugins LOCALBIN="$$dir/$$copy/bin" && \
		(cd "$$dir/$$copy/bin" && sha256sum linux-*/* plugin/*/*) >"$$dir/$${copy%%/*}.sums" && rm -rf "$${dir:?}/$$copy"; done && \
	diff "$$dir/one.sums" "$$dir/another.sums" && cat "$$dir/one.sums"

# Examples and pages name the bytecode that is published. For nodes with big-endian processors, it is built again.
RELEASE_BYTECODE = $(sort $(shell grep -rhoE --include=*.md --include=*.yaml 'quay\.io/bpfman-bytecode/[A-Za-z0-9_-]+' docs examples config charts | sed 's,.*/,,'))

BIG_ENDIAN_BYTECODE := $(BYTECODE:$(LOCALBIN)/bytecode/%=$(LOCALBIN)/bytecode-big-endian/%)

$(LOCALBIN)/bytecode-big-endian/%.o: examples/bytecode/%.bpf.c $(wildcard examples/bytecode/*.h)
	@mkdir -p $(@D)
	@$(CLANG) $(subst -target bpf ,-target bpfeb ,$(BPF_CFLAGS)) -c $< -o $@

.PHONY: release-images
release-images: build-release build-architectures bytecode $(BIG_ENDIAN_BYTECODE) ## Build the images of a release to bin/release-images, without a container engine.
	@rm -rf $(RELEASE_IMAGES)
	@$(RELEASE) images $(OF_RELEASE) --bin $(LOCALBIN) --bytecode "$(patsubst xdp_pass_private,$(BYTECODE_ALIAS),$(RELEASE_BYTECODE))"
	@$(RELEASE_NAMED)

RELEASE_NAMED = $(RELEASE) names $(OF_RELEASE) --other '$(DAEMON_NAME)=$(BPFMAN_IMG)' --other '$(REGISTRAR_NAME)=$(BPFMAN_REGISTRAR_IMG)' >$(RELEASE_NAMES)

OPM_IMAGE ?= $(shell sed -n 's/^ARG OPM_IMAGE=//p' catalog.Dockerfile)
.PHONY: release-catalog
release-catalog: package-chart release-bundle
	@$(RELEASE) add $(OF_RELEASE) --chart $(LOCALBIN)/chart/$(notdir $(CHART))-$(VERSION).tgz
	@$(RELEASE) add $(OF_RELEASE) --bundle $(BUNDLE)
	@$(RELEASE_NAMED)
	@$(MAKE) --no-print-directory catalog BUNDLE_IMG="$$(sed -f $(RELEASE_NAMES) <<<'quay.io/bpfman/bpfman-operator-bundle:latest')"
	@$(RELEASE) add $(OF_RELEASE) --catalog $(LOCALBIN)/catalog --base $(OPM_IMAGE)
	@$(RELEASE_NAMED)

# All images, for clusters that reach no other registry than their own: hack/install/mirror.sh.
RELEASE_MIRROR := $(LOCALBIN)/release-mirror
.PHONY: release-mirror
release-mirror: release-catalog
	@rm -rf $(RELEASE_MIRROR) && cp -r $(RELEASE_IMAGES) $(RELEASE_MIRROR)
	@for image in $(BPFMAN_IMG) $(BPFMAN_REGISTRAR_IMG); do $(RELEASE) add $(OF_RELEASE) --layout $(RELEASE_MIRROR) --other $$image || exit 1; done

SIGN_BLOB = $(LOCALBIN)/cosign $1 --yes $(COSIGN_FLAGS) $2 checksums.txt
.PHONY: release-publish
release-publish: $(LOCALBIN)/cosign
	@$(RELEASE) publish $(OF_RELEASE) --bin $(LOCALBIN) --cosign $(LOCALBIN)/cosign --cosign-flags "$(COSIGN_FLAGS)" \
		--provenance $(LOCALBIN)/release-provenance.json --tags "$$(git tag --list 'v*')"
	@cd $(RELEASE_FILES) && $(call SIGN_BLOB,sign-blob,--bundle checksums.txt.sigstore.json) && \
		$(call SIGN_BLOB,attest-blob,--type slsaprovenance1 --predicate $(LOCALBIN)/release-provenance.json --bundle checksums.txt.provenance.sigstore.json)
	$(if $(GH_TOKEN),gh release view v$(VERSION) >/dev/null 2>&1 || gh release create v$(VERSION) --verify-tag --draft --notes-file $(LOCALBIN)/release-notes.md)
	$(if $(GH_TOKEN),gh release upload v$(VERSION) --clobber $(RELEASE_FILES)/*)
	$(if $(GH_TOKEN),gh release edit v$(VERSION) --draft=false --prerelease=$(if $(findstring -,$(VERSION)),true,false) \
		--latest=$$($(MAKE) --silent is-latest))

.PHONY: is-latest
is-latest: build-release ## Print whether VERSION is the highest of all tags that isn't a release candidate.
	@$(RELEASE) latest $(OF_RELEASE) --tags "$$(git tag --list 'v*')"
