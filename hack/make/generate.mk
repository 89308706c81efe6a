# What is generated from the API, and from config/: `make generate` in the Makefile, and its parts.

##@ Development

# The generators run on the apis module alone, not on the workspace.
APIS := github.com/bpfman/bpfman-operator/apis
GENERATE := cd apis && GOWORK=off
BOILERPLATE := --go-header-file ../hack/boilerplate.go.txt

# The generator escapes braces in code too, where the backslashes would be shown, and keeps the comments' line breaks.
.PHONY: generate-reference
generate-reference: $(LOCALBIN)/crd-ref-docs ## Generate the API reference (docs/reference/api), with a page for each kind.
	$< --source-path=apis/v1alpha1 --config=hack/api-reference.yaml --renderer=markdown --output-path=$(LOCALBIN)/api.md --log-level=ERROR
	@sed -i -E -e 's/^(_Appears in:_|_Validation:_)$$/&\n/' \
		-e 's/\\([{}])/\1/g' -e 's/(Required|Optional): \{\}/\1/g' -e 's/Schemaless: \{\} <br \/>//' \
		-e ':join; s/([^ >])<br \/>([^<-])/\1 \2/; t join' $(LOCALBIN)/api.md
	@go -C hack/docs run ./reference $(LOCALBIN)/api.md $(CURDIR)/docs/reference/api

.PHONY: generate-problems
generate-problems: ## Generate the tables of problems (docs/status.md) from internal/problem.
	go run ./hack/problems

# The output of `generate`.
GENERATED = apis/v1alpha1 apis/namespaced apis/client config/crd/bases config/states config/namespaced docs/reference/api docs/status.md $(shell go run ./hack/kinds files && go run ./hack/keys files)

# Nothing below is committed. The documentation's site has the schemas in the same directory.
SCHEMAS := $(LOCALBIN)/schemas

.PHONY: schemas
schemas: $(SCHEMAS)/bpfman.io/all.json ## Generate the JSON schemas of the kinds, for editors, in bin/schemas.

$(SCHEMAS)/bpfman.io/all.json: $(wildcard config/crd/bases/*.yaml hack/docs/schemas/*.go)
	@rm -rf $(SCHEMAS)
	go -C hack/docs run ./schemas $(CURDIR)/config/crd/bases $(SCHEMAS)

# The chart's namespace is the namespace of the release.
CHART := charts/bpfman-operator
CHART_FILES := $(addprefix $(CHART)/files/,crds.yaml states.yaml namespaced.yaml namespaced-states.yaml rbac.yaml monitoring.yaml)
IN_CHART = sed -e 's/namespace: bpfman$$/namespace: "@namespace@"/' -e 's/serviceaccount:bpfman:/serviceaccount:@namespace@:/g' -e 's/^  - bpfman$$/  - "@namespace@"/'

.PHONY: chart
chart: $(CHART_FILES) ## Complete the Helm chart of this clone with what it has in common with the manifests (charts/bpfman-operator/files).

$(CHART)/files/crds.yaml: OVERLAY = config/crd
$(CHART)/files/states.yaml: OVERLAY = config/states
$(CHART)/files/namespaced.yaml: OVERLAY = config/namespaced/crd
$(CHART)/files/namespaced-states.yaml: OVERLAY = config/namespaced/states
$(CHART)/files/rbac.yaml: OVERLAY = config/chart
$(CHART)/files/monitoring.yaml: OVERLAY = config/prometheus/objects
$(CHART_FILES): $(LOCALBIN)/kustomize $(shell find config -type f) hack/make/generate.mk
	@mkdir -p $(@D)
	$(LOCALBIN)/kustomize build $(OVERLAY) | $(IN_CHART) >$@
